//! The state of one connection: its requests and responses, when it times out, and the signal sent to it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::{future::AbortHandle, task::AtomicWaker};
use http::Version;
use tokio::time::Instant;

use crate::config::ServeArgs;

/// A connection may be evicted in the middle of a response once the client has accepted none of it for this long.
const EVICTION_STALL: Duration = Duration::from_secs(5);

/// A client is fast if it accepts a piece of a response within this part of the stall timeout.
const FAST_PART: u32 = 64;

/// A signal to a connection to close. A higher value replaces a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionSignal {
    /// Close if idle or stalled, to make room for other connections.
    Evict = 1,
    /// Finish the requests in flight, then close.
    Drain = 2,
    /// Close immediately: the grace period is over.
    Abort = 3,
}

/// Shared by the connection's task, its streams and the registry. Uses atomics where every read or request updates it.
///
/// Progress is the start of a request, bytes of a response that the socket or the client's window accepted, and the end
/// of a response. HTTP/2 control frames (PING, SETTINGS, WINDOW_UPDATE) are no progress.
///
/// Times are in milliseconds since `opened`, plus 1; 0 means never.
#[derive(Debug)]
pub(super) struct ConnectionState {
    opened: Instant,
    /// Maximum time that a response may make no progress.
    stall_timeout: Duration,
    /// The number of requests being handled.
    handling: AtomicUsize,
    /// The number of responses being sent.
    sending: AtomicUsize,
    /// Whether a first request has begun.
    served: AtomicBool,
    http2: AtomicBool,
    /// Whether an HTTP/2 connection is closed as soon as it is idle.
    close_when_idle: AtomicBool,
    /// Whether the last write found the socket's send buffer full.
    write_blocked: AtomicBool,
    /// When the first byte of the current headers arrived; 0 if no headers are being read.
    headers_started: AtomicU64,
    last_progress: AtomicU64,
    /// The HTTP/2 responses being sent.
    streams: Mutex<Vec<Arc<SendingStream>>>,
    /// No stream is stalled before this time. `u64::MAX` if there are no streams. Changed only under the lock of
    /// `streams`.
    next_stream_check: AtomicU64,
    /// The bytes that the responses being sent hold.
    pub(super) unsent: AtomicUsize,
    signal: AtomicU8,
    pub(super) waker: AtomicWaker,
}

/// An HTTP/2 stream whose response is being sent.
#[derive(Debug)]
struct SendingStream {
    handle: AbortHandle,
    last_progress: AtomicU64,
}

impl ConnectionState {
    pub(super) fn new(stall_timeout: Duration) -> Self {
        Self {
            opened: Instant::now(),
            stall_timeout,
            handling: AtomicUsize::new(0),
            sending: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            close_when_idle: AtomicBool::new(false),
            write_blocked: AtomicBool::new(false),
            headers_started: AtomicU64::new(0),
            last_progress: AtomicU64::new(0),
            streams: Mutex::default(),
            next_stream_check: AtomicU64::new(u64::MAX),
            unsent: AtomicUsize::new(0),
            signal: AtomicU8::new(0),
            waker: AtomicWaker::new(),
        }
    }

    /// Bytes were read. Between requests, they start the next request's headers.
    pub(super) fn on_read(&self) {
        if !self.is_handling() && self.headers_started.load(Relaxed) == 0 {
            self.headers_started.store(self.now(), Relaxed);
        }
    }

    /// The socket accepted bytes of a response, or a request or response ended.
    pub(super) fn on_progress(&self) {
        self.last_progress.store(self.now(), Relaxed);
    }

    /// Closes an HTTP/2 connection once its requests and responses have ended.
    pub(super) fn close_when_idle(&self) {
        self.close_when_idle.store(true, Relaxed);
        self.waker.wake();
    }

    /// A write found the socket's send buffer full, or not.
    pub(super) fn set_write_blocked(&self, blocked: bool) {
        self.write_blocked.store(blocked, Relaxed);
    }

    /// A request begins. It ends when the guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>, version: Version) -> RequestGuard {
        self.handling.fetch_add(1, Relaxed);
        self.served.store(true, Relaxed);
        self.http2.store(version == Version::HTTP_2, Relaxed);
        self.headers_started.store(0, Relaxed);
        RequestGuard(self.clone())
    }

    fn is_handling(&self) -> bool {
        self.handling.load(Relaxed) > 0
    }

    /// Whether a request is being handled or its response is being sent.
    pub(super) fn is_busy(&self) -> bool {
        self.is_handling() || self.sending.load(Relaxed) > 0
    }

    /// Whether a response is being sent. After hyper has taken the last piece of a response, part of it may still wait
    /// for the socket.
    pub(super) fn is_sending(&self) -> bool {
        self.sending.load(Relaxed) > 0 || self.write_blocked.load(Relaxed)
    }

    /// Whether the connection may be closed to make room: it is idle, or the client has stopped reading.
    pub(super) fn is_evictable(&self) -> bool {
        !self.is_handling() && (!self.is_sending() || self.since_progress() >= EVICTION_STALL)
    }

    pub(super) fn has_served(&self) -> bool {
        self.served.load(Relaxed)
    }

    pub(super) fn is_http2(&self) -> bool {
        self.http2.load(Relaxed)
    }

    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// The time since the last progress.
    pub(super) fn since_progress(&self) -> Duration {
        self.at(self.last_progress.load(Relaxed)).elapsed()
    }

    /// The deadline of the connection; none while a request is being handled. On HTTP/2 also none while a response is
    /// being sent: its stream has a deadline of its own.
    ///
    /// HTTP/2 pings and window updates look like the start of headers. So on HTTP/2 the header timeout applies only to
    /// the first request; afterwards the idle timeout applies.
    pub(super) fn deadline(&self, args: &ServeArgs) -> Option<Instant> {
        if self.is_handling() {
            return None;
        }
        if !self.has_served() {
            return Some(self.opened + args.header_timeout);
        }
        let last_progress = self.last_progress.load(Relaxed);
        if self.is_http2() {
            let timeout = if self.close_when_idle.load(Relaxed) { Duration::ZERO } else { args.idle_timeout };
            let idle = self.sending.load(Relaxed) == 0;
            return idle.then(|| self.at(last_progress) + timeout);
        }
        Some(match self.headers_started.load(Relaxed) {
            _ if self.is_sending() => self.at(last_progress) + self.stall_timeout,
            0 => self.at(last_progress) + args.idle_timeout,
            // The later of the two: with pipelining, the next request may arrive before the last response is written.
            started => self.at(started.max(last_progress)) + args.header_timeout,
        })
    }

    /// When to call [`Self::reset_stalled_streams`] next.
    pub(super) fn next_stream_check(&self) -> Option<Instant> {
        let next = self.next_stream_check.load(Relaxed);
        (next != u64::MAX).then(|| self.at(next))
    }

    /// Resets the streams whose client has accepted nothing for the stall timeout.
    pub(super) fn reset_stalled_streams(&self) {
        let streams = self.lock_streams();
        let (now, timeout) = (self.now(), millis(self.stall_timeout));
        let mut next = u64::MAX;
        for stream in streams.iter() {
            match stream.last_progress.load(Relaxed).saturating_add(timeout) {
                deadline if deadline <= now => stream.handle.abort(),
                deadline => next = next.min(deadline),
            }
        }
        self.next_stream_check.store(next, Relaxed);
    }

    fn add_stream(&self, handle: AbortHandle) -> Arc<SendingStream> {
        let stream = Arc::new(SendingStream { handle, last_progress: AtomicU64::new(self.now()) });
        let mut streams = self.lock_streams();
        streams.push(stream.clone());
        self.next_stream_check.fetch_min(self.now() + millis(self.stall_timeout), Relaxed);
        stream
    }

    fn remove_stream(&self, stream: &Arc<SendingStream>) {
        let mut streams = self.lock_streams();
        if let Some(index) = streams.iter().position(|other| Arc::ptr_eq(other, stream)) {
            streams.swap_remove(index);
        }
    }

    fn lock_streams(&self) -> MutexGuard<'_, Vec<Arc<SendingStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a signal. A lower one never replaces a higher one.
    pub(super) fn send_signal(&self, signal: ConnectionSignal) {
        self.signal.fetch_max(signal as u8, Relaxed);
        self.waker.wake();
    }

    pub(super) fn signal(&self) -> Option<ConnectionSignal> {
        match self.signal.load(Relaxed) {
            0 => None,
            1 => Some(ConnectionSignal::Evict),
            2 => Some(ConnectionSignal::Drain),
            _ => Some(ConnectionSignal::Abort),
        }
    }

    /// Clears an `Evict` signal, because the connection has become busy before it was closed.
    pub(super) fn cancel_evict(&self) {
        let _ = self.signal.compare_exchange(ConnectionSignal::Evict as u8, 0, Relaxed, Relaxed);
    }

    fn now(&self) -> u64 {
        millis(self.opened.elapsed()) + 1
    }

    fn at(&self, millis: u64) -> Instant {
        self.opened + Duration::from_millis(millis)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 1)
}

/// Marks a request as being handled until dropped.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<ConnectionState>);

impl RequestGuard {
    /// The request's response begins: `stream` is its HTTP/2 stream. It ends when the returned guard is dropped.
    pub(super) fn begin_response(self, stream: Option<AbortHandle>) -> ResponseGuard {
        let state = self.0.clone();
        state.sending.fetch_add(1, Relaxed);
        let stream = stream.map(|handle| state.add_stream(handle));
        ResponseGuard { stream, state }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.on_progress();
        self.0.handling.fetch_sub(1, Relaxed);
    }
}

/// Marks a response as being sent until dropped.
#[derive(Debug)]
pub(super) struct ResponseGuard {
    state: Arc<ConnectionState>,
    stream: Option<Arc<SendingStream>>,
}

impl ResponseGuard {
    pub(super) fn is_http2(&self) -> bool {
        self.state.is_http2()
    }

    /// A piece of the response was taken. Returns whether that was soon after the last one.
    pub(super) fn on_progress(&self) -> bool {
        let Some(stream) = &self.stream else {
            return true;
        };
        let now = self.state.now();
        let last = stream.last_progress.swap(now, Relaxed);
        self.state.last_progress.store(now, Relaxed);
        now.saturating_sub(last) < millis(self.state.stall_timeout / FAST_PART)
    }
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        // On HTTP/1, the socket records the progress: hyper drops a body before it writes the last of it.
        if let Some(stream) = &self.stream {
            self.state.remove_stream(stream);
            self.state.on_progress();
        }
        self.state.sending.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(30);

    /// A connection opened `seconds` ago.
    fn opened_ago(seconds: u64) -> Arc<ConnectionState> {
        let opened = Instant::now() - Duration::from_secs(seconds);
        Arc::new(ConnectionState { opened, ..ConnectionState::new(STALL) })
    }

    /// Seconds until the deadline.
    fn remaining(state: &ConnectionState) -> Option<f64> {
        let deadline = state.deadline(&ServeArgs::default())?;
        Some((deadline - Instant::now()).as_secs_f64().round())
    }

    #[test]
    fn first_headers_deadline_counts_from_connect() {
        let state = opened_ago(4);
        state.on_read();
        assert_eq!(remaining(&state), Some(6.0));
    }

    #[test]
    fn idle_timeout_starts_when_the_request_ends() {
        let state = opened_ago(100);
        let request = state.begin_request(Version::HTTP_11);
        assert_eq!(remaining(&state), None);
        drop(request);
        assert_eq!(remaining(&state), Some(75.0));
    }

    #[test]
    fn header_timeout_starts_at_first_byte() {
        let state = opened_ago(100);
        drop(state.begin_request(Version::HTTP_11));
        state.last_progress.store(50_000, Relaxed);
        state.headers_started.store(97_000, Relaxed);
        state.on_read();
        assert_eq!(remaining(&state), Some(7.0));
    }

    #[test]
    fn http2_pings_do_not_change_the_idle_deadline() {
        let state = opened_ago(100);
        drop(state.begin_request(Version::HTTP_2));
        state.last_progress.store(95_000, Relaxed);
        state.on_read();
        assert_eq!(remaining(&state), Some(70.0));
    }

    #[test]
    fn http1_response_stalls_30_s_after_the_last_write() {
        let state = opened_ago(100);
        let response = state.begin_request(Version::HTTP_11).begin_response(None);
        state.last_progress.store(90_000, Relaxed);
        assert_eq!(remaining(&state), Some(20.0));
        drop(response);
        state.set_write_blocked(true);
        assert_eq!(remaining(&state), Some(20.0), "the end of the response waits for the socket");
        state.set_write_blocked(false);
        state.on_progress();
        assert_eq!(remaining(&state), Some(75.0), "the end is written");
    }

    #[test]
    fn stalled_stream_is_aborted_and_progressing_one_is_not() {
        let state = opened_ago(100);
        let (stalled, progressing) = (AbortHandle::new_pair().0, AbortHandle::new_pair().0);
        let begin =
            |handle: &AbortHandle| state.begin_request(Version::HTTP_2).begin_response(Some(handle.clone()));
        let guards = [begin(&stalled), begin(&progressing)];
        assert_eq!(remaining(&state), None, "streams have deadlines of their own");
        for stream in state.lock_streams().iter() {
            stream.last_progress.store(60_000, Relaxed);
        }
        assert!(!guards[1].on_progress(), "40 s after the last piece is slow");
        state.reset_stalled_streams();
        assert!(stalled.is_aborted() && !progressing.is_aborted());
        let check = state.next_stream_check().expect("a stream is left") - Instant::now();
        assert_eq!(check.as_secs_f64().round(), 30.0);
        drop(guards);
        state.reset_stalled_streams();
        assert_eq!(state.next_stream_check(), None);
        assert_eq!(remaining(&state), Some(75.0));
    }

    #[test]
    fn only_idle_or_stalled_connections_are_evictable() {
        let state = opened_ago(100);
        let request = state.begin_request(Version::HTTP_11);
        assert!(!state.is_evictable(), "a request is being handled");
        let response = request.begin_response(None);
        assert!(!state.is_evictable(), "a response is being sent");
        state.last_progress.store(94_000, Relaxed);
        assert!(state.is_evictable(), "the client has accepted nothing for 6 s");
        drop(response);
        assert!(state.is_evictable());
    }

    #[test]
    fn lower_signal_does_not_replace_a_higher_one() {
        let state = ConnectionState::new(STALL);
        state.send_signal(ConnectionSignal::Drain);
        state.send_signal(ConnectionSignal::Evict);
        state.cancel_evict();
        assert_eq!(state.signal(), Some(ConnectionSignal::Drain));
    }
}
