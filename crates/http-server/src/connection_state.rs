//! The state of one connection: its requests, its unsent responses, when it times out, and the signal sent to it.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::{
    future::{AbortHandle, AbortRegistration},
    task::AtomicWaker,
};
use tokio::{sync::Notify, time::Instant};

use crate::{
    args::ServeArgs,
    registry::{Load, PORT_UNSENT_LIMIT},
};

/// Above this many unsent bytes, the next requests of the connection wait.
const CONNECTION_UNSENT_LIMIT: usize = 64 * 1024;

/// What a response takes in addition to its body: headers, the state of its stream, buffers. Requests count this much
/// until their response has its real size.
pub(crate) const RESPONSE_OVERHEAD: usize = 2 * 1024;

/// A response may take the response timeout, and once more for each part of this size: 8.5 KiB per second by default.
const TIMEOUT_BYTES: u64 = 256 * 1024;

/// A connection may be evicted in the middle of a response after this long without progress.
const EVICTION_STALL: Duration = Duration::from_secs(5);

/// Time for a reset stream to give up its data. Then its connection is closed.
const RESET_TIMEOUT: Duration = Duration::from_secs(5);

/// A signal to a connection to close. A higher value replaces a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectionSignal {
    /// Close unless busy, to make room for other connections.
    Evict = 1,
    /// Finish the requests in flight, then close.
    Drain = 2,
    /// Close immediately: the grace period is over.
    Abort = 3,
}

/// Why a connection may be evicted. Those with a lower value are evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvictionClass {
    /// The client has not sent a request yet.
    NoRequest,
    Idle,
    /// The client does not read its responses.
    Stalled,
}

/// Shared by the connection's task, its streams and the registry. Uses atomics where every read or request updates it.
///
/// Progress is the start of a request and bytes of a response that were written. On HTTP/2, bytes that are not part of
/// a response (PING, SETTINGS, WINDOW_UPDATE) are no progress.
///
/// Times are in milliseconds since `opened`, plus 1; 0 means never.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    opened: Instant,
    /// Minimum time to read a response.
    response_timeout: Duration,
    /// All connections of the port.
    port: Arc<Load>,
    /// The connections of the client's network. Not set for trusted proxies.
    network: OnceLock<Arc<Load>>,
    /// The position in the registry. Changed only under its lock.
    pub(crate) index: AtomicUsize,
    handshaking: AtomicBool,
    /// When the handshake ended.
    established: AtomicU64,
    /// Whether a first request has begun.
    served: AtomicBool,
    http2: AtomicBool,
    /// The number of requests being handled. Requests that wait for `room` are not among them.
    handling: AtomicUsize,
    /// When the first byte of the current headers arrived; 0 if no headers are being read.
    headers_started: AtomicU64,
    last_progress: AtomicU64,
    /// Whether the last write found the socket's send buffer full.
    write_blocked: AtomicBool,
    /// The bytes of all responses that are not written to the socket yet.
    unsent: AtomicUsize,
    /// Notified when a request or a part of a response has ended.
    room: Notify,
    responses: Mutex<Vec<Weak<UnsentResponse>>>,
    /// No response is overdue before this time; `u64::MAX` if there are none. Changed only under the lock of `responses`.
    next_response_deadline: AtomicU64,
    /// Passes the abort registration of a new HTTP/2 stream from the service to the executor.
    next_stream: Mutex<Option<AbortRegistration>>,
    signal: AtomicU8,
    pub(crate) waker: AtomicWaker,
}

impl ConnectionState {
    pub(crate) fn new(port: Arc<Load>, response_timeout: Duration, handshaking: bool) -> Self {
        Self {
            opened: Instant::now(),
            response_timeout,
            port,
            network: OnceLock::new(),
            index: AtomicUsize::new(0),
            handshaking: AtomicBool::new(handshaking),
            established: AtomicU64::new(0),
            served: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            handling: AtomicUsize::new(0),
            headers_started: AtomicU64::new(0),
            last_progress: AtomicU64::new(0),
            write_blocked: AtomicBool::new(false),
            unsent: AtomicUsize::new(0),
            room: Notify::new(),
            responses: Mutex::default(),
            next_response_deadline: AtomicU64::new(u64::MAX),
            next_stream: Mutex::default(),
            signal: AtomicU8::new(0),
            waker: AtomicWaker::new(),
        }
    }

    pub(crate) fn network(&self) -> Option<&Arc<Load>> {
        self.network.get()
    }

    /// Sets the client's network. Only the first call has an effect.
    pub(crate) fn set_network(&self, network: Arc<Load>) {
        let _ = self.network.set(network);
    }

    pub(crate) fn end_handshake(&self) {
        self.established.store(self.now(), Relaxed);
        self.handshaking.store(false, Relaxed);
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.handshaking.load(Relaxed)
    }

    pub(crate) fn set_http2(&self) {
        self.http2.store(true, Relaxed);
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.http2.load(Relaxed)
    }

    /// Bytes were read. Between requests, they start the next request's headers.
    pub(crate) fn on_read(&self) {
        if self.handling.load(Relaxed) == 0 && self.headers_started.load(Relaxed) == 0 {
            self.headers_started.store(self.now(), Relaxed);
        }
    }

    /// The socket accepted bytes, or has no room for more.
    pub(crate) fn on_write(&self, blocked: bool) {
        self.write_blocked.store(blocked, Relaxed);
        if !blocked && !self.is_http2() {
            self.on_progress();
        }
    }

    pub(crate) fn set_write_blocked(&self, blocked: bool) {
        self.write_blocked.store(blocked, Relaxed);
    }

    fn on_progress(&self) {
        self.last_progress.store(self.now(), Relaxed);
    }

    /// A request's headers have arrived. Waits while the connection's responses are unread, then begins the request,
    /// which ends when the guard is dropped.
    pub(crate) async fn begin_request(self: &Arc<Self>) -> RequestGuard {
        self.served.store(true, Relaxed);
        self.headers_started.store(0, Relaxed);
        if !self.try_begin() {
            // Boxed: few requests wait, but all would reserve space for it.
            Box::pin(self.wait_for_room()).await;
        }
        RequestGuard(self.clone())
    }

    async fn wait_for_room(&self) {
        loop {
            let mut notified = std::pin::pin!(self.room.notified());
            notified.as_mut().enable();
            if self.try_begin() {
                return;
            }
            notified.await;
        }
    }

    /// Begins a request if the connection is below its limit. While the port is above its own, a connection with unsent
    /// bytes has no room, and others have room for one request at a time.
    fn try_begin(&self) -> bool {
        let handling = self.handling.fetch_add(1, Relaxed);
        let used = self.unsent.load(Relaxed) + handling * RESPONSE_OVERHEAD;
        let has_room = used == 0
            || (used < CONNECTION_UNSENT_LIMIT && self.port.unsent.load(Relaxed) <= PORT_UNSENT_LIMIT);
        if !has_room {
            self.handling.fetch_sub(1, Relaxed);
        }
        has_room
    }

    /// Whether a request is being handled or its response is being sent.
    pub(crate) fn is_busy(&self) -> bool {
        self.handling.load(Relaxed) > 0 || self.is_sending()
    }

    /// Whether a response is being sent. After hyper has taken the last piece of a response, part of it may still wait
    /// for the socket.
    fn is_sending(&self) -> bool {
        self.unsent.load(Relaxed) > 0 || self.write_blocked.load(Relaxed)
    }

    pub(crate) fn unsent(&self) -> usize {
        self.unsent.load(Relaxed)
    }

    /// Why the connection may be closed to make room. `None` if it must not: it is busy, or closing already.
    pub(crate) fn eviction_class(&self) -> Option<EvictionClass> {
        if self.handling.load(Relaxed) > 0 {
            None
        } else if !self.served.load(Relaxed) {
            Some(EvictionClass::NoRequest)
        } else if !self.is_sending() {
            Some(EvictionClass::Idle)
        } else {
            (self.since_progress() >= EVICTION_STALL).then_some(EvictionClass::Stalled)
        }
    }

    /// The time since the last progress.
    pub(crate) fn since_progress(&self) -> Duration {
        self.at(self.last_progress.load(Relaxed)).elapsed()
    }

    /// The deadline of the connection; none while a request is being handled or a response is being sent, which have
    /// deadlines of their own.
    ///
    /// HTTP/2 pings and window updates look like the start of headers. So on HTTP/2 the header timeout applies only to
    /// the first request; afterwards the idle timeout applies.
    pub(crate) fn deadline(&self, args: &ServeArgs) -> Option<Instant> {
        if self.handling.load(Relaxed) > 0 || self.unsent.load(Relaxed) > 0 {
            return None;
        }
        if !self.served.load(Relaxed) {
            return Some(self.at(self.established.load(Relaxed)) + args.header_timeout);
        }
        let last_progress = self.last_progress.load(Relaxed);
        Some(match self.headers_started.load(Relaxed) {
            _ if self.write_blocked.load(Relaxed) => self.at(last_progress) + self.response_timeout,
            started if started > 0 && !self.is_http2() => {
                // The later of the two: with pipelining, the next request may arrive before the last response is written.
                self.at(started.max(last_progress)) + args.header_timeout
            }
            _ => self.at(last_progress) + args.idle_timeout,
        })
    }

    /// When to call [`Self::end_overdue_responses`] next.
    pub(crate) fn next_response_deadline(&self) -> Option<Instant> {
        let next = self.next_response_deadline.load(Relaxed);
        (next != u64::MAX).then(|| self.at(next))
    }

    /// Resets the streams whose response the client has not read in time. Returns whether the connection must be closed
    /// instead, because a response is no longer in a stream that can be reset.
    pub(crate) fn end_overdue_responses(&self) -> bool {
        let now = self.now();
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        let unsent: Vec<_> = responses.iter().filter_map(Weak::upgrade).collect();
        let (overdue, pending): (Vec<_>, Vec<_>) =
            unsent.iter().partition(|response| response.deadline.load(Relaxed) <= now);
        let must_close = overdue.iter().any(|response| !response.reset());
        for response in &overdue {
            response.deadline.store(now + millis(RESET_TIMEOUT), Relaxed);
        }
        let deadlines = overdue.iter().chain(&pending).map(|response| response.deadline.load(Relaxed));
        self.next_response_deadline.store(deadlines.min().unwrap_or(u64::MAX), Relaxed);
        responses.retain(|response| response.strong_count() > 0);
        // Before `unsent`: the end of a response takes the lock.
        drop(responses);
        must_close
    }

    /// A response of this length begins, with this many bytes in memory of its own. `stream` is its HTTP/2 stream.
    pub(crate) fn begin_response(
        self: &Arc<Self>,
        stream: Option<AbortHandle>,
        length: usize,
        own_bytes: usize,
    ) -> UnsentBytes {
        let deadline = self.response_deadline(length);
        let response = Arc::new(UnsentResponse {
            state: self.clone(),
            stream: Mutex::new(stream),
            deadline: AtomicU64::new(deadline),
        });
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        responses.push(Arc::downgrade(&response));
        self.next_response_deadline.fetch_min(deadline, Relaxed);
        drop(responses);
        let mut unsent = UnsentBytes { response, bytes: 0 };
        unsent.add(own_bytes + RESPONSE_OVERHEAD);
        unsent
    }

    /// When a response of this length that begins now must be read.
    fn response_deadline(&self, length: usize) -> u64 {
        let timeout = millis(self.response_timeout);
        self.now() + timeout + timeout.saturating_mul(length as u64) / TIMEOUT_BYTES
    }

    /// Creates the abort handle of a new HTTP/2 stream, and keeps its registration for the executor.
    pub(crate) fn new_stream(&self) -> AbortHandle {
        let (handle, registration) = AbortHandle::new_pair();
        *self.next_stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(registration);
        handle
    }

    /// The registration of the stream that hyper has just passed to the service.
    pub(crate) fn take_stream(&self) -> Option<AbortRegistration> {
        self.next_stream.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sends a signal. A lower one never replaces a higher one.
    pub(crate) fn send_signal(&self, signal: ConnectionSignal) {
        self.signal.fetch_max(signal as u8, Relaxed);
        self.waker.wake();
    }

    pub(crate) fn signal(&self) -> Option<ConnectionSignal> {
        match self.signal.load(Relaxed) {
            0 => None,
            1 => Some(ConnectionSignal::Evict),
            2 => Some(ConnectionSignal::Drain),
            _ => Some(ConnectionSignal::Abort),
        }
    }

    /// Clears an `Evict` signal, because the connection has become busy before it was closed.
    pub(crate) fn cancel_evict(&self) {
        let _ = self.signal.compare_exchange(ConnectionSignal::Evict as u8, 0, Relaxed, Relaxed);
    }

    fn now(&self) -> u64 {
        millis(self.opened.elapsed()) + 1
    }

    fn at(&self, millis: u64) -> Instant {
        self.opened + Duration::from_millis(millis)
    }

    /// The counters that have a part in the connection's unsent bytes.
    fn counters(&self) -> impl Iterator<Item = &AtomicUsize> {
        let loads = [Some(&self.port), self.network.get()].into_iter().flatten();
        loads.map(|load| &load.unsent).chain([&self.unsent])
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 1)
}

/// Marks a request as being handled until dropped.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<ConnectionState>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.on_progress();
        self.0.handling.fetch_sub(1, Relaxed);
        self.0.room.notify_waiters();
    }
}

/// A response of which hyper or h2 still holds data.
#[derive(Debug)]
struct UnsentResponse {
    state: Arc<ConnectionState>,
    /// The HTTP/2 stream, as long as hyper has data of the response. h2 can't be told to reset a stream.
    stream: Mutex<Option<AbortHandle>>,
    deadline: AtomicU64,
}

impl UnsentResponse {
    /// Resets the response's stream. Returns whether that was possible.
    fn reset(&self) -> bool {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream.inspect(AbortHandle::abort).is_some()
    }
}

impl Drop for UnsentResponse {
    fn drop(&mut self) {
        let mut responses = self.state.responses.lock().unwrap_or_else(PoisonError::into_inner);
        responses.retain(|response| response.strong_count() > 0);
        if responses.is_empty() {
            self.state.next_response_deadline.store(u64::MAX, Relaxed);
        }
    }
}

/// Counts bytes of a response as unsent until dropped.
#[derive(Debug)]
pub(crate) struct UnsentBytes {
    response: Arc<UnsentResponse>,
    bytes: usize,
}

impl UnsentBytes {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        for counter in self.response.state.counters() {
            counter.fetch_add(bytes, Relaxed);
        }
    }

    /// Counts more bytes of a response whose length was not known, which also get more time.
    pub(crate) fn extend(&mut self, bytes: usize) {
        self.add(bytes);
        let deadline = self.response.state.response_deadline(bytes);
        self.response.deadline.fetch_max(deadline, Relaxed);
    }

    /// Takes up to `bytes` of the count.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { response: self.response.clone(), bytes }
    }

    /// The response's stream can't be reset anymore.
    pub(crate) fn hand_over(&self) {
        *self.response.stream.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for UnsentBytes {
    fn drop(&mut self) {
        let state = &self.response.state;
        if self.bytes > 0 {
            for counter in state.counters() {
                counter.fetch_sub(self.bytes, Relaxed);
            }
            state.room.notify_waiters();
        }
        // On HTTP/1, the socket records the progress.
        if state.is_http2() {
            state.on_progress();
        }
    }
}
