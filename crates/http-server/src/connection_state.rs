//! State of one connection: requests, what it holds in memory, deadlines, and the pending signal to close.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use std::{mem, time::Duration};

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use crate::limits::{
    FIELD_COST, FREE_COST, HTTP1_BUFFER, HTTP2_WINDOW, MAX_BLOCK_COST, REQUEST_COST, SMALL_RESPONSE,
};
use crate::{args::ServeArgs, header_blocks::BlockBytes};

/// A connection stands still after this long without progress.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// While a connection drains, the time for incomplete headers, and for the client to close the idle connection.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A signal to a connection to close. A higher value replaces a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectionSignal {
    /// Finish the requests in flight, then close.
    Drain,
    /// Close immediately: the grace period is over, or others need the connection's resources.
    Abort,
}

/// What a connection is doing. Of a network's connections, the one with the highest value is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectionUse {
    /// It has a request or a response, with progress. The costliest is evicted first, then the youngest.
    Busy { cost: usize, opened: Instant },
    /// It is idle, or its requests and responses have made no progress for [`STALL_TIMEOUT`].
    Still { time: Duration, is_idle: bool },
    /// The client has not sent a request yet.
    NoRequest(Duration),
}

impl ConnectionUse {
    /// Names for metrics.
    pub(crate) const NAMES: [&str; 4] = ["busy", "stalled", "idle", "no_request"];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[match self {
            Self::Busy { .. } => 0,
            Self::Still { is_idle, .. } => 1 + usize::from(is_idle),
            Self::NoRequest(_) => 3,
        }]
    }

    pub(crate) fn is_busy(self) -> bool {
        matches!(self, Self::Busy { .. })
    }

    /// Whether it has neither a request nor a response.
    pub(crate) fn is_idle(self) -> bool {
        matches!(self, Self::Still { is_idle: true, .. } | Self::NoRequest(_))
    }
}

/// What connections use together.
#[derive(Debug)]
pub(crate) struct Load {
    handshakes: AtomicUsize,
    /// The bytes that they make the process hold.
    cost: AtomicUsize,
    max_cost: usize,
    /// Requests being handled. Counted for the port only.
    handling: AtomicUsize,
}

impl Load {
    pub(crate) fn new(max_cost: usize) -> Self {
        let [handshakes, cost, handling] = [(); 3].map(|()| AtomicUsize::new(0));
        Self { handshakes, cost, max_cost, handling }
    }

    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.load(Relaxed)
    }

    pub(crate) fn cost(&self) -> usize {
        self.cost.load(Relaxed)
    }

    pub(crate) fn is_over_limit(&self) -> bool {
        self.cost() > self.max_cost
    }

    /// Whether an eighth of the limit is free.
    pub(crate) fn is_relieved(&self) -> bool {
        self.cost() <= self.max_cost / 8 * 7
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
    pub(crate) waker: AtomicWaker,
    activity: Mutex<Activity>,
}

/// What happens on a connection. Progress is the beginning and the end of a request, and bytes of a response that were
/// written. HTTP/2's control frames (PING, SETTINGS, WINDOW_UPDATE) are no progress.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    pub(crate) signal: Option<ConnectionSignal>,
    drain_started: Option<Instant>,
    /// When the handshake ended.
    established: Option<Instant>,
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
    /// Bytes that were read since the current headers began (HTTP/1), and while requests are open. Grows while requests
    /// overlap.
    read: usize,
    /// Bytes of HTTP/2 header blocks that are not a request yet.
    blocks: BlockBytes,
    /// The cost that port and network count.
    counted: usize,
    /// Whether the registry has let go of the connection. Then port and network count nothing of it.
    closed: bool,
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
    /// Whether there is no request and no response. Response bytes in TLS's buffer belong to none.
    fn is_idle(&self) -> bool {
        self.requests.is_empty() && !self.write_blocked
    }

    /// Whether a request has no response yet.
    fn has_open_request(&self) -> bool {
        self.requests.iter().any(|request| !request.has_response)
    }

    pub(crate) fn has_unsent_response(&self) -> bool {
        self.requests.iter().any(|request| request.has_response)
    }

    /// What the connection makes the process hold, beyond what each connection may. What hyper and h2 hide is counted by
    /// its bound.
    fn cost(&self) -> usize {
        let requests: usize = self.requests.iter().map(|request| REQUEST_COST + request.cost).sum();
        let is_reading = self.headers_started.is_some() || self.has_open_request();
        let buffer = if self.http2 { HTTP2_WINDOW as usize } else { HTTP1_BUFFER };
        let read = if is_reading { self.read.min(buffer) } else { 0 };
        let blocks = (self.blocks.read * FIELD_COST).min(MAX_BLOCK_COST);
        (requests + read + blocks).saturating_sub(FREE_COST)
    }

    /// When the connection must be closed, if nothing happens until then. Handshakes, and requests until their response
    /// begins, have deadlines of their own.
    fn deadline(&self, args: &ServeArgs) -> Option<Instant> {
        let responses = self.requests.iter().filter(|request| request.has_response);
        if !self.requests.is_empty() {
            return Some(responses.map(|request| request.last_progress).min()? + args.response_timeout);
        }
        let established = self.established?;
        let limit = |timeout: Duration| {
            if self.drain_started.is_some() { timeout.min(DRAIN_TIMEOUT) } else { timeout }
        };
        let (header_timeout, idle_timeout) = (limit(args.header_timeout), limit(args.idle_timeout));
        let last_progress = self.last_progress.max(self.drain_started).unwrap_or(established);
        Some(match self.headers_started {
            _ if !self.served => established + header_timeout,
            _ if self.write_blocked => last_progress + args.response_timeout,
            // The later of the two: with pipelining, the next request may arrive before the last response is written.
            Some(started) => started.max(last_progress) + header_timeout,
            _ => last_progress + idle_timeout,
        })
    }
}

impl ConnectionState {
    pub(crate) fn new(port: Arc<Load>, args: ServeArgs, has_handshake: bool) -> Self {
        let opened = Instant::now();
        let established = (!has_handshake).then_some(opened);
        Self {
            opened,
            args,
            port,
            network: OnceLock::new(),
            waker: AtomicWaker::new(),
            activity: Mutex::new(Activity { established, ..Activity::default() }),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loads(&self) -> impl Iterator<Item = &Load> {
        self.network.get().map(|network| &*network.load).into_iter().chain([&*self.port])
    }

    /// The load counts the connection from now on. It has no cost before its handshake ends.
    pub(crate) fn count_in(&self, load: &Load) {
        load.handshakes.fetch_add(usize::from(self.is_in_handshake()), Relaxed);
    }

    pub(crate) fn is_in_handshake(&self) -> bool {
        self.lock().established.is_none()
    }

    pub(crate) fn end_handshake(&self) {
        let mut activity = self.lock();
        if activity.established.replace(Instant::now()).is_none() && !activity.closed {
            for load in self.loads() {
                load.handshakes.fetch_sub(1, Relaxed);
            }
        }
    }

    /// Removes the connection from what port and network count.
    pub(crate) fn close(&self) {
        self.end_handshake();
        let mut activity = self.lock();
        activity.closed = true;
        self.count(&mut activity);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Updates what port and network count.
    fn count(&self, activity: &mut Activity) {
        let cost = if activity.closed { 0 } else { activity.cost() };
        let before = mem::replace(&mut activity.counted, cost);
        if cost != before {
            for load in self.loads() {
                load.cost.fetch_add(cost.wrapping_sub(before), Relaxed);
            }
        }
    }

    /// What port and network count.
    pub(crate) fn counted_cost(&self) -> usize {
        self.lock().counted
    }

    /// Whether the connections of the port or of the network cost too much.
    pub(crate) fn exceeds_limit(&self) -> bool {
        self.loads().any(Load::is_over_limit)
    }

    /// Records bytes that were read, before hyper decodes them. On HTTP/2, `blocks` says how many are in header blocks.
    pub(crate) fn on_read(&self, bytes: usize, blocks: Option<BlockBytes>) {
        let mut activity = self.lock();
        let is_open = activity.has_open_request();
        if !is_open && (blocks.is_some() || activity.headers_started.is_none()) {
            activity.read = 0;
        }
        if is_open || blocks.is_none() {
            activity.read += bytes;
        }
        if blocks.is_some_and(|blocks| blocks.unfinished == 0) {
            activity.headers_started = None;
        } else if blocks.is_some() || !is_open {
            activity.headers_started.get_or_insert_with(Instant::now);
        }
        activity.blocks = blocks.unwrap_or_default();
        self.count(&mut activity);
    }

    /// The socket accepted bytes, or more bytes must wait.
    pub(crate) fn on_write(&self, blocked: bool) {
        let mut activity = self.lock();
        activity.write_blocked = blocked;
        if !blocked && !activity.http2 {
            activity.last_progress = Some(Instant::now());
        }
    }

    /// The headers of a request have arrived: this many fields, with this many bytes in all.
    pub(crate) fn on_request(self: &Arc<Self>, bytes: usize, fields: usize) -> UnfinishedRequest {
        let (mut activity, now) = (self.lock(), Instant::now());
        (activity.served, activity.last_progress) = (true, Some(now));
        if activity.blocks.unfinished == 0 {
            activity.headers_started = None;
        }
        activity.blocks.read = activity.blocks.unfinished;
        activity.next_id += 1;
        let (id, cost) = (activity.next_id, bytes + fields * FIELD_COST);
        activity.requests.push(RequestEntry { id, cost, has_response: false, last_progress: now });
        self.count(&mut activity);
        drop(activity);
        UnfinishedRequest { state: self.clone(), id, is_handled: false }
    }

    /// Whether any connection of the port has a request that is being handled.
    pub(crate) fn port_is_handling(&self) -> bool {
        self.port.handling.load(Relaxed) > 0
    }

    /// Whether there is no request, and no response bytes wait for the socket.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().is_idle()
    }

    /// What the connection is doing.
    ///
    /// On HTTP/2, each request has its own progress: that of others is none of it.
    pub(crate) fn current_use(&self) -> ConnectionUse {
        let activity = self.lock();
        let oldest = activity.requests.iter().map(|request| request.last_progress).min();
        let last_progress = oldest.filter(|_| activity.http2).or(activity.last_progress);
        let time = last_progress.unwrap_or(self.opened).elapsed();
        match (activity.served, activity.is_idle()) {
            (false, _) => ConnectionUse::NoRequest(time),
            (true, false) if time < STALL_TIMEOUT => {
                ConnectionUse::Busy { cost: activity.counted, opened: self.opened }
            }
            (true, is_idle) => ConnectionUse::Still { time, is_idle },
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lock().deadline(&self.args)
    }

    pub(crate) fn send_signal(&self, signal: ConnectionSignal) {
        let mut activity = self.lock();
        activity.signal = activity.signal.max(Some(signal));
        if signal == ConnectionSignal::Drain {
            activity.drain_started.get_or_insert_with(Instant::now);
        }
        drop(activity);
        self.waker.wake();
    }
}

/// A request that has arrived. It ends, by being dropped, when hyper and h2 have released all data of its response.
#[derive(Debug)]
pub(crate) struct UnfinishedRequest {
    state: Arc<ConnectionState>,
    id: u64,
    /// Whether the port counts it among the requests being handled.
    is_handled: bool,
}

impl UnfinishedRequest {
    /// Begins to handle the request. Returns false if the connection must close: then the request must not be handled.
    pub(crate) fn begin(&mut self) -> bool {
        self.is_handled = self.state.lock().signal != Some(ConnectionSignal::Abort);
        if self.is_handled {
            self.state.port.handling.fetch_add(1, Relaxed);
        }
        self.is_handled
    }

    /// Begins the response, with this many bytes in memory of its own. Of a response of unknown length, only
    /// [`REQUEST_COST`] counts: hyper takes little of it at a time.
    pub(crate) fn respond(&mut self, own_bytes: usize) {
        self.end_handling();
        let cost = own_bytes.saturating_sub(SMALL_RESPONSE);
        self.update(|entry| (entry.cost, entry.has_response) = (cost, true));
    }

    /// A piece of the response was produced, written, or discarded with its stream.
    pub(crate) fn on_progress(&self) {
        self.update(|_| {});
    }

    fn update(&self, change: impl Fn(&mut RequestEntry)) {
        let (mut activity, now) = (self.state.lock(), Instant::now());
        for entry in activity.requests.iter_mut().filter(|entry| entry.id == self.id) {
            entry.last_progress = now;
            change(entry);
        }
        activity.last_progress = Some(now);
        self.state.count(&mut activity);
    }

    fn end_handling(&mut self) {
        if mem::take(&mut self.is_handled) {
            self.state.port.handling.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for UnfinishedRequest {
    fn drop(&mut self) {
        self.end_handling();
        let mut activity = self.state.lock();
        activity.requests.retain(|entry| entry.id != self.id);
        // Header blocks that became no request, such as trailers, are handled by now.
        activity.blocks.read = activity.blocks.unfinished;
        activity.last_progress = Some(Instant::now());
        self.state.count(&mut activity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection of a network, opened this many seconds ago.
    fn opened_ago(seconds: u64) -> Arc<ConnectionState> {
        let opened = Instant::now() - Duration::from_secs(seconds);
        let load = || Arc::new(Load::new(1 << 20));
        let state = ConnectionState::new(load(), ServeArgs::default(), false);
        state.lock().established = Some(opened);
        let address = IpAddr::from([192, 0, 2, 1]);
        let _ = state.network.set(Network { key: address, subnet: address, load: load() });
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
        state.on_read(1, None);
        assert_eq!(remaining(&state), Some(6.0), "the first headers count from the end of the handshake");
        let request = state.on_request(1, 1);
        assert_eq!(remaining(&state), None, "a request is being handled");
        drop(request);
        assert_eq!(remaining(&state), Some(75.0), "idle");
        state.lock().last_progress = ago(50);
        state.lock().headers_started = ago(3);
        state.on_read(1, None);
        assert_eq!(remaining(&state), Some(7.0), "the next headers count from their first byte");
        state.lock().http2 = true;
        state.on_read(17, blocks(0, 0));
        assert_eq!(remaining(&state), Some(25.0), "an HTTP/2 ping");
        state.on_read(17, blocks(17, 17));
        assert_eq!(remaining(&state), Some(10.0), "an unfinished header block");
        state.on_read(1, blocks(1, 0));
        state.lock().write_blocked = true;
        state.lock().last_progress = ago(10);
        assert_eq!(remaining(&state), Some(20.0), "the end of a response waits for the socket");
    }

    #[tokio::test]
    async fn handshake_has_no_deadline_of_the_connection() {
        let state = ConnectionState::new(Arc::new(Load::new(0)), ServeArgs::default(), true);
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
            let counted = state.counted_cost();
            assert!(state.loads().all(|load| load.cost() == counted));
            counted
        };
        let few = state.on_request(100, 10);
        assert_eq!(costs(), 0, "each connection may hold an ordinary request");
        let mut many = state.on_request(9_000, 90);
        let fields = (10 + 90) * FIELD_COST;
        assert_eq!(costs(), 2 * REQUEST_COST + 9_100 + fields - FREE_COST);
        state.on_read(10_000, None);
        state.on_read(1 << 20, None);
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
        state.on_read(1_000, blocks(1_000, 900));
        assert_eq!(costs(), 1_000 * FIELD_COST - FREE_COST, "h2 may decode as many fields as bytes");
        drop(state.on_request(0, 0));
        assert_eq!(costs(), 900 * FIELD_COST - FREE_COST, "the unfinished block");
        state.on_read(1 << 20, blocks(1 << 20, 1 << 20));
        assert_eq!(costs(), MAX_BLOCK_COST - FREE_COST);
        state.close();
        assert_eq!(costs(), 0, "an evicted connection counts no more");
    }

    #[tokio::test]
    async fn request_of_an_aborted_connection_does_not_begin() {
        let state = opened_ago(0);
        let mut request = state.on_request(0, 0);
        state.send_signal(ConnectionSignal::Abort);
        assert!(!request.begin());
    }

    #[tokio::test]
    async fn connection_stands_still_5_s_after_its_last_progress() {
        let state = opened_ago(100);
        let is = |name| assert_eq!(state.current_use().name(), name);
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
        assert!(state.current_use().is_busy());
        state.lock().requests[0].last_progress = ago(6).expect("a time");
        drop(state.on_request(0, 0));
        assert!(!state.current_use().is_busy());
        unread.on_progress();
        assert!(state.current_use().is_busy());
    }

    #[tokio::test]
    async fn idle_connection_has_one_second_to_drain() {
        let state = opened_ago(100);
        drop(state.on_request(0, 0));
        state.lock().last_progress = ago(50);
        state.send_signal(ConnectionSignal::Drain);
        assert_eq!(remaining(&state), Some(1.0));
    }

    #[test]
    fn lower_signal_does_not_replace_a_higher_one() {
        let state = opened_ago(0);
        state.send_signal(ConnectionSignal::Abort);
        state.send_signal(ConnectionSignal::Drain);
        assert_eq!(state.lock().signal, Some(ConnectionSignal::Abort));
    }
}
