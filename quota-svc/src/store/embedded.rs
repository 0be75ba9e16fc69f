//! The store without a server: state in memory, made durable in one `redb` file.
//!
//! Memory is the truth and the file follows. Accounts, keys and every change of a key's state are committed before
//! they are answered; counters are flushed each second and at the end. If the file can't be written, charges are
//! refused until it can: a restart must not forget what was admitted.

mod file;
mod state;
mod store_impl;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use file::File;
pub use file::OpenError;
use redb::backends::InMemoryBackend;
use state::State;
use tokio::sync::oneshot;
use writer::{Op, Writer};

use super::StoreError;
use crate::domain::limits::Limits;
use crate::domain::time::Clock;
use crate::domain::verdict::{Entry, Judged};

const FLUSH_EVERY: Duration = Duration::from_millis(500);

/// Accounts, keys and counters in this process and its file.
pub struct EmbeddedStore {
    state: Arc<Mutex<State>>,
    file: Arc<File>,
    writer: Writer,
    limits: Limits,
    clock: Clock,
    flusher: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl EmbeddedStore {
    /// Opens or creates the file and reads it into memory.
    pub fn open(path: &Path, limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        Self::start(File::open(path)?, limits, clock)
    }

    /// A store that forgets everything, for tests.
    pub fn in_memory(limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        Self::start(File::with_backend(InMemoryBackend::new())?, limits, clock)
    }

    fn start(file: File, limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        let file = Arc::new(file);
        let state = Arc::new(Mutex::new(file.load()?));
        let writer = Writer::start(file.clone());
        let flusher = Some(tokio::spawn(keep_flushing(state.clone(), writer.clone())));
        Ok(Self { state, file, writer, limits, clock, flusher: Mutex::new(flusher) })
    }

    /// Writes what is not yet written. Nothing may be asked of the store afterwards.
    pub async fn close(&self) {
        let flusher = self.flusher.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(flusher) = flusher {
            flusher.abort();
        }
        flush(&self.state, &self.writer).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held was caught and answered; each step leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and answers when the file has it too. What the change wants written is handed over while
    /// the state is locked, so that the file sees changes in the order in which they were made.
    async fn change<T>(
        &self,
        change: impl FnOnce(&mut State, i64) -> Result<(T, Vec<Op>), StoreError>,
    ) -> Result<T, StoreError> {
        let (result, written) = {
            let mut state = self.state();
            let (result, ops) = change(&mut state, self.clock.now())?;
            (result, self.writer.write(ops))
        };
        committed(written).await?;
        Ok(result)
    }

    async fn charge_batch(&self, entries: &[Entry]) -> Vec<Judged> {
        if self.writer.failure().is_some() {
            return vec![Judged::Unavailable; entries.len()];
        }
        let (judged, written) = {
            let mut state = self.state();
            let now = self.clock.now();
            let mut ops = Vec::new();
            let judged: Vec<_> =
                entries.iter().map(|entry| state.charge(entry, now, &self.limits, &mut ops)).collect();
            // A pause is a change of state: it must be in the file before anybody hears of it.
            let written = (!ops.is_empty()).then(|| self.writer.write(ops));
            (judged, written)
        };
        if let Some(written) = written
            && let Err(error) = committed(written).await
        {
            tracing::warn!(%error, "a paused key could not be written");
            return vec![Judged::Unavailable; entries.len()];
        }
        judged
    }
}

async fn committed(written: oneshot::Receiver<Result<(), String>>) -> Result<(), StoreError> {
    match written.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(StoreError::Unconfirmed(error)),
        Err(_) => Err(StoreError::Away("the store is closed".to_owned())),
    }
}

async fn keep_flushing(state: Arc<Mutex<State>>, writer: Writer) {
    let mut tick = tokio::time::interval(FLUSH_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        flush(&state, &writer).await;
    }
}

/// Writes the counters that have changed. A failed write leaves them to be written again.
async fn flush(state: &Mutex<State>, writer: &Writer) {
    let (written, ids) = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (ops, ids) = state.take_dirty();
        if ops.is_empty() && writer.failure().is_none() {
            return;
        }
        (writer.write(ops), ids)
    };
    if committed(written).await.is_err() {
        state.lock().unwrap_or_else(PoisonError::into_inner).mark_dirty(ids);
    }
}
