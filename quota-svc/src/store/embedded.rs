//! The embedded store: state in memory, persisted to one `redb` file.
//!
//! A commit changes the memory when it is on disk; if it can't be written, it is rejected. A charge counts in memory
//! first: a pause is on disk before the response, counters within 500 ms and on close. While the file can't be written,
//! charges fail, because a restart would lose their counts. The store retries until it can be written again.

mod batch;
mod state;
mod store_file;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use async_trait::async_trait;
use futures_util::FutureExt;
use quota_api::Limits;
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use state::{State, due};
pub use store_file::OpenError;
use store_file::StoreFile;
use writer::{Writer, lock};

use super::{AccountIds, Confirmation, Result, Store, StoreError};
use crate::domain::change::Change;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::loaded::{Loaded, Target};
use crate::domain::notice::Announcement;
use crate::domain::time::Clock;
use crate::domain::verdict::{ChargeGroup, GroupOutcome};

pub struct EmbeddedStore {
    state: Arc<Mutex<State>>,
    file: Arc<StoreFile>,
    writer: Writer,
    limits: Limits,
    clock: Clock,
}

impl EmbeddedStore {
    /// Opens or creates the file and loads it into memory.
    pub fn open(path: &Path, limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        Self::start(StoreFile::open(path)?, limits, clock)
    }

    /// A store without a file, for tests.
    pub fn in_memory(limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        Self::with_backend(InMemoryBackend::new, limits, clock)
    }

    /// A store on another backend than a file. `backend` is called again whenever the store reopens itself.
    pub fn with_backend<B: StorageBackend>(
        backend: impl Fn() -> B + Send + Sync + 'static,
        limits: Limits,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        Self::start(StoreFile::with_backend(backend)?, limits, clock)
    }

    fn start(file: StoreFile, limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        let file = Arc::new(file);
        let state = Arc::new(Mutex::new(State::load(&file)?));
        let writer = Writer::start(file.clone(), state.clone()).map_err(OpenError::WriterThread)?;
        Ok(Self { state, file, writer, limits, clock })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn charge(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        if self.writer.failure().is_some() {
            return vec![GroupOutcome::Unavailable; groups.len()];
        }
        let outcomes: Vec<_> = {
            let mut state = self.state();
            let now = self.clock.now();
            groups.iter().map(|group| state.charge(group, now, &self.limits)).collect()
        };
        let is_pause =
            |outcome: &_| matches!(outcome, GroupOutcome::Counted(counts) if counts.burst_exceeded);
        // A pause is on disk before the response. If it can't be saved now, it stays in memory until it is.
        if outcomes.iter().any(is_pause)
            && let Err(error) = self.writer.save_pauses().await
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
        let is_written = self.writer.commit(change.clone(), deadline).await?;
        // It is on disk already.
        Ok(is_written.then(|| std::future::ready(Ok(())).boxed()))
    }

    async fn events(&self, key: KeyId) -> Result<Vec<String>> {
        self.file.events(key).map_err(|error| {
            self.writer.report_failure(error.to_string());
            StoreError::Unavailable(error.into())
        })
    }

    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<AccountIds> {
        self.state().accounts(cursor, limit)
    }

    async fn announcements(&self, limit: usize) -> Result<(Vec<Announcement>, u64)> {
        self.writer.save_pauses().await?;
        let mut state = self.state();
        let dropped = std::mem::take(&mut state.dropped_announcements);
        Ok((state.announcements.iter().take(limit).copied().collect(), dropped))
    }

    async fn due_accounts(&self, now: i64, limit: usize) -> Result<Vec<AccountId>> {
        Ok(due(&self.state().due_accounts, now, limit))
    }

    async fn expiring_keys(&self, now: i64, limit: usize) -> Result<Vec<KeyId>> {
        Ok(due(&self.state().expiring_keys, now, limit))
    }

    async fn overdue_ms(&self) -> Result<i64> {
        Ok(self.state().overdue_ms(self.clock.now()))
    }

    async fn now(&self) -> Result<i64> {
        Ok(self.clock.now())
    }

    fn unavailable_reason(&self) -> Option<String> {
        self.writer.failure()
    }

    async fn failed(&self) {
        self.writer.thread_ended().await;
    }

    async fn close(&self) {
        if let Err(error) = self.writer.save_all().await {
            tracing::error!(%error, "can't save the latest counters; they are lost");
        }
    }

    fn kind(&self) -> &'static str {
        "file"
    }

    async fn demo_used(&self) -> Result<u32> {
        Ok(self.state().demo_used(self.clock.now()))
    }
}

#[cfg(test)]
mod tests;
