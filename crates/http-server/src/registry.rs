//! Open connections of a port, by client network. Closes one to make room at a limit, and all at shutdown.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{net::IpAddr, time::Duration};

use base::log_throttle::LogThrottle;
use indexmap::IndexMap;
use tokio::sync::Notify;

use crate::connection_state::{ConnectionState, ConnectionUse, Load, PerResource, Resource, network_of};
use crate::limits::{MAX_COST, MAX_HANDSHAKES, ServeArgs};

/// Connections that are compared to find one to evict: almost certainly some of each network with a large share.
const SAMPLE: usize = 64;

/// The same for a network at its share, of whose connections few may stand still.
const NETWORK_SAMPLE: usize = 256;

/// Usage up to which a network is small. If even the largest network is, only idle connections are evicted.
const SMALL_NETWORK: PerResource<usize> = [8, 8, 512 * 1024];

/// Maximum evicted connections whose tasks have not ended.
const MAX_LINGERING: usize = 256;

/// How to treat a new connection at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Open it if there is room or room can be made.
    Normal,
    /// The same, but the port counts it already: its client is known from a PROXY header only now.
    Counted,
    /// More arrive than can be accepted. A network at its share gets no room: to evict takes longer than to refuse.
    Flooded,
    /// Open it regardless of limits, at the shutdown.
    Always,
}

/// The numbers of a port's connections.
pub type ConnectionStats = Arc<ConnectionRegistry>;

/// The connections of a port.
#[derive(Debug)]
pub struct ConnectionRegistry {
    args: ServeArgs,
    pub(crate) port: Arc<Load>,
    connections: Mutex<Connections>,
    /// Notified when a connection closes. Only one task may wait.
    pub(crate) closed: Notify,
}

#[derive(Debug)]
pub(crate) struct Connections {
    /// The port's name in the log.
    server: &'static str,
    all: Group,
    networks: HashMap<IpAddr, Group>,
    /// The number of connections whose tasks have not ended. Closed ones are no members.
    tasks: usize,
    /// The number of connections that were closed at each limit.
    closed_at: PerResource<u64>,
    logs: PerResource<LogThrottle>,
}

/// The connections of a network, or all.
#[derive(Debug)]
struct Group {
    /// By `id`. A map with positions, so that a random one can be selected.
    members: IndexMap<usize, Arc<ConnectionState>>,
    load: Arc<Load>,
}

/// The address in memory.
fn id(state: &Arc<ConnectionState>) -> usize {
    Arc::as_ptr(state).addr()
}

impl Group {
    /// Random members, possibly repeated: this many, or all if there are no more.
    fn sample(&self, sample: usize) -> impl Iterator<Item = &Arc<ConnectionState>> {
        let (count, random) = (self.members.len(), RandomState::new());
        let position = move |n| if sample >= count { n } else { random.hash_one(n) as usize % count };
        (0..sample.min(count)).map(move |n| &self.members[position(n)])
    }

    /// A sample, the worst last: it is in the /64 that uses the most.
    fn ranked(&self, resource: Resource, sample: usize) -> Vec<Arc<ConnectionState>> {
        let subnet = |state: &ConnectionState| state.network.get().map(|network| network.subnet);
        let mut subnets = HashMap::<_, usize>::new();
        let mut ranked: Vec<_> = self.sample(sample).cloned().collect();
        ranked.retain(|state| state.uses(resource) > 0);
        ranked.iter().for_each(|state| *subnets.entry(subnet(state)).or_default() += state.uses(resource));
        ranked.sort_by_cached_key(|state| (subnets[&subnet(state)], state.rank()));
        ranked
    }
}

/// The network that uses the most, unless it is small.
fn largest<'a>(networks: impl Iterator<Item = &'a Group>, resource: Resource) -> Option<&'a Group> {
    let largest = networks.max_by_key(|network| network.load.used(resource));
    largest.filter(|largest| largest.load.used(resource) > SMALL_NETWORK[resource as usize])
}

impl ConnectionRegistry {
    pub(crate) fn new(server: &'static str, args: ServeArgs) -> Self {
        let handshakes = MAX_HANDSHAKES.min(args.max_connections / 4).max(1);
        let port = Arc::new(Load::new([args.max_connections, handshakes, MAX_COST]));
        let connections = Connections {
            server,
            all: Group { members: IndexMap::new(), load: port.clone() },
            networks: HashMap::new(),
            tasks: 0,
            closed_at: PerResource::default(),
            logs: PerResource::default().map(|()| LogThrottle::every(Duration::from_secs(60))),
        };
        Self { args, port, connections: Mutex::new(connections), closed: Notify::new() }
    }

    /// How many connections are open, by state.
    pub fn open(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let uses =
            self.lock().all.members.values().map(|state| state.lock().current_use()).collect::<Vec<_>>();
        let count = move |name: &ConnectionUse| uses.iter().filter(|current| *current == name).count() as u64;
        ConnectionUse::ALL.iter().map(move |current| (current.as_str(), count(current)))
    }

    /// How many connections were closed at each limit, to make room or because there was none.
    pub fn closed_at_limits(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Resource::ALL.iter().map(|resource| resource.as_str()).zip(self.lock().closed_at)
    }

    /// Adds a connection, if there is room. `client` is not known before a PROXY header, and trusted proxies have none.
    pub(crate) fn admit(
        self: &Arc<Self>,
        client: Option<IpAddr>,
        has_handshake: bool,
        admission: Admission,
    ) -> Option<Registration> {
        let mut connections = self.lock();
        if !connections.make_room(client, has_handshake, admission) {
            return None;
        }
        let state = Arc::new(ConnectionState::new(self.port.clone(), self.args.clone(), has_handshake));
        connections.tasks += 1;
        connections.all.members.insert(id(&state), state.clone());
        connections.join_network(&state, client);
        Some(Registration { registry: self.clone(), state })
    }

    /// Closes connections while the network of `newcomer` or the port costs too much. Returns whether `newcomer` is closed.
    pub(crate) fn relieve(&self, newcomer: &Arc<ConnectionState>) -> bool {
        let is_over_limit = newcomer.loads().any(Load::costs_too_much);
        if is_over_limit {
            self.lock().relieve(newcomer);
        }
        is_over_limit && newcomer.is_closed()
    }

    /// Waits until all connections are closed and their tasks have ended.
    pub(crate) async fn all_closed(&self) {
        while self.lock().tasks > 0 {
            self.closed.notified().await;
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    /// Makes room for a new connection, if necessary by evicting others. Returns whether there is room.
    fn make_room(&mut self, client: Option<IpAddr>, has_handshake: bool, admission: Admission) -> bool {
        let network = client.and_then(|client| self.networks.get(&network_of(client, 48)));
        let handshakes = has_handshake.then_some(Resource::Handshakes);
        let mut victims = Vec::new();
        for resource in [Resource::Connections].into_iter().chain(handshakes) {
            let victim = match network.filter(|network| !network.load.has_room(resource, 1)) {
                _ if admission == Admission::Always => continue,
                Some(_) if admission == Admission::Flooded => None,
                Some(own) => own.ranked(resource, NETWORK_SAMPLE).pop().filter(|worst| !worst.is_busy()),
                None if admission == Admission::Counted || self.all.load.has_room(resource, 1) => continue,
                None => self.worst_of_largest(resource),
            };
            let lingering = self.tasks - self.all.members.len();
            let Some(victim) = victim.filter(|_| lingering < MAX_LINGERING) else {
                self.report(resource);
                return false;
            };
            victims.push((victim, resource));
        }
        victims.iter().for_each(|(victim, resource)| self.evict(victim, *resource));
        true
    }

    /// The worst connection of the largest network. If that is small, an idle one of any network.
    fn worst_of_largest(&self, resource: Resource) -> Option<Arc<ConnectionState>> {
        let sample: Vec<_> = self.all.sample(SAMPLE).collect();
        let networks = sample.iter().filter_map(|state| self.networks.get(&state.network.get()?.key));
        if let Some(largest) = largest(networks, resource) {
            return largest.ranked(resource, SAMPLE).pop();
        }
        let idle = sample.into_iter().filter(|state| state.lock().is_idle() && state.uses(resource) > 0);
        idle.max_by_key(|state| state.rank()).cloned()
    }

    fn relieve(&mut self, newcomer: &Arc<ConnectionState>) {
        let network = newcomer.network.get().filter(|_| newcomer.uses(Resource::Cost) > 0);
        if let Some(network) = network {
            let group = self.networks.get(&network.key);
            let ranked = group.map(|group| group.ranked(Resource::Cost, NETWORK_SAMPLE)).unwrap_or_default();
            self.evict_worst(ranked, |worst| network.load.costs_too_much() && !worst.is_busy());
            if network.load.costs_too_much() {
                self.evict(newcomer, Resource::Cost);
            }
        }
        if self.all.load.costs_too_much() {
            self.relieve_port(network.map(|_| newcomer));
        }
    }

    /// Closes connections of the network that costs the most, the worst first, until an eighth of the limit is free: so this
    /// scan is rare. All networks are compared, not a sample, because a few connections can cost as much as all others.
    fn relieve_port(&mut self, newcomer: Option<&Arc<ConnectionState>>) {
        let port = self.all.load.clone();
        let is_relieved = || port.has_room(Resource::Cost, MAX_COST / 8);
        while !is_relieved() {
            let Some(largest) = largest(self.networks.values(), Resource::Cost) else {
                newcomer.into_iter().for_each(|newcomer| self.evict(newcomer, Resource::Cost));
                return;
            };
            let (load, half) = (largest.load.clone(), largest.load.used(Resource::Cost) / 2);
            let ranked = largest.ranked(Resource::Cost, usize::MAX);
            self.evict_worst(ranked, |_| load.used(Resource::Cost) > half && !is_relieved());
        }
    }

    /// Evicts connections, the last first, while they are due.
    fn evict_worst(&mut self, ranked: Vec<Arc<ConnectionState>>, is_due: impl Fn(&ConnectionState) -> bool) {
        for worst in ranked.iter().rev().take_while(|worst| is_due(worst)) {
            self.evict(worst, Resource::Cost);
        }
    }

    /// Closes a connection, because the process has no file descriptor for another one.
    pub(crate) fn free_descriptor(&mut self) {
        if let Some(victim) = self.worst_of_largest(Resource::Connections) {
            self.evict(&victim, Resource::Connections);
        }
    }

    /// Makes all connections finish their requests and close.
    pub(crate) fn drain_all(&self) {
        self.all.members.values().for_each(|state| state.drain());
    }

    pub(crate) fn close_all(&mut self) {
        while let Some((_, state)) = self.all.members.pop() {
            self.remove(&state);
        }
    }

    /// Removes a connection from all counts and ends its task.
    fn evict(&mut self, state: &Arc<ConnectionState>, resource: Resource) {
        if !state.is_closed() {
            self.remove(state);
            self.report(resource);
        }
    }

    /// Counts a connection that is closed at a limit, and logs it now and then.
    fn report(&mut self, resource: Resource) {
        self.closed_at[resource as usize] += 1;
        if let Some(connections) = self.logs[resource as usize].allow() {
            let (server, limit) = (self.server, resource.as_str());
            let message = "connections closed: the port or a client network is at a limit";
            tracing::warn!(server, limit, connections, "{message}");
        }
    }

    fn join_network(&mut self, state: &Arc<ConnectionState>, client: Option<IpAddr>) {
        let Some(client) = client else { return };
        let network = self.networks.entry(network_of(client, 48)).or_insert_with(|| {
            let quarter = self.all.load.limits.map(|limit| (limit / 4).max(1));
            Group { members: IndexMap::new(), load: Arc::new(Load::new(quarter)) }
        });
        network.members.insert(id(state), state.clone());
        state.join(client, &network.load);
    }

    /// Closes a connection, if it is open, and removes it.
    fn remove(&mut self, state: &Arc<ConnectionState>) {
        state.close();
        self.all.members.swap_remove(&id(state));
        let Some(network) = state.network.get() else { return };
        if let Some(group) = self.networks.get_mut(&network.key) {
            group.members.swap_remove(&id(state));
            if group.members.is_empty() {
                self.networks.remove(&network.key);
            }
        }
    }
}

/// Keeps a connection in the registry until dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<ConnectionRegistry>,
    pub(crate) state: Arc<ConnectionState>,
}

impl Registration {
    /// The PROXY header names the client. Returns whether its network has room for the connection.
    pub(crate) fn set_client(&self, client: IpAddr) -> bool {
        let mut connections = self.registry.lock();
        let has_room = connections.make_room(Some(client), true, Admission::Counted);
        if has_room && !self.state.is_closed() {
            connections.join_network(&self.state, Some(client));
        }
        has_room
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut connections = self.registry.lock();
        connections.tasks -= 1;
        if !self.state.is_closed() {
            connections.remove(&self.state);
        }
        drop(connections);
        self.registry.closed.notify_one();
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
        Arc::new(ConnectionRegistry::new("test", ServeArgs { max_connections, ..ServeArgs::default() }))
    }

    fn try_open(registry: &Arc<ConnectionRegistry>, address: &str, has_handshake: bool) -> Option<Client> {
        let client = (!address.is_empty()).then(|| address.parse().expect("an address"));
        let registration = registry.admit(client, has_handshake, Admission::Normal)?;
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
        let open = |address: [u8; 4]| registry.admit(Some(address.into()), false, Admission::Flooded);
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
        assert_eq!(registry.port.used(Resource::Handshakes), 9);
        honest.state().update(|activity| activity.established = Some(tokio::time::Instant::now()));
        drop(flood);
        assert_eq!(registry.port.used(Resource::Handshakes), 0);
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
        assert!(!first.state().loads().any(Load::costs_too_much));
        let second = busy(&registry, "192.0.2.1", 2 * FREE_COST);
        let other = busy(&registry, "192.0.2.2", MAX_COST / 4);
        assert!(second.state().loads().any(Load::costs_too_much));
        assert!(registry.relieve(second.state()));
        assert!(second.is_evicted() && !first.is_evicted() && !other.is_evicted());
        assert_eq!(
            registry.port.used(Resource::Cost),
            first.state().uses(Resource::Cost) + other.state().uses(Resource::Cost)
        );
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
        assert!(registry.port.has_room(Resource::Cost, MAX_COST / 8));
    }

    #[tokio::test]
    async fn more_than_256_lingering_connections_close_newcomers() {
        let registry = port(400);
        let lingering: Vec<_> = (0..356).map(|_| silent(&registry, "192.0.2.1")).collect();
        assert_eq!(evicted(&lingering), 256);
        assert!(try_open(&registry, "192.0.2.1", false).is_none());
        drop(lingering);
        assert_eq!(registry.lock().tasks, 0);
    }

    #[tokio::test]
    async fn closed_connections_leave_nothing_behind() {
        let registry = port(100);
        let clients = ["192.0.2.1", "192.0.2.1", ""].map(|address| busy(&registry, address, 1 << 20));
        assert_eq!(registry.lock().networks.len(), 1);
        drop(clients);
        let connections = registry.lock();
        assert!(connections.all.members.is_empty() && connections.networks.is_empty());
        assert_eq!((registry.port.used(Resource::Cost), registry.port.used(Resource::Handshakes)), (0, 0));
    }
}
