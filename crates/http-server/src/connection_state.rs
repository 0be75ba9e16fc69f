//! State of one connection: requests, what it holds in memory, deadlines, and whether it must close.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{mem, time::Duration};

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use crate::header_blocks::BlockBytes;
use crate::limits::{FIELD_COST, FREE_COST, HTTP1_BUFFER, HTTP2_WINDOW, MAX_BLOCK_COST};
use crate::limits::{REQUEST_COST, SMALL_RESPONSE, ServeArgs};

/// A connection stands still after this long without progress.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// While a connection drains, the time for incomplete headers, and for the client to close the idle connection.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// What connections use, with a limit per port and per client network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Connections,
    Handshakes,
    /// The bytes that they make the process hold.
    Cost,
}

base::names!(Resource: Connections => "connections", Handshakes => "handshakes", Cost => "cost");

/// A number for each [`Resource`].
pub(crate) type PerResource<T> = [T; Resource::ALL.len()];

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionUse {
    /// It has a request or a response, with progress.
    Busy,
    /// Its requests and responses have made no progress for [`STALL_TIMEOUT`].
    Stalled,
    Idle,
    /// The client has not sent a request yet.
    NoRequest,
}

base::names!(ConnectionUse: Busy => "busy", Stalled => "stalled", Idle => "idle", NoRequest => "no_request");

/// What the connections of a port or of a client network use together, and how much they may.
#[derive(Debug)]
pub(crate) struct Load {
    used: PerResource<AtomicUsize>,
    pub(crate) limits: PerResource<usize>,
    /// Each request of the port that is being handled has a clone.
    handling: Arc<()>,
}

impl Load {
    pub(crate) fn new(limits: PerResource<usize>) -> Self {
        Self { used: Default::default(), limits, handling: Arc::new(()) }
    }

    pub(crate) fn used(&self, resource: Resource) -> usize {
        self.used[resource as usize].load(Relaxed)
    }

    /// Whether this much more would be within the limit.
    pub(crate) fn has_room(&self, resource: Resource, amount: usize) -> bool {
        self.used(resource) + amount <= self.limits[resource as usize]
    }

    pub(crate) fn costs_too_much(&self) -> bool {
        !self.has_room(Resource::Cost, 0)
    }

    fn replace(&self, before: PerResource<usize>, after: PerResource<usize>) {
        for ((used, before), after) in self.used.iter().zip(before).zip(after) {
            if before != after {
                used.fetch_add(after.wrapping_sub(before), Relaxed);
            }
        }
    }
}

/// A client network: an IPv4 address, or the /48 of an IPv6 address, which providers give a customer.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) key: IpAddr,
    /// The client's part of it: the /64 of an IPv6 address.
    pub(crate) subnet: IpAddr,
    pub(crate) load: Arc<Load>,
}

/// The network of this many bits that an IPv6 address is in. An IPv4 address stays whole.
pub(crate) fn network_of(address: IpAddr, bits: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - bits))).into(),
    }
}

/// Shared by the connection's task, its streams and the registry.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    opened: Instant,
    args: ServeArgs,
    /// All connections of the port.
    port: Arc<Load>,
    /// Not set for trusted proxies, whose connections carry many clients, and before a PROXY header.
    pub(crate) network: OnceLock<Network>,
    /// Wakes the connection's task when it must close or drain.
    pub(crate) waker: AtomicWaker,
    activity: Mutex<Activity>,
}

/// What happens on a connection. Progress is the beginning and the end of a request, and bytes of a response that were
/// written. HTTP/2's control frames (PING, SETTINGS, WINDOW_UPDATE) are no progress.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Whether the registry has let go of the connection. Its task must end, and port and network count nothing of it.
    closed: bool,
    /// Since when the connection finishes its requests, to close then.
    drain_started: Option<Instant>,
    /// When the handshake ended.
    pub(crate) established: Option<Instant>,
    /// Whether a first request has arrived.
    served: bool,
    pub(crate) http2: bool,
    requests: Vec<RequestEntry>,
    next_id: u64,
    /// When the first byte of the current headers arrived. `None` if no headers are being read.
    headers_started: Option<Instant>,
    last_progress: Option<Instant>,
    /// Whether bytes must wait: the last write found the socket's send buffer full, or lets other tasks run first.
    pub(crate) write_blocked: bool,
    /// Bytes that were read since the current headers began (HTTP/1), and while requests are open.
    read: usize,
    /// Bytes of HTTP/2 header blocks that are not a request yet.
    blocks: BlockBytes,
    /// What port and network count.
    counted: PerResource<usize>,
}

/// A request of which hyper or h2 still holds data, or of its response.
#[derive(Debug)]
struct RequestEntry {
    id: u64,
    /// What it makes the process hold besides [`REQUEST_COST`]: its headers, then its response.
    cost: usize,
    has_response: bool,
    last_progress: Instant,
}

impl Activity {
    /// Whether the connection must close, or drain unless it does already.
    pub(crate) fn must_stop(&self, drains: bool) -> bool {
        self.closed || self.drain_started.is_some() && !drains
    }

    /// Whether there is no request and no response. Response bytes in TLS's buffer belong to none.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.is_empty() && !self.write_blocked
    }

    fn has_open_request(&self) -> bool {
        self.requests.iter().any(|request| !request.has_response)
    }

    pub(crate) fn has_unsent_response(&self) -> bool {
        self.requests.iter().any(|request| request.has_response)
    }

    /// What the connection holds in memory beyond what each may. What hyper and h2 hide is counted by its bound.
    fn cost(&self) -> usize {
        let requests: usize = self.requests.iter().map(|request| REQUEST_COST + request.cost).sum();
        let is_reading = self.headers_started.is_some() || self.has_open_request();
        let buffer = if self.http2 { HTTP2_WINDOW as usize } else { HTTP1_BUFFER };
        let read = if is_reading { self.read.min(buffer) } else { 0 };
        let blocks = (self.blocks.read * FIELD_COST).min(MAX_BLOCK_COST);
        (requests + read + blocks).saturating_sub(FREE_COST)
    }

    /// How long the connection has made no progress. On HTTP/2, each request has its own: that of others is none of it.
    fn time_without_progress(&self) -> Option<Duration> {
        let oldest = self.requests.iter().map(|request| request.last_progress).min();
        oldest.filter(|_| self.http2).or(self.last_progress).map(|time| time.elapsed())
    }

    /// Bytes were read, and hyper has not decoded them yet. On HTTP/2, `blocks` says how many are in header blocks.
    pub(crate) fn on_read(&mut self, bytes: usize, blocks: Option<BlockBytes>) {
        let is_open = self.has_open_request();
        if !is_open && (blocks.is_some() || self.headers_started.is_none()) {
            self.read = 0;
        }
        if is_open || blocks.is_none() {
            self.read += bytes;
        }
        if blocks.is_some_and(|blocks| blocks.unfinished == 0) {
            self.headers_started = None;
        } else if blocks.is_some() || !is_open {
            self.headers_started.get_or_insert_with(Instant::now);
        }
        self.blocks = blocks.unwrap_or_default();
    }

    /// The headers of a request have arrived. Returns its ID.
    fn on_request(&mut self, cost: usize) -> u64 {
        let last_progress = Instant::now();
        (self.served, self.last_progress) = (true, Some(last_progress));
        if self.blocks.unfinished == 0 {
            self.headers_started = None;
        }
        self.blocks.read = self.blocks.unfinished;
        self.next_id += 1;
        self.requests.push(RequestEntry { id: self.next_id, cost, has_response: false, last_progress });
        self.next_id
    }

    /// The socket accepted bytes, or more bytes must wait.
    pub(crate) fn on_write(&mut self, blocked: bool) {
        self.write_blocked = blocked;
        if !blocked && !self.http2 {
            self.last_progress = Some(Instant::now());
        }
    }

    pub(crate) fn current_use(&self) -> ConnectionUse {
        match self.time_without_progress() {
            _ if !self.served => ConnectionUse::NoRequest,
            _ if self.is_idle() => ConnectionUse::Idle,
            Some(time) if time >= STALL_TIMEOUT => ConnectionUse::Stalled,
            _ => ConnectionUse::Busy,
        }
    }
}

impl ConnectionState {
    /// A new connection, which the port counts.
    pub(crate) fn new(port: Arc<Load>, args: ServeArgs, has_handshake: bool) -> Self {
        let opened = Instant::now();
        let established = (!has_handshake).then_some(opened);
        let activity = Mutex::new(Activity { established, ..Activity::default() });
        let (network, waker) = (OnceLock::new(), AtomicWaker::new());
        let state = Self { opened, args, port, network, waker, activity };
        state.update(|_| {});
        state
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of the network and of the port.
    pub(crate) fn loads(&self) -> impl Iterator<Item = &Load> {
        self.network.get().map(|network| &*network.load).into_iter().chain([&*self.port])
    }

    /// Makes a change, and updates what port and network count.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Activity) -> T) -> T {
        let activity = &mut *self.lock();
        let result = change(activity);
        let after = match activity.closed {
            true => PerResource::default(),
            false => [1, usize::from(activity.established.is_none()), activity.cost()],
        };
        let before = mem::replace(&mut activity.counted, after);
        if before != after {
            self.loads().for_each(|load| load.replace(before, after));
        }
        result
    }

    /// How much port and network count of a resource.
    pub(crate) fn uses(&self, resource: Resource) -> usize {
        self.lock().counted[resource as usize]
    }

    /// Counts the connection for the network of its client, too.
    pub(crate) fn join(&self, client: IpAddr, load: &Arc<Load>) {
        let activity = self.lock();
        load.replace(PerResource::default(), activity.counted);
        let (key, subnet) = (network_of(client, 48), network_of(client, 64));
        let _ = self.network.set(Network { key, subnet, load: load.clone() });
    }

    /// Removes the connection from what port and network count, and ends its task.
    pub(crate) fn close(&self) {
        self.update(|activity| activity.closed = true);
        self.waker.wake();
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.lock().current_use() == ConnectionUse::Busy
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Makes the connection finish its requests and close.
    pub(crate) fn drain(&self) {
        self.lock().drain_started.get_or_insert_with(Instant::now);
        self.waker.wake();
    }

    pub(crate) fn is_draining(&self) -> bool {
        let activity = self.lock();
        activity.drain_started.is_some() && !activity.closed
    }

    /// The headers of a request have arrived: this many fields, with this many bytes in all.
    pub(crate) fn on_request(self: &Arc<Self>, bytes: usize, fields: usize) -> UnfinishedRequest {
        let id = self.update(|activity| activity.on_request(bytes + fields * FIELD_COST));
        UnfinishedRequest { state: self.clone(), id, handling: None }
    }

    /// Whether any connection of the port has a request that is being handled.
    pub(crate) fn port_is_handling(&self) -> bool {
        Arc::strong_count(&self.port.handling) > 1
    }

    /// Of a network's connections, the one with the highest rank is evicted first: one without a request, otherwise the one
    /// that has stood still for the longest, otherwise the costliest, otherwise the youngest.
    pub(crate) fn rank(&self) -> (bool, Duration, usize, Instant) {
        let activity = self.lock();
        let time = activity.time_without_progress().unwrap_or_else(|| self.opened.elapsed());
        let still_time = if activity.current_use() == ConnectionUse::Busy { Duration::ZERO } else { time };
        (!activity.served, still_time, activity.counted[Resource::Cost as usize], self.opened)
    }

    /// When to close the connection if nothing happens. Handshakes, and requests without a response, have other deadlines.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let (activity, args) = (self.lock(), &self.args);
        let responses = activity.requests.iter().filter(|request| request.has_response);
        if !activity.requests.is_empty() {
            return Some(responses.map(|request| request.last_progress).min()? + args.response_timeout);
        }
        let established = activity.established?;
        let max_time = if activity.drain_started.is_some() { DRAIN_TIMEOUT } else { Duration::MAX };
        let (header_timeout, idle_timeout) =
            (args.header_timeout.min(max_time), args.idle_timeout.min(max_time));
        let last_progress = activity.last_progress.max(activity.drain_started).unwrap_or(established);
        Some(match activity.headers_started {
            _ if !activity.served => established + header_timeout,
            _ if activity.write_blocked => last_progress + args.response_timeout,
            // The later of the two: with pipelining, the next request may arrive before the last response is written.
            Some(started) => started.max(last_progress) + header_timeout,
            _ => last_progress + idle_timeout,
        })
    }
}

/// A request that has arrived. It ends, by being dropped, when hyper and h2 have released all data of its response.
#[derive(Debug)]
pub(crate) struct UnfinishedRequest {
    state: Arc<ConnectionState>,
    id: u64,
    /// Set while it is being handled.
    handling: Option<Arc<()>>,
}

impl UnfinishedRequest {
    /// Begins to handle the request. Returns false if the connection must close: then the request must not be handled.
    pub(crate) fn begin(&mut self) -> bool {
        self.handling = (!self.state.is_closed()).then(|| self.state.port.handling.clone());
        self.handling.is_some()
    }

    /// Begins the response, with this many bytes in memory of its own. Of a response of unknown length, only
    /// [`REQUEST_COST`] counts: hyper takes little of it at a time.
    pub(crate) fn respond(&mut self, own_bytes: usize) {
        self.handling = None;
        let cost = own_bytes.saturating_sub(SMALL_RESPONSE);
        self.update(|entry| (entry.cost, entry.has_response) = (cost, true));
    }

    /// A piece of the response was produced, written, or discarded with its stream.
    pub(crate) fn on_progress(&self) {
        self.update(|_| {});
    }

    fn update(&self, change: impl Fn(&mut RequestEntry)) {
        self.state.update(|activity| {
            let now = Instant::now();
            for entry in activity.requests.iter_mut().filter(|entry| entry.id == self.id) {
                entry.last_progress = now;
                change(entry);
            }
            activity.last_progress = Some(now);
        });
    }
}

impl Drop for UnfinishedRequest {
    fn drop(&mut self) {
        self.state.update(|activity| {
            activity.requests.retain(|entry| entry.id != self.id);
            // Header blocks that became no request, such as trailers, are handled by now.
            activity.blocks.read = activity.blocks.unfinished;
            activity.last_progress = Some(Instant::now());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection of a network, opened this many seconds ago.
    fn opened_ago(seconds: u64) -> Arc<ConnectionState> {
        let opened = Instant::now() - Duration::from_secs(seconds);
        let load = || Arc::new(Load::new([usize::MAX; 3]));
        let state = ConnectionState::new(load(), ServeArgs::default(), false);
        state.lock().established = Some(opened);
        state.join([192, 0, 2, 1].into(), &load());
        Arc::new(ConnectionState { opened, ..state })
    }

    fn ago(seconds: u64) -> Option<Instant> {
        Some(Instant::now() - Duration::from_secs(seconds))
    }

    /// Begins a response with this many bytes.
    fn respond(state: &Arc<ConnectionState>, bytes: usize) -> UnfinishedRequest {
        let mut request = state.on_request(0, 0);
        request.respond(bytes);
        request
    }

    fn blocks(read: usize, unfinished: usize) -> Option<BlockBytes> {
        Some(BlockBytes { read, unfinished })
    }

    /// Seconds until the deadline.
    fn remaining(state: &ConnectionState) -> Option<f64> {
        Some((state.deadline()? - Instant::now()).as_secs_f64().round())
    }

    #[tokio::test]
    async fn header_and_idle_timeouts_follow_the_requests_of_a_connection() {
        let state = opened_ago(4);
        state.update(|activity| activity.on_read(1, None));
        assert_eq!(remaining(&state), Some(6.0), "the first headers count from the end of the handshake");
        let request = state.on_request(1, 1);
        assert_eq!(remaining(&state), None, "a request is being handled");
        drop(request);
        assert_eq!(remaining(&state), Some(75.0), "idle");
        state.lock().last_progress = ago(50);
        state.lock().headers_started = ago(3);
        state.update(|activity| activity.on_read(1, None));
        assert_eq!(remaining(&state), Some(7.0), "the next headers count from their first byte");
        state.lock().http2 = true;
        state.update(|activity| activity.on_read(17, blocks(0, 0)));
        assert_eq!(remaining(&state), Some(25.0), "an HTTP/2 ping");
        state.update(|activity| activity.on_read(17, blocks(17, 17)));
        assert_eq!(remaining(&state), Some(10.0), "an unfinished header block");
        state.update(|activity| activity.on_read(1, blocks(1, 0)));
        state.lock().write_blocked = true;
        state.lock().last_progress = ago(10);
        assert_eq!(remaining(&state), Some(20.0), "the end of a response waits for the socket");
    }

    #[tokio::test]
    async fn handshake_has_no_deadline_of_the_connection() {
        let state = ConnectionState::new(Arc::new(Load::new([0; 3])), ServeArgs::default(), true);
        assert_eq!(remaining(&state), None);
    }

    #[tokio::test]
    async fn each_response_must_make_progress() {
        let state = opened_ago(100);
        let response = respond(&state, 1);
        let _other = respond(&state, 1);
        state.lock().requests[0].last_progress = ago(20).expect("a time");
        assert_eq!(remaining(&state), Some(10.0));
        response.on_progress();
        assert_eq!(remaining(&state), Some(30.0));
    }

    #[tokio::test]
    async fn costs_count_for_connection_network_and_port_until_released() {
        let state = opened_ago(0);
        let costs = || {
            let counted = state.uses(Resource::Cost);
            assert!(state.loads().all(|load| load.used(Resource::Cost) == counted));
            counted
        };
        let few = state.on_request(100, 10);
        assert_eq!(costs(), 0, "each connection may hold an ordinary request");
        let mut many = state.on_request(9_000, 90);
        let fields = (10 + 90) * FIELD_COST;
        assert_eq!(costs(), 2 * REQUEST_COST + 9_100 + fields - FREE_COST);
        state.update(|activity| activity.on_read(10_000, None));
        state.update(|activity| activity.on_read(1 << 20, None));
        assert_eq!(
            costs(),
            2 * REQUEST_COST + 9_100 + fields + HTTP1_BUFFER - FREE_COST,
            "at most the buffer"
        );
        drop(few);
        many.respond(100_000);
        assert_eq!(
            costs(),
            REQUEST_COST + 100_000 - SMALL_RESPONSE - FREE_COST,
            "the response instead of the headers"
        );
        drop(many);
        assert_eq!(costs(), 0);
        state.lock().http2 = true;
        state.update(|activity| activity.on_read(1_000, blocks(1_000, 900)));
        assert_eq!(costs(), 1_000 * FIELD_COST - FREE_COST, "h2 may decode as many fields as bytes");
        drop(state.on_request(0, 0));
        assert_eq!(costs(), 900 * FIELD_COST - FREE_COST, "the unfinished block");
        state.update(|activity| activity.on_read(1 << 20, blocks(1 << 20, 1 << 20)));
        assert_eq!(costs(), MAX_BLOCK_COST - FREE_COST);
        state.close();
        assert_eq!(costs(), 0, "an evicted connection counts no more");
    }

    #[tokio::test]
    async fn request_of_a_closed_connection_does_not_begin() {
        let state = opened_ago(0);
        let mut request = state.on_request(0, 0);
        state.close();
        assert!(!request.begin());
    }

    #[tokio::test]
    async fn connection_stands_still_5_s_after_its_last_progress() {
        let state = opened_ago(100);
        let is = |name| assert_eq!(state.lock().current_use().as_str(), name);
        is("no_request");
        let request = state.on_request(0, 0);
        is("busy");
        state.lock().last_progress = ago(6);
        is("stalled");
        drop(request);
        is("idle");
        let response = respond(&state, 1);
        is("busy");
        drop(response);
        is("idle");
    }

    #[tokio::test]
    async fn other_requests_are_no_progress_of_an_unread_http2_response() {
        let state = opened_ago(100);
        state.lock().http2 = true;
        let unread = respond(&state, 1);
        drop(state.on_request(0, 0));
        assert_eq!(state.lock().current_use(), ConnectionUse::Busy);
        state.lock().requests[0].last_progress = ago(6).expect("a time");
        drop(state.on_request(0, 0));
        assert_ne!(state.lock().current_use(), ConnectionUse::Busy);
        unread.on_progress();
        assert_eq!(state.lock().current_use(), ConnectionUse::Busy);
    }

    #[tokio::test]
    async fn idle_connection_has_one_second_to_drain() {
        let state = opened_ago(100);
        drop(state.on_request(0, 0));
        state.lock().last_progress = ago(50);
        state.drain();
        assert_eq!(remaining(&state), Some(1.0));
    }

    #[test]
    fn closed_connection_does_not_drain() {
        let state = opened_ago(0);
        state.close();
        state.drain();
        assert!(state.is_closed() && !state.is_draining());
    }
}
