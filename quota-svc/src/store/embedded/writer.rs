//! The thread that writes the store file. It commits all queued batches of rows together and then notifies their
//! senders.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::store_file::StoreFile;
use crate::domain::id::{AccountId, KeyId};

/// A commit consists of the batch that the thread waited for and at most this many queued ones. Bounds the duration of
/// the commit.
const MAX_QUEUED_BATCHES: usize = 1_000;

/// One row to write or to delete.
#[derive(Debug, Clone)]
pub enum RowWrite {
    /// An account with its sessions and key IDs; `None` deletes it.
    Account(AccountId, Option<Vec<u8>>),
    /// A key's metadata; `None` deletes it with its record and events.
    Key(KeyId, Option<Vec<u8>>),
    Record(KeyId, Vec<u8>),
    Event(KeyId, String),
    /// The demo's day and count.
    Demo(u32, u32),
}

struct WriteBatch {
    writes: Vec<RowWrite>,
    done: oneshot::Sender<Result<(), String>>,
}

/// Sends batches to the writer thread, which ends when the last clone of this `Writer` is dropped.
#[derive(Clone)]
pub struct Writer {
    batches: Sender<WriteBatch>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Writer {
    /// Starts the thread.
    pub fn start(file: Arc<StoreFile>) -> Self {
        let (batches, queue) = channel();
        let failure = Arc::new(Mutex::new(None));
        let thread = WriterThread { file, failure: failure.clone(), retained: Vec::new() };
        std::thread::spawn(move || thread.run(&queue));
        Self { batches, failure }
    }

    /// Queues rows. The receiver resolves when they are on disk or the commit has failed.
    pub fn write(&self, writes: Vec<RowWrite>) -> oneshot::Receiver<Result<(), String>> {
        let (done, commit) = oneshot::channel();
        // If the thread has ended, the batch is dropped and the receiver gets an error.
        let _ = self.batches.send(WriteBatch { writes, done });
        commit
    }

    /// Why the last commit failed; `None` if it succeeded.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct WriterThread {
    file: Arc<StoreFile>,
    failure: Arc<Mutex<Option<String>>>,
    /// Rows of failed commits. They are already changed in memory, so the next commit writes them first.
    retained: Vec<RowWrite>,
}

impl WriterThread {
    fn run(mut self, queue: &Receiver<WriteBatch>) {
        while let Ok(first) = queue.recv() {
            let mut batches = vec![first];
            batches.extend(queue.try_iter().take(MAX_QUEUED_BATCHES));
            let result = self.commit(&batches);
            self.record_result(result.as_ref().err());
            for batch in batches {
                // Fails if the receiver was dropped, for example with a canceled request.
                let _ = batch.done.send(result.clone());
            }
        }
    }

    fn commit(&mut self, batches: &[WriteBatch]) -> Result<(), String> {
        let new = batches.iter().flat_map(|batch| &batch.writes);
        match self.file.write(self.retained.iter().chain(new)) {
            Ok(()) => {
                self.retained.clear();
                Ok(())
            }
            Err(error) => {
                let new = batches.iter().flat_map(|batch| &batch.writes);
                // Records and the demo's counter are not retained: the next flush writes the records of charged keys
                // and the demo's counter again, and retaining every version would use unbounded memory.
                let retained =
                    new.filter(|write| !matches!(write, RowWrite::Record(..) | RowWrite::Demo(..)));
                self.retained.extend(retained.cloned());
                Err(error.to_string())
            }
        }
    }

    fn record_result(&self, error: Option<&String>) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match (error, failure.is_some()) {
            (Some(error), false) => tracing::error!(%error, "can't write the store file; charges fail"),
            (None, true) => tracing::info!("the store file is writable again"),
            _ => {}
        }
        *failure = error.cloned();
    }
}
