//! Open connections of a port, by client network. Closes one to make room at a limit, and signals all at shutdown.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::time::Duration;

use base::log_throttle::LogThrottle;
use indexmap::IndexMap;
use tokio::{sync::Notify, time::Instant};

use crate::args::ServeArgs;
use crate::connection_state::{ConnectionSignal, ConnectionState, ConnectionUse, Load, Network, network_of};
use crate::limits::{MAX_COST, NETWORK_SHARE, max_handshakes};

/// Connections that are compared to find one to evict. If one network has a large share of them all, the sample almost
/// certainly contains it.
const SAMPLE: usize = 64;

/// The same for a network at its share, of whose connections few may stand still.
const NETWORK_SAMPLE: usize = 256;

/// Usage up to which a network is small: in connections or handshakes, and in cost. If even the largest network is, only
/// idle connections are evicted.
const SMALL_NETWORK: usize = 8;
const SMALL_NETWORK_COST: usize = 512 * 1024;

/// Maximum evicted connections whose tasks have not ended.
const MAX_LINGERING: usize = 256;

/// Minimum time between two log lines about limits.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// How to treat a new connection at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Open it if there is room or room can be made.
    Normal,
    /// The same, but the port counts it already: its client is known from a PROXY header only now.
    Counted,
    /// More connections arrive than can be accepted. A network at its share gets no room, because to evict a connection takes
    /// longer than to refuse one.
    Flooded,
    /// Open it regardless of limits, at the shutdown.
    Always,
}

/// What there is for a new connection.
enum Room {
    Free,
    /// There is room without this connection.
    Evict(Arc<ConnectionState>),
    Full,
}

/// A resource with a limit per port and per network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    Connections,
    Handshakes,
    Cost,
}

base::names!(Resource: Connections => "connections", Handshakes => "handshakes", Cost => "cost");

impl Resource {
    /// How much of it a connection uses.
    fn used_by(self, state: &ConnectionState) -> usize {
        match self {
            Self::Connections => 1,
            Self::Handshakes => usize::from(state.is_in_handshake()),
            Self::Cost => state.counted_cost(),
        }
    }
}

/// The open connections.
#[derive(Debug)]
pub(crate) struct ConnectionRegistry {
    /// The port's name in the log.
    server: &'static str,
    max_connections: usize,
    connections: Mutex<Connections>,
    pub(crate) port: Arc<Load>,
    /// Notified when a connection closes. Only one task may wait.
    pub(crate) closed: Notify,
    /// The number of connections that were closed at each limit.
    closed_at: [AtomicU64; 3],
    logs: [LogThrottle; 3],
    random: RandomState,
}

#[derive(Debug)]
struct Connections {
    all: Group,
    networks: HashMap<IpAddr, Group>,
    /// The number of evicted connections whose tasks have not ended.
    lingering: usize,
}

/// The connections of a network, or all.
#[derive(Debug)]
struct Group {
    /// By address in memory. A map with positions, so that a random one can be selected.
    members: IndexMap<usize, Arc<ConnectionState>>,
    load: Arc<Load>,
}

impl Group {
    fn new(load: Arc<Load>) -> Self {
        Self { members: IndexMap::new(), load }
    }

    fn insert(&mut self, state: &Arc<ConnectionState>) {
        self.members.insert(Arc::as_ptr(state).addr(), state.clone());
    }

    fn remove(&mut self, state: &Arc<ConnectionState>) {
        self.members.swap_remove(&Arc::as_ptr(state).addr());
    }

    fn used(&self, resource: Resource) -> usize {
        match resource {
            Resource::Connections => self.members.len(),
            Resource::Handshakes => self.load.handshakes(),
            Resource::Cost => self.load.cost(),
        }
    }

    /// Random members, possibly repeated: this many, or all if there are no more.
    fn sample(&self, sample: usize, random: &RandomState) -> impl Iterator<Item = &Arc<ConnectionState>> {
        let (count, seed) = (self.members.len(), random.hash_one(Instant::now()));
        let sample = sample.min(count);
        let position = move |n| if sample == count { n } else { random.hash_one((seed, n)) as usize % count };
        (0..sample).map(move |n| &self.members[position(n)])
    }
}

impl ConnectionRegistry {
    pub(crate) fn new(server: &'static str, max_connections: usize) -> Self {
        let port = Arc::new(Load::new(MAX_COST));
        let all = Group::new(port.clone());
        Self {
            server,
            max_connections,
            connections: Mutex::new(Connections { all, networks: HashMap::new(), lingering: 0 }),
            port,
            closed: Notify::new(),
            closed_at: Default::default(),
            logs: [(); 3].map(|()| LogThrottle::every(LOG_INTERVAL)),
            random: RandomState::new(),
        }
    }

    /// Adds a connection, if there is room. Dropping the registration removes it. `client` is not known before a
    /// PROXY header, and trusted proxies have none.
    pub(crate) fn open(
        self: &Arc<Self>,
        args: &ServeArgs,
        has_handshake: bool,
        client: Option<IpAddr>,
        admission: Admission,
    ) -> Option<Registration> {
        let mut connections = self.lock();
        if !self.make_room(&mut connections, has_handshake, client, admission) {
            return None;
        }
        let state = Arc::new(ConnectionState::new(self.port.clone(), args.clone(), has_handshake));
        connections.all.insert(&state);
        state.count_in(&self.port);
        connections.join_network(&state, client);
        Some(Registration { registry: self.clone(), state })
    }

    /// Makes room for a new connection, if necessary by evicting others. Returns whether there is room.
    fn make_room(
        &self,
        connections: &mut Connections,
        has_handshake: bool,
        client: Option<IpAddr>,
        admission: Admission,
    ) -> bool {
        if admission == Admission::Always {
            return true;
        }
        let handshakes = has_handshake.then_some(Resource::Handshakes);
        let mut victims = Vec::new();
        for resource in [Resource::Connections].into_iter().chain(handshakes) {
            match self.find_room(connections, resource, client, admission) {
                Room::Free => {}
                Room::Evict(victim) => victims.push((victim, resource)),
                Room::Full => {
                    self.report(resource);
                    return false;
                }
            }
        }
        victims.iter().for_each(|(victim, resource)| self.evict(connections, victim, *resource));
        true
    }

    fn find_room(
        &self,
        connections: &Connections,
        resource: Resource,
        client: Option<IpAddr>,
        admission: Admission,
    ) -> Room {
        let limit = match resource {
            Resource::Handshakes => max_handshakes(self.max_connections),
            _ => self.max_connections,
        };
        let share = (limit / NETWORK_SHARE).max(1);
        let network = client.and_then(|client| connections.networks.get(&network_of(client, 48)));
        let victim = match network.filter(|network| network.used(resource) >= share) {
            Some(_) if admission == Admission::Flooded => None,
            Some(network) => self.worst_still(network, resource),
            None if admission == Admission::Counted || connections.all.used(resource) < limit => {
                return Room::Free;
            }
            None => self.worst_of_largest(connections, resource),
        };
        let victim = victim.filter(|_| connections.lingering < MAX_LINGERING);
        victim.map_or(Room::Full, |victim| Room::Evict(victim.clone()))
    }

    /// The worst connection of the largest network. If that is small, an idle one of any network.
    fn worst_of_largest<'c>(
        &self,
        connections: &'c Connections,
        resource: Resource,
    ) -> Option<&'c Arc<ConnectionState>> {
        let sample: Vec<_> = connections.all.sample(SAMPLE, &self.random).collect();
        let networks = sample.iter().filter_map(|state| connections.networks.get(&state.network.get()?.key));
        match networks.max_by_key(|network| network.used(resource)) {
            Some(largest) if largest.used(resource) > SMALL_NETWORK => {
                self.ranked(largest, resource, SAMPLE).pop()
            }
            _ => {
                let idle = sample.into_iter().filter(|state| state.current_use().is_idle());
                let part = idle.filter(|state| resource.used_by(state) > 0);
                part.max_by_key(|state| state.current_use())
            }
        }
    }

    /// The worst connection of a network, unless it is busy.
    fn worst_still<'c>(&self, network: &'c Group, resource: Resource) -> Option<&'c Arc<ConnectionState>> {
        self.ranked(network, resource, NETWORK_SAMPLE).pop().filter(|worst| !worst.current_use().is_busy())
    }

    /// A sample of a network, the worst last: it is in the /64 that uses the most.
    fn ranked<'c>(
        &self,
        network: &'c Group,
        resource: Resource,
        sample: usize,
    ) -> Vec<&'c Arc<ConnectionState>> {
        let subnet = |state: &ConnectionState| state.network.get().map(|network| network.subnet);
        let (mut subnets, mut ranked) = (HashMap::<_, usize>::new(), Vec::new());
        for state in network.sample(sample, &self.random) {
            let used = resource.used_by(state);
            if used > 0 {
                *subnets.entry(subnet(state)).or_default() += used;
                ranked.push(state);
            }
        }
        ranked.sort_by_cached_key(|state| (subnets[&subnet(state)], state.current_use()));
        ranked
    }

    /// Closes connections while those of the network of `newcomer`, which has just added to its cost, or of the port cost too
    /// much. Returns whether `newcomer` is among them.
    pub(crate) fn relieve(&self, newcomer: &Arc<ConnectionState>) -> bool {
        if !newcomer.exceeds_limit() {
            return false;
        }
        let mut connections = self.lock();
        let network = newcomer.network.get().filter(|_| newcomer.counted_cost() > 0);
        while let Some(network) = network.filter(|network| network.load.is_over_limit())
            && !newcomer.is_closed()
        {
            let group = connections.networks.get(&network.key);
            let still = group.and_then(|group| self.worst_still(group, Resource::Cost));
            let victim = still.unwrap_or(newcomer).clone();
            self.evict(&mut connections, &victim, Resource::Cost);
        }
        if self.port.is_over_limit() {
            self.relieve_port(&mut connections, network.map(|_| newcomer));
        }
        newcomer.is_closed()
    }

    /// Closes connections of the network that costs the most, the worst first, until an eighth of the limit is free: so this
    /// scan is rare. All networks are compared, not a sample, because a few connections can cost as much as all others.
    fn relieve_port(&self, connections: &mut Connections, newcomer: Option<&Arc<ConnectionState>>) {
        while !self.port.is_relieved() {
            let largest = connections.networks.values().max_by_key(|network| network.used(Resource::Cost));
            let largest = largest.filter(|network| network.used(Resource::Cost) > SMALL_NETWORK_COST);
            let Some(largest) = largest else {
                newcomer.into_iter().for_each(|newcomer| self.evict(connections, newcomer, Resource::Cost));
                return;
            };
            let (load, half) = (largest.load.clone(), largest.used(Resource::Cost) / 2);
            let mut ranked: Vec<_> =
                self.ranked(largest, Resource::Cost, usize::MAX).into_iter().cloned().collect();
            while load.cost() > half
                && !self.port.is_relieved()
                && let Some(victim) = ranked.pop()
            {
                self.evict(connections, &victim, Resource::Cost);
            }
        }
    }

    /// Closes a connection, because the process has no file descriptor for another one.
    pub(crate) fn free_descriptor(&self) {
        let mut connections = self.lock();
        if let Some(victim) = self.worst_of_largest(&connections, Resource::Connections).cloned() {
            self.evict(&mut connections, &victim, Resource::Connections);
        }
    }

    /// Removes a connection from all counts and aborts its task.
    fn evict(&self, connections: &mut Connections, state: &Arc<ConnectionState>, resource: Resource) {
        if !state.is_closed() {
            connections.remove(state);
            connections.lingering += 1;
            state.send_signal(ConnectionSignal::Abort);
            self.report(resource);
        }
    }

    /// Counts a connection that is closed at a limit, and logs it now and then.
    fn report(&self, resource: Resource) {
        self.closed_at[resource as usize].fetch_add(1, Relaxed);
        if let Some(connections) = self.logs[resource as usize].allow() {
            let (server, limit) = (self.server, resource.as_str());
            tracing::warn!(
                server,
                limit,
                connections,
                "connections closed: the port or a client network is at a limit"
            );
        }
    }

    pub(crate) fn signal_all(&self, signal: ConnectionSignal) {
        self.lock().all.members.values().for_each(|state| state.send_signal(signal));
    }

    /// Whether all connections are closed and their tasks have ended.
    pub(crate) fn is_empty(&self) -> bool {
        let connections = self.lock();
        connections.all.members.is_empty() && connections.lingering == 0
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    /// Counts a connection for the network of its client.
    fn join_network(&mut self, state: &Arc<ConnectionState>, client: Option<IpAddr>) {
        let Some(client) = client else { return };
        let (key, subnet) = (network_of(client, 48), network_of(client, 64));
        let new = || Group::new(Arc::new(Load::new(MAX_COST / NETWORK_SHARE)));
        let network = self.networks.entry(key).or_insert_with(new);
        network.insert(state);
        state.count_in(&network.load);
        let _ = state.network.set(Network { key, subnet, load: network.load.clone() });
    }

    fn remove(&mut self, state: &Arc<ConnectionState>) {
        state.close();
        self.all.remove(state);
        let Some(network) = state.network.get() else { return };
        if let Some(group) = self.networks.get_mut(&network.key) {
            group.remove(state);
            if group.members.is_empty() {
                self.networks.remove(&network.key);
            }
        }
    }
}

/// Keeps a connection in the registry until dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) registry: Arc<ConnectionRegistry>,
    pub(crate) state: Arc<ConnectionState>,
}

impl Registration {
    /// The PROXY header names the client. Returns whether its network has room for the connection.
    pub(crate) fn set_client(&self, client: IpAddr) -> bool {
        let mut connections = self.registry.lock();
        let has_room = self.registry.make_room(&mut connections, true, Some(client), Admission::Counted);
        if has_room && !self.state.is_closed() {
            connections.join_network(&self.state, Some(client));
        }
        has_room
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut connections = self.registry.lock();
        if self.state.is_closed() {
            connections.lingering -= 1;
        } else {
            connections.remove(&self.state);
        }
        drop(connections);
        self.registry.closed.notify_one();
    }
}

/// The numbers of a port's connections.
#[derive(Clone, Debug)]
pub struct ConnectionStats(pub(crate) Arc<ConnectionRegistry>);

impl ConnectionStats {
    /// How many connections are open, by state.
    pub fn open(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::from(ConnectionUse::NAMES.map(|name| (name, 0)));
        for state in self.0.lock().all.members.values() {
            *counts.entry(state.current_use().name()).or_default() += 1;
        }
        counts
    }

    /// How many connections were closed at each limit, to make room or because there was none.
    pub fn closed_at_limits(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Resource::ALL
            .iter()
            .map(|resource| (resource.as_str(), self.0.closed_at[*resource as usize].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_state::UnfinishedRequest;
    use crate::limits::{FREE_COST, REQUEST_COST};

    /// A connection, and a request on it if it is busy.
    struct Client {
        registration: Registration,
        request: Option<UnfinishedRequest>,
    }

    impl Client {
        fn state(&self) -> &Arc<ConnectionState> {
            &self.registration.state
        }

        fn is_evicted(&self) -> bool {
            self.state().is_closed()
        }
    }

    fn port(max_connections: usize) -> Arc<ConnectionRegistry> {
        Arc::new(ConnectionRegistry::new("test", max_connections))
    }

    fn try_open(registry: &Arc<ConnectionRegistry>, address: &str, has_handshake: bool) -> Option<Client> {
        let client = (!address.is_empty()).then(|| address.parse().expect("an address"));
        let registration = registry.open(&ServeArgs::default(), has_handshake, client, Admission::Normal)?;
        Some(Client { registration, request: None })
    }

    fn silent(registry: &Arc<ConnectionRegistry>, address: &str) -> Client {
        try_open(registry, address, false).expect("room")
    }

    fn idle(registry: &Arc<ConnectionRegistry>, address: &str) -> Client {
        let client = silent(registry, address);
        drop(client.state().on_request(0, 0));
        client
    }

    /// With a request whose headers have this many bytes.
    fn busy(registry: &Arc<ConnectionRegistry>, address: &str, bytes: usize) -> Client {
        let client = silent(registry, address);
        let request = client.state().on_request(bytes, 0);
        Client { request: Some(request), ..client }
    }

    fn evicted(clients: &[Client]) -> usize {
        clients.iter().filter(|client| client.is_evicted()).count()
    }

    #[tokio::test]
    async fn network_at_a_quarter_closes_its_own_still_connection_or_the_newcomer() {
        let registry = port(16);
        let mut own: Vec<_> = (0..3).map(|_| busy(&registry, "192.0.2.1", 0)).collect();
        own.push(idle(&registry, "192.0.2.1"));
        let other = silent(&registry, "192.0.2.2");
        own.push(busy(&registry, "192.0.2.1", 0));
        assert!(own[3].is_evicted() && evicted(&own) == 1 && !other.is_evicted());
        assert!(try_open(&registry, "192.0.2.1", false).is_none(), "all of its connections are busy");
        own[0].request = None;
        assert!(try_open(&registry, "192.0.2.1", false).is_some());
        assert!(own[0].is_evicted() && evicted(&own) == 2);
    }

    #[tokio::test]
    async fn during_a_flood_a_network_at_a_quarter_evicts_nothing() {
        let registry = port(4);
        let own = idle(&registry, "192.0.2.1");
        let open = |address: [u8; 4]| {
            registry.open(&ServeArgs::default(), false, Some(address.into()), Admission::Flooded)
        };
        assert!(open([192, 0, 2, 1]).is_none() && !own.is_evicted());
        assert!(open([192, 0, 2, 2]).is_some());
    }

    #[tokio::test]
    async fn at_the_total_the_largest_network_gives_even_if_busy() {
        let registry = port(40);
        let large: Vec<_> = (0..10).map(|_| busy(&registry, "2001:db8:1::1", 0)).collect();
        let small: Vec<_> = (0..30).map(|n| idle(&registry, &format!("192.0.2.{n}"))).collect();
        let honest = silent(&registry, "198.51.100.1");
        assert_eq!((evicted(&large), evicted(&small), honest.is_evicted()), (1, 0, false));
        assert!(large[9].is_evicted(), "the youngest");
    }

    #[tokio::test]
    async fn among_small_networks_only_idle_connections_give() {
        let registry = port(40);
        let mut busy: Vec<_> = (0..39).map(|n| busy(&registry, &format!("192.0.2.{n}"), 0)).collect();
        let idle = idle(&registry, "");
        busy.push(silent(&registry, "198.51.100.1"));
        assert!(idle.is_evicted(), "also of a trusted proxy");
        busy[39].request = Some(busy[39].state().on_request(0, 0));
        assert!(try_open(&registry, "198.51.100.2", false).is_none());
        assert_eq!(evicted(&busy), 0);
    }

    #[tokio::test]
    async fn connections_without_a_request_give_before_still_ones() {
        let registry = port(64);
        let mut honest: Vec<_> = (0..12).map(|_| idle(&registry, "192.0.2.1")).collect();
        let silent_ones: Vec<_> = (0..4).map(|_| silent(&registry, "192.0.2.1")).collect();
        for expected in 1..=4 {
            honest.push(idle(&registry, "192.0.2.1"));
            assert_eq!((evicted(&silent_ones), evicted(&honest)), (expected, 0));
        }
        let oldest = idle(&registry, "192.0.2.1");
        assert!(honest[0].is_evicted() && !oldest.is_evicted(), "the longest idle");
    }

    #[tokio::test]
    async fn within_a_48_the_64_with_the_most_gives_first() {
        let registry = port(64);
        let large: Vec<_> = (0..15).map(|n| idle(&registry, &format!("2001:db8:1:1::{n}"))).collect();
        let small = silent(&registry, "2001:db8:1:2::1");
        let newcomer = silent(&registry, "2001:db8:1:3::1");
        assert_eq!((evicted(&large), small.is_evicted(), newcomer.is_evicted()), (1, false, false));
    }

    #[tokio::test]
    async fn silent_handshakes_make_room_only_for_their_own_network() {
        let registry = port(128);
        let open = |address| try_open(&registry, address, true).expect("room");
        let honest = open("192.0.2.2");
        let flood: Vec<_> = (0..20).map(|_| open("192.0.2.1")).collect();
        assert_eq!((evicted(&flood), honest.is_evicted()), (12, false), "a quarter of 32 handshakes");
        assert_eq!(registry.port.handshakes(), 9);
        honest.state().end_handshake();
        drop(flood);
        assert_eq!(registry.port.handshakes(), 0);
    }

    #[tokio::test]
    async fn proxied_connection_joins_its_network_after_the_header() {
        let registry = port(16);
        let own: Vec<_> = (0..4).map(|_| idle(&registry, "192.0.2.1")).collect();
        let proxied = silent(&registry, "");
        assert_eq!(evicted(&own), 0);
        assert!(proxied.registration.set_client([192, 0, 2, 1].into()));
        assert_eq!(evicted(&own), 1);
        let _busy: Vec<_> =
            own.iter().chain([&proxied]).map(|client| client.state().on_request(0, 0)).collect();
        assert!(!silent(&registry, "").registration.set_client([192, 0, 2, 1].into()));
    }

    #[tokio::test]
    async fn cost_above_a_quarter_closes_its_own_stalled_connection_or_the_newcomer() {
        let registry = port(100);
        let first = busy(&registry, "192.0.2.1", MAX_COST / 4);
        assert!(!first.state().exceeds_limit());
        let second = busy(&registry, "192.0.2.1", 2 * FREE_COST);
        let other = busy(&registry, "192.0.2.2", MAX_COST / 4);
        assert!(second.state().exceeds_limit());
        assert!(registry.relieve(second.state()));
        assert!(second.is_evicted() && !first.is_evicted() && !other.is_evicted());
        assert_eq!(registry.port.cost(), first.state().counted_cost() + other.state().counted_cost());
    }

    #[tokio::test]
    async fn cost_at_the_total_closes_the_costliest_of_the_network_with_the_most() {
        let registry = port(100);
        let mib = |count: usize| (count << 20) + FREE_COST - REQUEST_COST;
        let small: Vec<_> = (0..6).map(|n| busy(&registry, &format!("192.0.2.{n}"), mib(7))).collect();
        let large = ["192.0.2.9"; 4].map(|address| busy(&registry, address, mib(3)));
        let costliest = busy(&registry, "192.0.2.9", mib(4));
        let newcomer = busy(&registry, "192.0.2.8", mib(7));
        assert!(!registry.relieve(newcomer.state()));
        assert!(costliest.is_evicted() && !newcomer.is_evicted());
        assert_eq!((evicted(&large), evicted(&small)), (2, 0), "until an eighth is free");
        assert!(registry.port.is_relieved());
    }

    #[tokio::test]
    async fn more_than_256_lingering_connections_close_newcomers() {
        let registry = port(400);
        let lingering: Vec<_> = (0..356).map(|_| silent(&registry, "192.0.2.1")).collect();
        assert_eq!(evicted(&lingering), 256);
        assert!(try_open(&registry, "192.0.2.1", false).is_none());
        drop(lingering);
        assert!(registry.is_empty());
    }

    #[tokio::test]
    async fn closed_connections_leave_nothing_behind() {
        let registry = port(100);
        let clients = ["192.0.2.1", "192.0.2.1", ""].map(|address| busy(&registry, address, 1 << 20));
        assert_eq!(registry.lock().networks.len(), 1);
        drop(clients);
        let connections = registry.lock();
        assert!(connections.all.members.is_empty() && connections.networks.is_empty());
        assert_eq!((registry.port.cost(), registry.port.handshakes()), (0, 0));
    }
}
