//! The thread that writes the store file. It is the only one that changes accounts: it adds all queued changes to a batch, writes
//! their rows in one transaction, and only then changes the state in memory. If the transaction fails, so do the changes.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::state::{Batch, State};
use super::store_file::{StoreFile, UndoRows};
use crate::domain::change::Change;
use crate::store::{Result, StoreError, lock};

/// How often changed counters are saved, and how often an unwritable file is tried again.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// A commit consists of the request that the thread waited for and at most this many queued ones. Bounds the duration
/// of the commit.
const MAX_QUEUED_REQUESTS: usize = 1_000;
pub const THREAD_ENDED: &str = "the thread that writes the store file has ended";

/// A request to write what charges have changed, and perhaps a change.
pub struct Request {
    pub change: Option<Change>,
    /// Gets `false` if the change conflicts with another one.
    pub reply: oneshot::Sender<Result<bool>>,
}

pub struct WriterThread {
    pub file: Arc<StoreFile>,
    pub state: Arc<Mutex<State>>,
    /// The confirmed values of rows in failed commits. A failed commit can still be on disk, for example if only its
    /// last `fsync` failed, so the next commit restores these rows first.
    pub undo: UndoRows,
    /// Dropped with the thread.
    pub _alive: watch::Sender<()>,
}

impl WriterThread {
    /// Runs until the sender of requests is dropped.
    pub fn run(mut self, queue: &Receiver<Request>) {
        loop {
            let first = match queue.recv_timeout(FLUSH_INTERVAL) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let requests = first.into_iter().chain(queue.try_iter().take(MAX_QUEUED_REQUESTS));
            self.handle(requests.collect());
        }
    }

    fn handle(&mut self, mut requests: Vec<Request>) {
        lock(&self.state).commit_start = Some(Instant::now());
        let changes = requests.iter_mut().map(|request| request.change.take()).collect();
        let result = self.commit(changes);
        let mut state = lock(&self.state);
        state.commit_start = None;
        match (&result, state.failure.is_some()) {
            (Err(error), false) => {
                tracing::error!(%error, "can't write the store file; charges and changes fail until it can be written");
            }
            (Ok(_), true) => tracing::info!("the store file is writable again"),
            _ => {}
        }
        state.failure = result.as_ref().err().cloned();
        drop(state);
        let mut results = result.map(Vec::into_iter);
        for request in requests {
            let result = match &mut results {
                Ok(results) => results.next().unwrap_or(Ok(true)),
                Err(reason) => Err(StoreError::Unavailable(reason.clone().into())),
            };
            // Fails if the request was canceled.
            let _ = request.reply.send(result);
        }
    }

    /// Commits the changes and what charges have changed. Returns the result of each change; an error is that
    /// of the transaction, or that the file was removed or replaced. After a failure it reopens the file and commits even if
    /// there is nothing to save, to detect when the file is writable again.
    fn commit(&mut self, changes: Vec<Option<Change>>) -> Result<Vec<Result<bool>>, String> {
        self.file.check_path().map_err(|error| error.to_string())?;
        let failed = lock(&self.state).failure.is_some();
        if failed {
            self.file.reopen().map_err(|error| error.to_string())?;
        }
        let (mut state, mut batch) = (lock(&self.state), Batch::default());
        let add = |change: Option<Change>| change.map_or(Ok(true), |change| batch.add(&state, change));
        let results = changes.into_iter().map(add).collect();
        // Under the same lock, because the rows of changes overwrite those of charges: a pause after the comparison of its
        // record is left to the next commit.
        batch.add_unsaved(&mut state);
        drop(state);
        if batch.rows().next().is_none() && !failed {
            return Ok(results);
        }
        let written = self.file.write(&mut self.undo, batch.rows());
        let mut state = lock(&self.state);
        if let Err(error) = written {
            state.put_back(batch);
            return Err(error.to_string());
        }
        state.apply(batch);
        Ok(results)
    }
}

impl Drop for WriterThread {
    /// Without its writer the store is unavailable, so that no charge is allowed that can't be saved.
    fn drop(&mut self) {
        lock(&self.state).failure = Some(THREAD_ENDED.to_owned());
    }
}
