//! The embedded store: state in memory, persisted to one `redb` file.
//!
//! Memory is authoritative. Accounts, keys and every change of a key's state are committed to the file before the
//! response; counters are flushed every 500 ms and on close. While the file can't be written, charges fail, because a
//! restart would lose their counts.

mod state;
mod store_file;
mod store_impl;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redb::backends::InMemoryBackend;
use state::State;
pub use store_file::OpenError;
use store_file::StoreFile;
use tokio::sync::oneshot;
use writer::{RowWrite, Writer};

use super::StoreError;
use crate::domain::limits::Limits;
use crate::domain::time::Clock;
use crate::domain::verdict::{ChargeGroup, GroupOutcome};

const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

pub struct EmbeddedStore {
    state: Arc<Mutex<State>>,
    file: Arc<StoreFile>,
    writer: Writer,
    limits: Limits,
    clock: Clock,
    flush_task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl EmbeddedStore {
    /// Opens or creates the file and loads it into memory.
    pub fn open(path: &Path, limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        Self::start(StoreFile::open(path)?, limits, clock)
    }

    /// A store without a file, for tests and for generating the OpenAPI document.
    pub fn in_memory(limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        Self::start(StoreFile::with_backend(InMemoryBackend::new())?, limits, clock)
    }

    fn start(file: StoreFile, limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        let file = Arc::new(file);
        let state = Arc::new(Mutex::new(file.load()?));
        let writer = Writer::start(file.clone());
        let flush_task = Some(tokio::spawn(flush_periodically(state.clone(), writer.clone())));
        Ok(Self { state, file, writer, limits, clock, flush_task: Mutex::new(flush_task) })
    }

    /// Flushes the counters. The store must not be used afterward.
    pub async fn close(&self) {
        let flush_task = self.flush_task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(flush_task) = flush_task {
            flush_task.abort();
        }
        flush(&self.state, &self.writer).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // If an operation panicked while it held the lock, its request fails; later requests use the state as it is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and waits until the file is written. The rows are queued while the state is locked, so that
    /// the file receives changes in the order in which they were made.
    async fn change<T>(
        &self,
        change: impl FnOnce(&mut State, i64) -> Result<(T, Vec<RowWrite>), StoreError>,
    ) -> Result<T, StoreError> {
        let (result, commit) = {
            let mut state = self.state();
            let (result, writes) = change(&mut state, self.clock.now())?;
            (result, self.writer.write(writes))
        };
        wait_for_commit(commit).await?;
        Ok(result)
    }

    async fn charge_batch(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        if self.writer.failure().is_some() {
            return vec![GroupOutcome::Unavailable; groups.len()];
        }
        let (outcomes, commit) = {
            let mut state = self.state();
            let now = self.clock.now();
            let mut writes = Vec::new();
            let outcomes: Vec<_> =
                groups.iter().map(|group| state.charge(group, now, &self.limits, &mut writes)).collect();
            // A pause changes a key's state, so it is committed before the response.
            let commit = (!writes.is_empty()).then(|| self.writer.write(writes));
            (outcomes, commit)
        };
        if let Some(commit) = commit
            && let Err(error) = wait_for_commit(commit).await
        {
            tracing::warn!(%error, "can't save the pause of a key; all charges of its batch fail");
            return vec![GroupOutcome::Unavailable; groups.len()];
        }
        outcomes
    }
}

async fn wait_for_commit(commit: oneshot::Receiver<Result<(), String>>) -> Result<(), StoreError> {
    match commit.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(StoreError::Unconfirmed(error)),
        Err(_) => Err(StoreError::Unavailable("the store is closed".to_owned())),
    }
}

async fn flush_periodically(state: Arc<Mutex<State>>, writer: Writer) {
    let mut interval = tokio::time::interval(FLUSH_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        flush(&state, &writer).await;
    }
}

/// Writes the counters that have changed. If the write fails, they are marked as changed again. After a failed
/// commit it writes even without changes, to detect when the file is writable again.
async fn flush(state: &Mutex<State>, writer: &Writer) {
    let (commit, ids) = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (writes, ids) = state.take_dirty();
        if writes.is_empty() && writer.failure().is_none() {
            return;
        }
        (writer.write(writes), ids)
    };
    if wait_for_commit(commit).await.is_err() {
        state.lock().unwrap_or_else(PoisonError::into_inner).mark_dirty(ids);
    }
}
