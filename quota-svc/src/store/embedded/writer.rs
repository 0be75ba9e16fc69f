//! The thread that writes the store file. It is the only one that changes accounts.
//!
//! It adds all queued changes to a batch, writes their rows in one transaction, and only then changes the state in
//! memory. If the transaction fails, the batch is dropped and the changes fail. Charges change the memory first:
//! their counters and pauses are saved by the next transaction that succeeds.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::batch::Batch;
use super::state::State;
use super::store_file::{StoreFile, UndoRows};
use crate::domain::change::Change;
use crate::store::{Result, StoreError};

/// How often changed counters are saved, and how often an unwritable file is tried again.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// A commit consists of the request that the thread waited for and at most this many queued ones. Bounds the duration
/// of the commit.
const MAX_QUEUED_REQUESTS: usize = 1_000;
/// After this time, a commit counts as failed: the disk hangs. Its requests are not confirmed, and charges fail until
/// the commit ends.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

const THREAD_ENDED: &str = "the thread that writes the store file has ended";

/// A request to write what charges have changed, and perhaps a change.
struct Request {
    change: Option<Change>,
    /// Whether to save counters, too, and not only pauses.
    flush: bool,
    /// Gets `false` if the change conflicts with another one.
    reply: oneshot::Sender<Result<bool>>,
}

/// Sends requests to the writer thread, which ends when this `Writer` is dropped.
pub struct Writer {
    requests: Sender<Request>,
    health: Arc<Mutex<Health>>,
    /// Closed when the thread has ended.
    thread_ended: watch::Receiver<()>,
}

#[derive(Default)]
struct Health {
    /// Why the last commit failed; `None` if it succeeded.
    failure: Option<String>,
    /// When the current commit began.
    commit_start: Option<Instant>,
}

impl Writer {
    pub fn start(file: Arc<StoreFile>, state: Arc<Mutex<State>>) -> std::io::Result<Self> {
        let (requests, queue) = channel();
        let health = Arc::<Mutex<Health>>::default();
        let (alive, thread_ended) = watch::channel(());
        let thread =
            WriterThread { file, state, health: health.clone(), undo: UndoRows::default(), _alive: alive };
        std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || thread.run(&queue))?;
        Ok(Self { requests, health, thread_ended })
    }

    /// Makes a change that is on disk when this returns `true`. It returns `false` if the change conflicts with another
    /// one. After any error but `Unconfirmed`, nothing has changed; after `Unconfirmed`, the change may still be made.
    pub async fn commit(&self, change: Change, deadline: Instant) -> Result<bool> {
        match self.failure() {
            Some(reason) => Err(StoreError::Unavailable(reason.into())),
            None => self.send(Some(change), false, deadline).await,
        }
    }

    /// Waits until the pauses of keys, and their announcements, are on disk.
    pub async fn save_pauses(&self) -> Result<()> {
        self.send(None, false, Instant::now() + COMMIT_TIMEOUT).await.map(drop)
    }

    /// Waits until everything that charges have changed is on disk.
    pub async fn save_all(&self) -> Result<()> {
        self.send(None, true, Instant::now() + COMMIT_TIMEOUT).await.map(drop)
    }

    async fn send(&self, change: Option<Change>, flush: bool, deadline: Instant) -> Result<bool> {
        let (reply, receiver) = oneshot::channel();
        // If the thread has ended, the request is dropped and the receiver gets an error.
        let _ = self.requests.send(Request { change, flush, reply });
        match tokio::time::timeout_at(deadline.into(), receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => {
                // The reply was dropped with the thread, perhaps before the thread could report its end.
                self.report_failure(THREAD_ENDED.to_owned());
                Err(StoreError::Unavailable(THREAD_ENDED.into()))
            }
            Err(_) => Err(StoreError::Unconfirmed("the disk did not respond in time".into())),
        }
    }

    /// Why the file can't be written now; `None` if it can.
    pub fn failure(&self) -> Option<String> {
        let health = lock(&self.health);
        let hangs = || health.commit_start.is_some_and(|start| start.elapsed() > COMMIT_TIMEOUT);
        health.failure.clone().or_else(|| {
            hangs().then(|| format!("a write to the store file takes longer than {COMMIT_TIMEOUT:?}"))
        })
    }

    /// Records why the file can't be used: a failed read, or the end of the thread. The next commit then reopens the
    /// file, because redb fails every call after an I/O error.
    pub fn report_failure(&self, reason: String) {
        lock(&self.health).failure.get_or_insert(reason);
    }

    /// Waits until the thread has ended. It ends by itself only if it panics.
    pub async fn thread_ended(&self) {
        let mut alive = self.thread_ended.clone();
        while alive.changed().await.is_ok() {}
    }
}

struct WriterThread {
    file: Arc<StoreFile>,
    state: Arc<Mutex<State>>,
    health: Arc<Mutex<Health>>,
    /// The confirmed values of rows in failed commits. A failed commit can still be on disk, for example if only its
    /// last `fsync` failed, so the next commit restores these rows first.
    undo: UndoRows,
    /// Dropped with the thread.
    _alive: watch::Sender<()>,
}

impl WriterThread {
    fn run(mut self, queue: &Receiver<Request>) {
        let mut next_flush = Instant::now() + FLUSH_INTERVAL;
        loop {
            let first = match queue.recv_timeout(next_flush.saturating_duration_since(Instant::now())) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let flush = Instant::now() >= next_flush;
            let requests = first.into_iter().chain(queue.try_iter().take(MAX_QUEUED_REQUESTS));
            self.handle(requests.collect(), flush);
            if flush {
                next_flush = Instant::now() + FLUSH_INTERVAL;
            }
        }
    }

    fn handle(&mut self, mut requests: Vec<Request>, flush: bool) {
        lock(&self.health).commit_start = Some(Instant::now());
        let flush = flush || requests.iter().any(|request| request.flush);
        let changes = requests.iter_mut().map(|request| request.change.take()).collect();
        let result = self.commit(changes, flush);
        self.record_result(result.as_ref().err());
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

    /// Commits the changes, and the counters too if `flush` is set. Returns the result of each change; an error is that
    /// of the transaction, or that the file was removed or replaced. After a failure it reopens the file and commits even if
    /// there is nothing to save, to detect when the file is writable again.
    fn commit(&mut self, changes: Vec<Option<Change>>, flush: bool) -> Result<Vec<Result<bool>>, String> {
        self.file.check_path().map_err(|error| error.to_string())?;
        let failed = lock(&self.health).failure.is_some();
        if failed {
            self.file.reopen().map_err(|error| error.to_string())?;
        }
        let (mut state, mut batch) = (lock(&self.state), Batch::default());
        let add = |change: Option<Change>| change.map_or(Ok(true), |change| batch.add(&state, change));
        let results = changes.into_iter().map(add).collect();
        // Under the same lock, because the rows of changes overwrite those of charges: a pause after the comparison of its
        // record is left to the next commit.
        let unsaved = state.take_unsaved(flush || failed);
        drop(state);
        let is_idle = unsaved.rows.is_empty() && batch.rows.is_empty() && !failed;
        let rows = unsaved.rows.iter().chain(&batch.rows);
        let result = if is_idle { Ok(()) } else { self.file.write(&mut self.undo, rows) };
        let mut state = lock(&self.state);
        match result {
            Ok(()) => {
                state.saved(unsaved);
                state.apply(batch);
            }
            Err(error) => {
                state.put_back(unsaved);
                return Err(error.to_string());
            }
        }
        Ok(results)
    }

    fn record_result(&self, error: Option<&String>) {
        let mut health = lock(&self.health);
        health.commit_start = None;
        match (error, health.failure.is_some()) {
            (Some(error), false) => {
                tracing::error!(%error, "can't write the store file; charges and changes fail until it can be written");
            }
            (None, true) => tracing::info!("the store file is writable again"),
            _ => {}
        }
        health.failure = error.cloned();
    }
}

impl Drop for WriterThread {
    /// Without its writer the store is unavailable, so that no charge is allowed that can't be saved.
    fn drop(&mut self) {
        lock(&self.health).failure = Some(THREAD_ENDED.to_owned());
    }
}

/// Locks a mutex even if an operation panicked while it held the lock: its request fails, later ones use the data as it
/// is.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
