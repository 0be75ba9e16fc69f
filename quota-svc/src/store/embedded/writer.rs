//! The thread that writes: whatever waits goes into one commit, and everybody is told when it is on disk.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::file::File;
use crate::domain::id::{AccountId, KeyId};

/// The most batches in one commit: nobody should wait for a commit without end.
const MOST_BATCHES: usize = 1_000;

/// One row to write or to remove.
#[derive(Debug, Clone)]
pub enum Op {
    /// An account, with its sessions and the places of its keys; `None` removes it.
    Account(AccountId, Option<Vec<u8>>),
    /// A key's description; `None` removes it with its record and events.
    Key(KeyId, Option<Vec<u8>>),
    /// A key's record.
    Record(KeyId, Vec<u8>),
    /// An event of a key.
    Event(KeyId, String),
    /// The demo's day and count.
    Demo(u32, u32),
}

struct Batch {
    ops: Vec<Op>,
    done: oneshot::Sender<Result<(), String>>,
}

/// Hands rows to the writing thread, which ends when the last of these is dropped.
#[derive(Clone)]
pub struct Writer {
    batches: Sender<Batch>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Writer {
    /// Starts the thread.
    pub fn start(file: Arc<File>) -> Self {
        let (batches, waiting) = channel();
        let failure = Arc::new(Mutex::new(None));
        let worker = Worker { file, failure: failure.clone(), retained: Vec::new() };
        std::thread::spawn(move || worker.run(&waiting));
        Self { batches, failure }
    }

    /// Writes rows; the answer comes when they are on disk, or when they could not be put there.
    pub fn write(&self, ops: Vec<Op>) -> oneshot::Receiver<Result<(), String>> {
        let (done, written) = oneshot::channel();
        // If the thread is gone the batch is dropped, and the receiver says so.
        let _ = self.batches.send(Batch { ops, done });
        written
    }

    /// Why the last commit failed, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Worker {
    file: Arc<File>,
    failure: Arc<Mutex<Option<String>>>,
    /// What was changed in memory and could not be written: it goes first next time.
    retained: Vec<Op>,
}

impl Worker {
    fn run(mut self, waiting: &Receiver<Batch>) {
        while let Ok(first) = waiting.recv() {
            let mut batches = vec![first];
            batches.extend(waiting.try_iter().take(MOST_BATCHES));
            let outcome = self.commit(&batches);
            self.note(outcome.as_ref().err());
            for batch in batches {
                // Whoever does not wait any more does not mind.
                let _ = batch.done.send(outcome.clone());
            }
        }
    }

    fn commit(&mut self, batches: &[Batch]) -> Result<(), String> {
        let new = batches.iter().flat_map(|batch| &batch.ops);
        match self.file.write(self.retained.iter().chain(new)) {
            Ok(()) => {
                self.retained.clear();
                Ok(())
            }
            Err(error) => {
                let new = batches.iter().flat_map(|batch| &batch.ops);
                // Records are flushed again anyway: keeping each version would grow without bound.
                self.retained.extend(new.filter(|op| !matches!(op, Op::Record(..) | Op::Demo(..))).cloned());
                Err(error.to_string())
            }
        }
    }

    fn note(&self, error: Option<&String>) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match (error, failure.is_some()) {
            (Some(error), false) => {
                tracing::error!(%error, "the store file can't be written; refusing charges")
            }
            (None, true) => tracing::info!("the store file can be written again"),
            _ => {}
        }
        *failure = error.cloned();
    }
}
