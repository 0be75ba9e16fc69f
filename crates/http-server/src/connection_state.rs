//! State of one connection: requests, unsent responses, deadlines, and the pending signal to close.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::{AbortHandle, AbortRegistration};
use futures_util::task::AtomicWaker;
use tokio::{sync::Notify, time::Instant};

use crate::{args::ServeArgs, registry::Load};

/// Above this many unsent bytes, the next requests of the connection wait.
const CONNECTION_UNSENT_LIMIT: usize = 64 * 1024;

/// Memory of a response besides its body: headers, the state of its stream, buffers. A request counts this much until its
/// response exists.
const RESPONSE_OVERHEAD: usize = 2 * 1024;

/// The response timeout applies once, and once more for each part of this size.
const BYTES_PER_TIMEOUT: u32 = 256 * 1024;

/// A connection may be evicted in the middle of a response after this long without progress. Also the time for h2 to
/// release the data of a reset stream; then the connection is closed.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// While a connection drains, the time for incomplete headers, and for the client to close the idle connection.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A signal to a connection to close. A higher value replaces a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectionSignal {
    /// Close unless busy, to make room for other connections.
    Evict,
    /// Finish the requests in flight, then close.
    Drain,
    /// Close immediately: the grace period is over, or others need the connection's resources.
    Abort,
}

/// Why a connection may be evicted. Among networks that use about as much, those with a lower value are evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvictionClass {
    /// The client has not sent a request yet.
    NoRequest,
    /// No request is being handled, and nothing is being sent.
    Idle,
    /// The client does not read one of its responses.
    Stalled,
    /// Evicted only for a client of another network, if its own network has more than half of all connections.
    Busy,
}

/// Shared by the connection's task, its streams and the registry.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    opened: Instant,
    args: ServeArgs,
    /// All connections of the port.
    port: Arc<Load>,
    /// The connections of the client's network. Not set for trusted proxies.
    pub(crate) network: OnceLock<Arc<Load>>,
    pub(crate) waker: AtomicWaker,
    /// Notified when a request has ended, or when all data of a response has been released.
    room: Notify,
    activity: Mutex<Activity>,
}

/// What happens on a connection. Progress is the end of a request, and bytes of a response that were written. HTTP/2's
/// control frames (PING, SETTINGS, WINDOW_UPDATE) are no progress.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    pub(crate) signal: Option<ConnectionSignal>,
    drain_started: Option<Instant>,
    /// When the handshake ended.
    pub(crate) established: Option<Instant>,
    /// Whether a first request has begun.
    served: bool,
    pub(crate) http2: bool,
    /// The number of requests being handled. Requests that wait for `room` are not among them.
    handling: usize,
    /// When the first byte of the current headers arrived. `None` if no headers are being read.
    headers_started: Option<Instant>,
    last_progress: Option<Instant>,
    /// Whether bytes must wait: the last write found the socket's send buffer full, or lets other tasks run first.
    pub(crate) write_blocked: bool,
    /// The bytes of all responses that are not written to the socket yet.
    pub(crate) unsent: usize,
    /// The responses of which hyper or h2 still holds data.
    responses: Vec<ResponseEntry>,
    next_id: u64,
    /// Passes the abort registration of a new HTTP/2 stream from the service to the executor.
    pub(crate) next_stream: Option<AbortRegistration>,
}

/// An unfinished response.
#[derive(Debug)]
struct ResponseEntry {
    id: u64,
    deadline: Instant,
    /// When it began, or its last piece was written.
    last_progress: Instant,
    /// The HTTP/2 stream, as long as hyper has data of the response. h2 can't be told to reset a stream.
    stream: Option<AbortHandle>,
}

impl Activity {
    /// Whether response bytes wait for the socket. Headers and bytes in TLS's buffer are not in `unsent`.
    fn is_sending(&self) -> bool {
        self.unsent > 0 || self.write_blocked
    }

    /// Begins a request if there is room, or if it must not wait. There is room below the connection's limit; while the port
    /// is above its own, only if the connection has no other request and no unsent response.
    fn try_begin(&mut self, port: &Load, may_wait: bool) -> bool {
        (self.served, self.headers_started) = (true, None);
        let used = self.unsent + self.handling * RESPONSE_OVERHEAD;
        let limit = if port.is_full() { 0 } else { CONNECTION_UNSENT_LIMIT };
        let has_room = used == 0 || used < limit || !may_wait;
        if has_room {
            self.handling += 1;
            port.handling.fetch_add(1, Relaxed);
        }
        has_room
    }

    /// The deadline of the connection; none during a handshake and while a request is being handled or a response is being
    /// sent, which have deadlines of their own.
    ///
    /// HTTP/2 pings and window updates look like the start of headers. So on HTTP/2 the header timeout applies only to
    /// the first request; afterwards the idle timeout applies.
    fn deadline(&self, args: &ServeArgs) -> Option<Instant> {
        if self.handling > 0 || self.unsent > 0 {
            return None;
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
            Some(started) if !self.http2 => started.max(last_progress) + header_timeout,
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
            room: Notify::new(),
            activity: Mutex::new(Activity { established, ..Activity::default() }),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes were read. Between requests, they start the next request's headers.
    pub(crate) fn on_read(&self) {
        let mut activity = self.lock();
        if activity.handling == 0 {
            activity.headers_started.get_or_insert_with(Instant::now);
        }
    }

    /// The socket accepted bytes, or more bytes must wait.
    pub(crate) fn on_write(&self, blocked: bool) {
        let mut activity = self.lock();
        activity.write_blocked = blocked;
        if !blocked && !activity.http2 {
            activity.last_progress = Some(Instant::now());
        }
    }

    /// Begins a request whose headers have arrived. With `may_wait`, waits until there is room. The request ends when the
    /// guard is dropped.
    pub(crate) async fn begin_request(self: &Arc<Self>, may_wait: bool) -> RequestGuard {
        if !self.lock().try_begin(&self.port, may_wait) {
            // Boxed: few requests wait, but all would reserve space for it.
            Box::pin(async {
                loop {
                    let mut notified = std::pin::pin!(self.room.notified());
                    notified.as_mut().enable();
                    if self.lock().try_begin(&self.port, true) {
                        return;
                    }
                    notified.await;
                }
            })
            .await;
        }
        RequestGuard(self.clone())
    }

    /// Whether any connection of the port has a request that is being handled.
    pub(crate) fn port_is_handling(&self) -> bool {
        self.port.handling.load(Relaxed) > 0
    }

    /// Whether a request is being handled or its response is being sent.
    pub(crate) fn is_busy(&self) -> bool {
        let activity = self.lock();
        activity.handling > 0 || activity.is_sending()
    }

    /// Why the connection may be closed to make room, and the time without progress.
    ///
    /// On HTTP/2, each response has its own: other requests on the connection are no progress of a response.
    pub(crate) fn eviction_class(&self) -> (EvictionClass, Duration) {
        let activity = self.lock();
        let oldest = activity.responses.iter().map(|response| response.last_progress).min();
        let last_progress = oldest.filter(|_| activity.http2).or(activity.last_progress);
        let idle = last_progress.unwrap_or(self.opened).elapsed();
        let class = match (activity.handling, activity.served, activity.is_sending()) {
            (0, false, _) => EvictionClass::NoRequest,
            (0, true, false) => EvictionClass::Idle,
            (0, true, true) if idle >= STALL_TIMEOUT => EvictionClass::Stalled,
            _ => EvictionClass::Busy,
        };
        (class, idle)
    }

    /// When to call [`Self::has_timed_out`] next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let activity = self.lock();
        let responses = activity.responses.iter().map(|response| response.deadline);
        activity.deadline(&self.args).into_iter().chain(responses).min()
    }

    /// Whether the connection must be closed. If the client has not read a response in time, its stream is reset; the
    /// connection is closed if that is not possible anymore.
    pub(crate) fn has_timed_out(&self) -> bool {
        let (now, mut activity) = (Instant::now(), self.lock());
        let mut timed_out = activity.deadline(&self.args).is_some_and(|deadline| deadline <= now);
        for response in activity.responses.iter_mut().filter(|response| response.deadline <= now) {
            timed_out |= response.stream.take().inspect(AbortHandle::abort).is_none();
            response.deadline = now + STALL_TIMEOUT;
        }
        timed_out
    }

    /// A response of this length begins, with this many bytes in memory of its own. `stream` is its HTTP/2 stream.
    pub(crate) fn begin_response(
        self: &Arc<Self>,
        stream: Option<AbortHandle>,
        length: usize,
        own_bytes: usize,
    ) -> Arc<UnsentResponse> {
        let (bytes, deadline) = (own_bytes + RESPONSE_OVERHEAD, self.response_deadline(length));
        let mut activity = self.lock();
        activity.next_id += 1;
        activity.unsent += bytes;
        let id = activity.next_id;
        activity.responses.push(ResponseEntry { id, deadline, last_progress: Instant::now(), stream });
        drop(activity);
        for load in self.loads() {
            load.unsent.fetch_add(bytes, Relaxed);
        }
        Arc::new(UnsentResponse { state: self.clone(), id, bytes })
    }

    /// What all connections of the network and of the port use.
    fn loads(&self) -> impl Iterator<Item = &Arc<Load>> {
        self.network.get().into_iter().chain([&self.port])
    }

    /// When a response of this length that begins now must be read.
    fn response_deadline(&self, length: usize) -> Instant {
        let parts = u32::try_from(length).unwrap_or(u32::MAX) / BYTES_PER_TIMEOUT;
        Instant::now() + self.args.response_timeout * (parts + 1)
    }

    /// Creates the abort handle of a new HTTP/2 stream, and keeps its registration for the executor.
    pub(crate) fn new_stream(&self) -> AbortHandle {
        let (handle, registration) = AbortHandle::new_pair();
        self.lock().next_stream = Some(registration);
        handle
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

/// Marks a request as being handled until dropped.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionState>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut activity = self.0.lock();
        activity.handling -= 1;
        activity.last_progress = Some(Instant::now());
        drop(activity);
        self.0.port.handling.fetch_sub(1, Relaxed);
        self.0.room.notify_waiters();
    }
}

/// Counts a response as unsent until hyper and h2 have released all of its data. Of a response of unknown length, only
/// the overhead counts: hyper takes little of it at a time.
#[derive(Debug)]
pub(crate) struct UnsentResponse {
    state: Arc<ConnectionState>,
    id: u64,
    bytes: usize,
}

impl UnsentResponse {
    fn change(&self, change: impl Fn(&mut ResponseEntry)) {
        self.state.lock().responses.iter_mut().filter(|entry| entry.id == self.id).for_each(change);
    }

    /// More data of a response of unknown length, which gets more time.
    pub(crate) fn on_more_data(&self, bytes: usize) {
        let deadline = self.state.response_deadline(bytes);
        self.change(|entry| entry.deadline = entry.deadline.max(deadline));
    }

    /// A piece of the response was written, or discarded with its stream.
    pub(crate) fn on_piece_released(&self) {
        self.change(|entry| entry.last_progress = Instant::now());
    }

    /// hyper has no more data of the response, so its stream can't be reset anymore.
    pub(crate) fn on_handed_over(&self) {
        self.change(|entry| entry.stream = None);
    }
}

impl Drop for UnsentResponse {
    fn drop(&mut self) {
        let mut activity = self.state.lock();
        activity.unsent -= self.bytes;
        activity.responses.retain(|entry| entry.id != self.id);
        if activity.http2 {
            activity.last_progress = Some(Instant::now());
        }
        drop(activity);
        for load in self.state.loads() {
            load.unsent.fetch_sub(self.bytes, Relaxed);
        }
        self.state.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// A connection opened this many seconds ago.
    fn opened_ago(seconds: u64) -> Arc<ConnectionState> {
        let opened = Instant::now() - Duration::from_secs(seconds);
        let state = ConnectionState::new(Arc::default(), ServeArgs::default(), false);
        state.lock().established = Some(opened);
        Arc::new(ConnectionState { opened, ..state })
    }

    fn ago(seconds: u64) -> Option<Instant> {
        Some(Instant::now() - Duration::from_secs(seconds))
    }

    async fn begin(state: &Arc<ConnectionState>) -> RequestGuard {
        state.begin_request(true).await
    }

    /// Seconds until the deadline.
    fn remaining(state: &ConnectionState) -> Option<f64> {
        Some((state.next_deadline()? - Instant::now()).as_secs_f64().round())
    }

    #[tokio::test]
    async fn header_and_idle_timeouts_follow_the_requests_of_a_connection() {
        let state = opened_ago(4);
        state.on_read();
        assert_eq!(remaining(&state), Some(6.0), "the first headers count from the end of the handshake");
        let request = begin(&state).await;
        assert_eq!(remaining(&state), None, "a request is being handled");
        drop(request);
        assert_eq!(remaining(&state), Some(75.0), "idle");
        state.lock().last_progress = ago(50);
        state.lock().headers_started = ago(3);
        state.on_read();
        assert_eq!(remaining(&state), Some(7.0), "the next headers count from their first byte");
        state.lock().http2 = true;
        assert_eq!(remaining(&state), Some(25.0), "on HTTP/2, bytes may be pings");
        state.lock().write_blocked = true;
        state.lock().last_progress = ago(10);
        assert_eq!(remaining(&state), Some(20.0), "the end of a response waits for the socket");
    }

    #[tokio::test]
    async fn handshake_has_no_deadline_of_the_connection() {
        let state = ConnectionState::new(Arc::default(), ServeArgs::default(), true);
        assert_eq!(remaining(&state), None);
    }

    #[tokio::test]
    async fn overdue_response_is_reset_while_hyper_has_its_stream() {
        let state = opened_ago(100);
        let stream = AbortHandle::new_pair().0;
        let response = state.begin_response(Some(stream.clone()), 600 * 1024, 0);
        assert_eq!(remaining(&state), Some(90.0), "30 s, and 30 s for each 256 KiB");
        let expire = || state.lock().responses[0].deadline = Instant::now();
        assert!(!state.has_timed_out());
        expire();
        assert!(!state.has_timed_out() && stream.is_aborted());
        expire();
        assert!(state.has_timed_out(), "the stream has not ended, so the connection is closed");
        drop(response);
        assert!(state.lock().responses.is_empty());
        let response = state.begin_response(Some(AbortHandle::new_pair().0), 1, 1);
        response.on_handed_over();
        expire();
        assert!(state.has_timed_out(), "h2 has the data");
    }

    #[tokio::test]
    async fn unsent_bytes_count_for_connection_network_and_port_until_dropped() {
        let (port, network) = (Arc::<Load>::default(), Arc::<Load>::default());
        let state = Arc::new(ConnectionState::new(port.clone(), ServeArgs::default(), false));
        state.network.set(network.clone()).expect("not set");
        let response = state.begin_response(None, 1000, 1000);
        let unsent = |counter: &AtomicUsize| counter.load(Relaxed);
        let counts = [state.lock().unsent, unsent(&port.unsent), unsent(&network.unsent)];
        assert_eq!(counts, [1000 + RESPONSE_OVERHEAD; 3]);
        drop(response);
        assert_eq!([state.lock().unsent, unsent(&port.unsent), unsent(&network.unsent)], [0; 3]);
    }

    #[tokio::test]
    async fn on_a_full_port_a_connection_has_one_request_at_a_time() {
        let port = Arc::<Load>::default();
        let state = Arc::new(ConnectionState::new(port.clone(), ServeArgs::default(), false));
        port.unsent.store(1 << 30, Relaxed);
        let request = begin(&state).await;
        assert!(!state.lock().try_begin(&port, true));
        let response = state.begin_response(None, 10, 10);
        drop(request);
        assert!(!state.lock().try_begin(&port, true), "its response is unsent");
        drop(response);
        assert!(state.lock().try_begin(&port, true));
    }

    #[tokio::test]
    async fn busy_connection_is_evictable_after_a_stall() {
        let state = opened_ago(100);
        let class = || state.eviction_class().0;
        assert_eq!(class(), EvictionClass::NoRequest);
        let request = begin(&state).await;
        assert_eq!(class(), EvictionClass::Busy, "a request is being handled");
        let response = state.begin_response(None, 1, 1);
        drop(request);
        assert_eq!(class(), EvictionClass::Busy, "a response is being sent");
        state.lock().last_progress = ago(6);
        assert_eq!(class(), EvictionClass::Stalled);
        drop(response);
        assert_eq!(class(), EvictionClass::Idle);
    }

    #[tokio::test]
    async fn other_requests_are_no_progress_of_an_unread_http2_response() {
        let state = opened_ago(100);
        state.lock().http2 = true;
        let unread = state.begin_response(None, 1, 1);
        drop(begin(&state).await);
        assert_eq!(state.eviction_class().0, EvictionClass::Busy);
        state.lock().responses[0].last_progress = ago(6).expect("a time");
        drop(begin(&state).await);
        assert_eq!(state.eviction_class().0, EvictionClass::Stalled);
        unread.on_piece_released();
        assert_eq!(state.eviction_class().0, EvictionClass::Busy);
    }

    #[tokio::test]
    async fn idle_connection_has_one_second_to_drain() {
        let state = opened_ago(100);
        drop(begin(&state).await);
        state.lock().last_progress = ago(50);
        state.send_signal(ConnectionSignal::Drain);
        assert_eq!(remaining(&state), Some(1.0));
    }

    #[test]
    fn lower_signal_does_not_replace_a_higher_one() {
        let state = opened_ago(0);
        state.send_signal(ConnectionSignal::Drain);
        state.send_signal(ConnectionSignal::Evict);
        assert_eq!(state.lock().signal, Some(ConnectionSignal::Drain));
    }
}
