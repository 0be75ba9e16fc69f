//! Open connections of a port, counted per client network. Selects the one to evict and signals all of them at shutdown.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use std::{cmp::Reverse, collections::HashMap};

use indexmap::IndexMap;
use tokio::{sync::Notify, time::Instant};

use crate::connection_state::{ConnectionSignal, ConnectionState, EvictionClass};

/// Above this many unsent bytes on all connections of a port, stalled connections are evicted.
const PORT_UNSENT_LIMIT: usize = 32 << 20;

/// Connections that are sampled for an eviction. If one network has a large share of them all, the sample almost
/// certainly contains it.
const CANDIDATES: usize = 64;

/// What the connections of a network, or of the whole port, use.
#[derive(Debug, Default)]
pub(crate) struct Load {
    connections: AtomicUsize,
    /// Requests being handled. Counted for the port only.
    pub(crate) handling: AtomicUsize,
    /// Bytes of responses that are not written to the socket yet.
    pub(crate) unsent: AtomicUsize,
}

impl Load {
    /// Whether this is the load of a port with too many unsent bytes.
    pub(crate) fn is_full(&self) -> bool {
        self.unsent.load(Relaxed) > PORT_UNSENT_LIMIT
    }
}

/// The limit that a port has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    Connections,
    Handshakes,
    UnsentBytes,
}

/// The open connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectionRegistry {
    connections: Mutex<Connections>,
    pub(crate) port: Arc<Load>,
    handshakes: AtomicUsize,
    /// Notified when a connection closes. Only one task may wait.
    pub(crate) closed: Notify,
    random: RandomState,
}

#[derive(Debug, Default)]
struct Connections {
    /// By address in memory. A map with positions, so that a random one can be selected.
    open: IndexMap<usize, Arc<ConnectionState>>,
    networks: HashMap<IpAddr, Arc<Load>>,
}

impl ConnectionRegistry {
    /// Adds a connection. Dropping the registration removes it.
    pub(crate) fn register(self: &Arc<Self>, state: Arc<ConnectionState>) -> Registration {
        self.lock().open.insert(Arc::as_ptr(&state).addr(), state.clone());
        self.port.connections.fetch_add(1, Relaxed);
        self.handshakes.fetch_add(usize::from(state.lock().established.is_none()), Relaxed);
        Registration { registry: self.clone(), state, network: None }
    }

    /// Evicts a connection to relieve the pressure, if a candidate may be evicted.
    ///
    /// Compares random candidates: by the magnitude of what their network uses, so that no client in a smaller network pays
    /// for it, not even one that has just connected; then by class, what the network uses, and the time without progress.
    /// A busy one is evicted only for a `newcomer` of another network, if its own has more than half of all connections.
    pub(crate) fn evict(&self, pressure: Pressure, newcomer: Option<IpAddr>) {
        let connections = self.lock();
        let newcomer = newcomer.map(|address| connections.networks.get(&network_of(address)));
        let is_foreign =
            |load: &Arc<Load>| newcomer.is_some_and(|own| own.is_none_or(|own| !Arc::ptr_eq(own, load)));
        let (count, seed) = (connections.open.len(), self.random.hash_one(Instant::now()));
        let position = |n: usize| match count {
            ..=CANDIDATES => n,
            _ => (self.random.hash_one((seed, n)) % count as u64) as usize,
        };
        let candidates = (0..count.min(CANDIDATES)).map(|n| &connections.open[position(n)]);
        let rank = |state: &Arc<ConnectionState>| {
            let (class, idle) = state.eviction_class();
            let network = state.network.get().map_or(0, |load| pressure.usage_of(load));
            let may_be_evicted = match pressure {
                Pressure::Connections => {
                    let dominates = network > self.len() / 2 && state.network.get().is_some_and(is_foreign);
                    class != EvictionClass::Busy || dominates
                }
                Pressure::Handshakes => state.lock().established.is_none(),
                Pressure::UnsentBytes => class == EvictionClass::Stalled && state.lock().unsent > 0,
            };
            may_be_evicted.then_some((network.checked_ilog2(), Reverse(class), network, idle))
        };
        let is_closing = |signal| matches!(signal, Some(ConnectionSignal::Evict | ConnectionSignal::Abort));
        let candidates = candidates.filter(|state| !is_closing(state.lock().signal));
        let ranked = candidates.filter_map(|state| Some((rank(state)?, state)));
        if let Some(((_, class, ..), state)) = ranked.max_by_key(|(rank, _)| *rank) {
            // A draining connection does not expect `Evict`, and a busy one cancels it.
            let is_draining = state.lock().signal.is_some();
            let must_abort = is_draining || class == Reverse(EvictionClass::Busy);
            state.send_signal(if must_abort { ConnectionSignal::Abort } else { ConnectionSignal::Evict });
        }
    }

    pub(crate) fn signal_all(&self, signal: ConnectionSignal) {
        self.lock().open.values().for_each(|state| state.send_signal(signal));
    }

    /// The number of open connections.
    pub(crate) fn len(&self) -> usize {
        self.port.connections.load(Relaxed)
    }

    /// How many of them are in their handshake.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pressure {
    /// What counts toward this limit.
    fn usage_of(self, load: &Load) -> usize {
        match self {
            Self::UnsentBytes => load.unsent.load(Relaxed),
            Self::Connections | Self::Handshakes => load.connections.load(Relaxed),
        }
    }
}

/// The network that an address counts for: the address itself, or the /48 of an IPv6 address. The /64 needs no count of
/// its own, because it never has more connections than its /48.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 80)).into(),
    }
}

/// Keeps a connection in the registry until dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<ConnectionRegistry>,
    state: Arc<ConnectionState>,
    network: Option<IpAddr>,
}

impl Registration {
    /// Counts the connection for the network of its client.
    pub(crate) fn set_client(&mut self, address: IpAddr) {
        let network = network_of(address);
        let mut connections = self.registry.lock();
        let load = connections.networks.entry(network).or_default();
        load.connections.fetch_add(1, Relaxed);
        let _ = self.state.network.set(load.clone());
        self.network = Some(network);
    }

    pub(crate) fn end_handshake(&self) {
        self.registry.handshakes.fetch_sub(usize::from(self.state.lock().established.is_none()), Relaxed);
        self.state.lock().established = Some(Instant::now());
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end_handshake();
        let mut connections = self.registry.lock();
        connections.open.swap_remove(&Arc::as_ptr(&self.state).addr());
        if let Some((network, load)) = self.network.zip(self.state.network.get())
            && load.connections.fetch_sub(1, Relaxed) == 1
        {
            connections.networks.remove(&network);
        }
        self.registry.port.connections.fetch_sub(1, Relaxed);
        self.registry.closed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ServeArgs;

    struct Client {
        state: Arc<ConnectionState>,
        _registration: Registration,
    }

    impl Client {
        fn is_evicted(&self) -> bool {
            self.state.lock().signal.is_some()
        }
    }

    /// Opens a connection. With `is_idle`, it has had a request.
    async fn open(registry: &Arc<ConnectionRegistry>, address: &str, is_idle: bool) -> Client {
        let state = Arc::new(ConnectionState::new(registry.port.clone(), ServeArgs::default(), false));
        let mut registration = registry.register(state.clone());
        registration.set_client(address.parse().expect("an address"));
        if is_idle {
            drop(state.begin_request(true).await);
        }
        Client { state, _registration: registration }
    }

    #[tokio::test]
    async fn larger_network_is_evicted_before_a_client_that_has_just_connected() {
        let registry = Arc::<ConnectionRegistry>::default();
        let mut greedy = Vec::new();
        for host in 0..60 {
            greedy.push(open(&registry, &format!("2001:db8:1:{host}::1"), true).await);
        }
        let honest = open(&registry, "2001:db8:2::1", false).await;
        for _ in 0..56 {
            registry.evict(Pressure::Connections, None);
        }
        assert_eq!(greedy.iter().filter(|client| client.is_evicted()).count(), 56, "the /48 is one network");
        assert!(!honest.is_evicted());
    }

    #[tokio::test]
    async fn busy_connection_is_evicted_only_if_its_network_has_more_than_half() {
        let registry = Arc::<ConnectionRegistry>::default();
        let (mut clients, mut requests) = (Vec::new(), Vec::new());
        for address in ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"] {
            clients.push(open(&registry, address, false).await);
            requests.push(clients[clients.len() - 1].state.begin_request(true).await);
        }
        registry.evict(Pressure::Connections, Some([192, 0, 2, 9].into()));
        assert!(!clients.iter().any(Client::is_evicted), "3 of 6");
        drop(clients.pop());
        registry.evict(Pressure::Connections, Some([192, 0, 2, 1].into()));
        assert!(!clients.iter().any(Client::is_evicted), "the newcomer is of the same network");
        registry.evict(Pressure::Connections, Some([192, 0, 2, 9].into()));
        let evicted: Vec<_> = clients.iter().map(|client| client.state.lock().signal).collect();
        assert_eq!(evicted.iter().filter(|signal| **signal == Some(ConnectionSignal::Abort)).count(), 1);
        assert_eq!(evicted[3..], [None, None], "only the network with 3 of 5");
    }

    #[tokio::test]
    async fn among_equal_networks_connections_without_a_request_go_first() {
        let registry = Arc::<ConnectionRegistry>::default();
        let mut idle = Vec::new();
        for host in 0..40 {
            idle.push(open(&registry, &format!("192.0.2.{host}"), true).await);
        }
        let silent = open(&registry, "198.51.100.1", false).await;
        registry.evict(Pressure::Connections, None);
        assert!(silent.is_evicted() && !idle.iter().any(Client::is_evicted));
        registry.evict(Pressure::UnsentBytes, None);
        assert!(!idle.iter().any(Client::is_evicted), "none has unsent bytes");
    }

    #[tokio::test]
    async fn closed_connections_leave_nothing_behind() {
        let registry = Arc::<ConnectionRegistry>::default();
        let (first, second) =
            (open(&registry, "192.0.2.1", true).await, open(&registry, "192.0.2.1", true).await);
        drop(first);
        assert_eq!((registry.len(), registry.lock().networks.len()), (1, 1));
        drop(second);
        let connections = registry.lock();
        assert!(connections.open.is_empty() && connections.networks.is_empty());
        assert_eq!((registry.len(), registry.handshakes()), (0, 0));
    }
}
