//! Limits the memory of unsent responses: those that the kernel has not completely accepted yet, because their clients
//! do not read them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::connection_state::ConnectionState;

/// Maximum total size of the unsent responses of one port. May be exceeded by a response that is the only unsent one.
const PORT_LIMIT: usize = 32 << 20;

/// The same for one connection.
const CONNECTION_LIMIT: usize = 16 << 20;

/// What a response takes in addition to its body: headers, the state of its stream, buffers.
const RESPONSE_OVERHEAD: usize = 2 << 10;

/// The total size of the unsent responses of a port.
#[derive(Debug, Default)]
pub(super) struct UnsentBudget {
    used: AtomicUsize,
}

/// Which limit a response exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnsentLimit {
    Connection,
    Port,
}

impl UnsentBudget {
    /// Counts a response until the reservation is dropped. Fails if it would exceed a limit.
    pub(super) fn reserve(
        self: &Arc<Self>,
        connection: &Arc<ConnectionState>,
        body_bytes: usize,
    ) -> Result<UnsentReservation, UnsentLimit> {
        let bytes = body_bytes.saturating_add(RESPONSE_OVERHEAD);
        if !try_add(&connection.unsent, bytes, CONNECTION_LIMIT) {
            return Err(UnsentLimit::Connection);
        }
        if !try_add(&self.used, bytes, PORT_LIMIT) {
            connection.unsent.fetch_sub(bytes, Relaxed);
            return Err(UnsentLimit::Port);
        }
        Ok(UnsentReservation { budget: self.clone(), connection: connection.clone(), bytes })
    }
}

/// Adds `bytes`, unless that exceeds the limit. If nothing else is counted, any size is allowed.
fn try_add(counter: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    let before = counter.fetch_add(bytes, Relaxed);
    let allowed = before == 0 || before.saturating_add(bytes) <= limit;
    if !allowed {
        counter.fetch_sub(bytes, Relaxed);
    }
    allowed
}

/// The part of the budget that one response uses.
#[derive(Debug)]
pub(super) struct UnsentReservation {
    budget: Arc<UnsentBudget>,
    connection: Arc<ConnectionState>,
    bytes: usize,
}

impl Drop for UnsentReservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Relaxed);
        self.connection.unsent.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn connection() -> Arc<ConnectionState> {
        Arc::new(ConnectionState::new(Duration::from_secs(30)))
    }

    #[test]
    fn connection_limit_allows_one_large_response() {
        let (budget, connection) = (Arc::<UnsentBudget>::default(), connection());
        let large = budget.reserve(&connection, 20 << 20).expect("nothing else is unsent");
        assert_eq!(budget.reserve(&connection, 1).err(), Some(UnsentLimit::Connection));
        drop(large);
        assert!(budget.reserve(&connection, 1).is_ok());
    }

    #[test]
    fn port_limit_counts_all_connections_and_frees_what_is_sent() {
        let budget = Arc::<UnsentBudget>::default();
        let held: Vec<_> =
            (0..15).map(|_| budget.reserve(&connection(), 2 << 20).expect("below the limit")).collect();
        // 16 times 2 MiB would be the limit, without the overhead of each response.
        let late = connection();
        assert_eq!(budget.reserve(&late, 2 << 20).err(), Some(UnsentLimit::Port));
        assert_eq!(late.unsent.load(Relaxed), 0, "a rejected response counts nowhere");
        drop(held);
        assert_eq!(budget.used.load(Relaxed), 0);
    }
}
