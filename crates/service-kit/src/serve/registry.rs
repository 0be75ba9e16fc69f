//! The open connections of a port. Selects the one to evict and signals all of them at shutdown.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::connection_state::{ConnectionSignal, ConnectionState};

/// Minimum age for eviction: gives the first bytes of a new connection time to arrive.
const MIN_AGE: Duration = Duration::from_millis(20);

/// The open connections, ordered by arrival, oldest first.
#[derive(Debug, Default)]
pub(super) struct ConnectionRegistry {
    next_id: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<ConnectionState>>>,
}

impl ConnectionRegistry {
    /// Adds a connection. Dropping the registration removes it.
    pub(super) fn register(self: &Arc<Self>, state: Arc<ConnectionState>) -> Registration {
        let id = self.next_id.fetch_add(1, Relaxed);
        self.lock().insert(id, state);
        Registration { id, registry: self.clone() }
    }

    /// Evicts one connection: the oldest that has not sent a request yet; if there is none, the oldest idle one; and if
    /// there is none, the one whose client has been reading nothing of its response for the longest time.
    pub(super) fn evict_idle(&self) {
        let open = self.lock();
        let idle = || evictable(&open).filter(|state| !state.is_sending());
        let evicted = idle().find(|state| !state.has_served()).or_else(|| idle().next());
        if let Some(state) = evicted.or_else(|| most_stalled(evictable(&open))) {
            state.send_signal(ConnectionSignal::Evict);
        }
    }

    /// Evicts the connection whose client has been reading nothing of its responses for the longest time.
    pub(super) fn evict_stalled(&self) {
        let open = self.lock();
        if let Some(state) = most_stalled(evictable(&open).filter(|state| state.is_sending())) {
            state.send_signal(ConnectionSignal::Evict);
        }
    }

    pub(super) fn signal_all(&self, signal: ConnectionSignal) {
        self.lock().values().for_each(|state| state.send_signal(signal));
    }

    /// The number of open connections.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ConnectionState>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn evictable(open: &BTreeMap<u64, Arc<ConnectionState>>) -> impl Iterator<Item = &Arc<ConnectionState>> {
    open.values().filter(|state| state.is_evictable() && state.signal().is_none() && state.age() >= MIN_AGE)
}

fn most_stalled<'s>(
    connections: impl Iterator<Item = &'s Arc<ConnectionState>>,
) -> Option<&'s Arc<ConnectionState>> {
    connections.max_by_key(|state| state.since_progress())
}

/// Keeps a connection in the registry until dropped.
#[derive(Debug)]
pub(super) struct Registration {
    id: u64,
    registry: Arc<ConnectionRegistry>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.id);
    }
}
