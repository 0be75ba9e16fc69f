//! The thread that writes the store file. It is the only one that changes accounts and keys.
//!
//! It stages all queued changes on a draft, commits their rows in one transaction, and only then changes the state in
//! memory. If the commit fails, the draft is dropped and the changes fail. Charges change the memory first:
//! their counters and pauses are saved by the next commit that succeeds.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::state::{Draft, State};
use super::store_file::{StoreFile, UndoRows};
use crate::domain::time::Clock;
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

/// Called with the result of the commit. The error is the reason for the failure.
type Reply = Box<dyn FnOnce(Result<(), &str>) + Send>;

/// Stages a change and returns what to call after the commit.
type Stage = Box<dyn FnOnce(&mut Draft<'_>, i64) -> Reply + Send>;

struct Request {
    stage: Stage,
    save: Save,
}

/// Which effects of charges a commit saves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Save {
    /// Only pauses: the minimum.
    Pauses,
    /// Pauses and counters.
    All,
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
    pub fn start(file: Arc<StoreFile>, state: Arc<Mutex<State>>, clock: Clock) -> std::io::Result<Self> {
        let (requests, queue) = channel();
        let health = Arc::<Mutex<Health>>::default();
        let (alive, thread_ended) = watch::channel(());
        let thread = WriterThread {
            file,
            state,
            clock,
            health: health.clone(),
            undo: UndoRows::default(),
            _alive: alive,
        };
        std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || thread.run(&queue))?;
        Ok(Self { requests, health, thread_ended })
    }

    /// Makes a change that is on disk when this returns. After any error but `Unconfirmed`, nothing has changed; after
    /// `Unconfirmed`, the change may still be made.
    pub async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Draft<'_>, i64) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match self.failure() {
            Some(reason) => Err(StoreError::Unavailable(reason.into())),
            None => self.commit(change, Save::Pauses).await,
        }
    }

    /// Waits until what charges have changed is on disk.
    pub async fn save(&self, save: Save) -> Result<()> {
        self.commit(|_, _| Ok(()), save).await
    }

    async fn commit<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Draft<'_>, i64) -> Result<T> + Send + 'static,
        save: Save,
    ) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        let stage = move |draft: &mut Draft<'_>, now: i64| -> Reply {
            let result = change(draft, now);
            Box::new(move |commit| {
                // If the commit failed, its error replaces that of the change, which may have failed only because of
                // another change that is now undone. The send fails if the request was canceled.
                let _ = sender.send(commit.map_err(str::to_owned).map(|()| result));
            })
        };
        // If the thread has ended, the request is dropped and the receiver gets an error.
        let _ = self.requests.send(Request { stage: Box::new(stage), save });
        match tokio::time::timeout(COMMIT_TIMEOUT, receiver).await {
            Ok(Ok(Ok(result))) => result,
            Ok(Ok(Err(reason))) => Err(StoreError::Unavailable(reason.into())),
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

    /// Records why the file can't be used: a failed read, or the end of the thread. The next commit then reopens the file, because redb fails every call after an I/O error.
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
    clock: Clock,
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

    fn handle(&mut self, requests: Vec<Request>, flush: bool) {
        lock(&self.health).commit_start = Some(Instant::now());
        let (replies, result) = self.commit(requests, flush);
        self.record_result(result.as_ref().err());
        for reply in replies {
            reply(result.as_ref().map(|_| ()).map_err(String::as_str));
        }
    }

    /// Commits the requests, and the counters too if `flush` is set. After a failure it reopens the file and commits
    /// even if there is nothing to save, to detect when the file is writable again.
    fn commit(&mut self, requests: Vec<Request>, flush: bool) -> (Vec<Reply>, Result<(), String>) {
        let failed = lock(&self.health).failure.is_some();
        let reopened = if failed { self.file.reopen().map_err(|error| error.to_string()) } else { Ok(()) };
        let flush = flush || failed || requests.iter().any(|request| request.save == Save::All);

        let mut state = lock(&self.state);
        // One after another, so that each change sees those before it.
        let (mut draft, now) = (Draft::new(&state), self.clock.now());
        let replies = requests.into_iter().map(|request| (request.stage)(&mut draft, now)).collect();
        let staged = draft.staged;
        if let Err(error) = reopened {
            return (replies, Err(error));
        }
        let unsaved = state.take_unsaved(flush);
        let rows = [state.unsaved_rows(&unsaved), staged.rows()].concat();
        drop(state);

        let result = if rows.is_empty() && !failed { Ok(()) } else { self.file.write(&mut self.undo, &rows) };
        let mut state = lock(&self.state);
        match &result {
            Ok(()) => state.apply(staged),
            Err(_) => state.put_back(unsaved),
        }
        drop(state);
        (replies, result.map_err(|error| error.to_string()))
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
