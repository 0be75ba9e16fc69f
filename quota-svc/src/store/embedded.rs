//! The embedded store: state in memory, persisted to one `redb` file.
//!
//! A commit changes the memory when it is on disk; if it can't be written, it is rejected. A charge counts in memory
//! first: a pause is on disk before the response, counters within 500 ms and on close. While the file can't be written,
//! charges fail, because a restart would lose their counts. The store retries until it can be written again.

mod state;
mod store_file;
mod writer;

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use async_trait::async_trait;
use futures_util::FutureExt;
use quota_api::Limits;
use redb::StorageBackend;
use state::{COMMIT_TIMEOUT, State};
pub use store_file::OpenError;
use store_file::{StoreFile, UndoRows, kind};
use tokio::sync::{oneshot, watch};
use writer::{Request, THREAD_ENDED, WriterThread};

use super::{AccountIds, Confirmation, Result, Store, StoreError, lock};
use crate::domain::change::Change;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::notice::Announcement;
use crate::domain::time::Clock;
use crate::domain::value::{Loaded, Target};
use crate::domain::verdict::{ChargeGroup, GroupOutcome};

pub struct EmbeddedStore {
    state: Arc<Mutex<State>>,
    file: Arc<StoreFile>,
    /// To the thread that writes the file. It ends when this is dropped.
    requests: Sender<Request>,
    /// Closed when the thread has ended.
    thread_ended: watch::Receiver<()>,
    limits: Limits,
    clock: Clock,
}

impl EmbeddedStore {
    /// Opens or creates the file and loads it into memory.
    pub fn open(path: &Path, limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        Self::start(StoreFile::open(path)?, limits, clock)
    }

    /// A store on another backend than a file, for tests. `backend` is called again whenever the store reopens itself.
    pub fn with_backend<B: StorageBackend>(
        backend: impl Fn() -> B + Send + Sync + 'static,
        limits: Limits,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        Self::start(StoreFile::with_backend(backend)?, limits, clock)
    }

    fn start(file: StoreFile, limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        let mut state = State::default();
        file.load(|key, value| state.put(key, Some(value)))?;
        let (file, state) = (Arc::new(file), Arc::new(Mutex::new(state)));
        let (requests, queue) = channel();
        let (alive, thread_ended) = watch::channel(());
        let thread =
            WriterThread { file: file.clone(), state: state.clone(), undo: UndoRows::new(), _alive: alive };
        let named = std::thread::Builder::new().name("store-writer".to_owned());
        named.spawn(move || thread.run(&queue)).map_err(OpenError::WriterThread)?;
        Ok(Self { state, file, requests, thread_ended, limits, clock })
    }

    /// Waits until the change, and everything that charges have changed before, is on disk. Returns `false` if the change
    /// conflicts with another one. After any error but `Unconfirmed`, nothing has changed; after `Unconfirmed`, the change may
    /// still be made.
    async fn write(&self, change: Option<Change>, deadline: Instant) -> Result<bool> {
        let (reply, receiver) = oneshot::channel();
        // If the thread has ended, the request is dropped and the receiver gets an error.
        let _ = self.requests.send(Request { change, reply });
        match tokio::time::timeout_at(deadline.into(), receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => {
                // The reply was dropped with the thread, perhaps before the thread could report its end.
                self.state().failure.get_or_insert_with(|| THREAD_ENDED.to_owned());
                Err(StoreError::Unavailable(THREAD_ENDED.into()))
            }
            Err(_) => Err(StoreError::Unconfirmed("the disk did not respond in time".into())),
        }
    }

    /// Waits until everything that charges have changed is on disk.
    async fn save(&self) -> Result<()> {
        self.write(None, Instant::now() + COMMIT_TIMEOUT).await.map(drop)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn charge(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        let outcomes: Vec<_> = {
            let mut state = self.state();
            if state.failure().is_some() {
                return vec![GroupOutcome::Unavailable; groups.len()];
            }
            let now = self.clock.now();
            groups.iter().map(|group| state.charge(group, now, &self.limits)).collect()
        };
        let is_pause =
            |outcome: &_| matches!(outcome, GroupOutcome::Counted(counts) if counts.burst_exceeded);
        // A pause is on disk before the response. If it can't be saved now, it stays in memory until it is.
        if outcomes.iter().any(is_pause)
            && let Err(error) = self.save().await
        {
            tracing::warn!(%error, "can't save the pause of a key yet; all charges of its batch fail");
            return vec![GroupOutcome::Unavailable; groups.len()];
        }
        outcomes
    }

    async fn load(&self, target: Target, others: &[KeyId], _deadline: Instant) -> Result<Option<Loaded>> {
        self.state().account(target, others, self.clock.now())
    }

    async fn commit(
        &self,
        change: &Change,
        _confirm: bool,
        deadline: Instant,
    ) -> Result<Option<Confirmation>> {
        if let Some(reason) = self.unavailable_reason() {
            return Err(StoreError::Unavailable(reason.into()));
        }
        let is_written = self.write(Some(change.clone()), deadline).await?;
        // It is on disk already.
        Ok(is_written.then(|| std::future::ready(Ok(())).boxed()))
    }

    async fn events(&self, key: KeyId) -> Result<Vec<String>> {
        self.file.events(key).map_err(|error| {
            self.state().failure.get_or_insert_with(|| error.to_string());
            StoreError::Unavailable(error.into())
        })
    }

    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<AccountIds> {
        self.state().accounts(cursor, limit)
    }

    async fn announcements(&self, limit: usize) -> Result<(Vec<Announcement>, u64)> {
        self.save().await?;
        let mut state = self.state();
        let dropped = std::mem::take(&mut state.dropped_announcements);
        Ok((state.announcements.iter().take(limit).copied().collect(), dropped))
    }

    async fn due_accounts(&self, now: i64, limit: usize) -> Result<Vec<AccountId>> {
        Ok(self.state().due(kind::NOTICE_DUE, now, limit, AccountId))
    }

    async fn expiring_keys(&self, now: i64, limit: usize) -> Result<Vec<KeyId>> {
        Ok(self.state().due(kind::EXPIRY_NOTICE, now, limit, KeyId))
    }

    async fn overdue_ms(&self) -> Result<i64> {
        Ok(self.state().overdue_ms(self.clock.now()))
    }

    async fn now(&self) -> Result<i64> {
        Ok(self.clock.now())
    }

    fn unavailable_reason(&self) -> Option<String> {
        self.state().failure()
    }

    async fn failed(&self) {
        let mut alive = self.thread_ended.clone();
        while alive.changed().await.is_ok() {}
    }

    async fn close(&self) {
        if let Err(error) = self.save().await {
            tracing::error!(%error, "can't save the latest counters; they are lost");
        }
    }

    fn kind(&self) -> &'static str {
        "file"
    }
}

#[cfg(test)]
mod tests;
