//! The embedded store: state in memory, persisted to one `redb` file.
//!
//! A change of an account or key is made in memory when it is on disk; if it can't be written, it is rejected. A charge
//! counts in memory first: a pause is on disk before the response, counters within 500 ms and on close. While the file
//! can't be written, charges fail, because a restart would lose their counts. The store retries until it can be
//! written again.

mod state;
mod store_file;
mod store_impl;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use state::{Draft, State};
pub use store_file::OpenError;
use store_file::StoreFile;
use writer::{Writer, lock};

use super::StoreError;
use crate::domain::limits::Limits;
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

    /// A store without a file, for tests and for generating the OpenAPI document.
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
        let writer =
            Writer::start(file.clone(), state.clone(), clock.clone()).map_err(OpenError::WriterThread)?;
        Ok(Self { state, file, writer, limits, clock })
    }

    /// Saves the counters. The store must not be used afterward.
    pub async fn close(&self) {
        if let Err(error) = self.writer.save_all().await {
            tracing::error!(%error, "can't save the latest counters; they are lost");
        }
    }

    /// Waits until the store has failed for good: its writer thread has panicked. Only a restart helps.
    pub async fn failed(&self) {
        self.writer.thread_ended().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Makes a change that is on disk when this returns. If it fails, nothing has changed.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Draft<'_>, i64) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.writer.failure() {
            Some(reason) => Err(StoreError::Unavailable(reason)),
            None => self.writer.change(change).await,
        }
    }

    async fn charge_batch(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        if self.writer.failure().is_some() {
            return vec![GroupOutcome::Unavailable; groups.len()];
        }
        let outcomes: Vec<_> = {
            let mut state = self.state();
            let now = self.clock.now();
            groups.iter().map(|group| state.charge(group, now, &self.limits)).collect()
        };
        // A pause is on disk before the response. If it can't be saved now, it stays in memory until it is.
        if outcomes.iter().any(is_pause)
            && let Err(error) = self.writer.save_pauses().await
        {
            tracing::warn!(%error, "can't save the pause of a key yet; all charges of its batch fail");
            return vec![GroupOutcome::Unavailable; groups.len()];
        }
        outcomes
    }
}

fn is_pause(outcome: &GroupOutcome) -> bool {
    matches!(outcome, GroupOutcome::Counted(counts) if counts.burst_exceeded)
}
