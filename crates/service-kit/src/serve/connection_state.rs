//! The state of one connection: whether it is handling a request, when it times out, and the signal sent to it.

use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use http::Version;
use tokio::time::Instant;

use super::limits::Limits;

/// A signal to a connection to close. A higher value replaces a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionSignal {
    /// Close if idle, to make room for other connections.
    Evict = 1,
    /// Finish the requests in flight, then close.
    Drain = 2,
    /// Close immediately: the grace period is over.
    Abort = 3,
}

/// Shared by the connection's task, its stream and the registry. Uses atomics only, because every read and every
/// request updates it.
///
/// Times are in milliseconds since `opened`, plus 1; 0 means never.
#[derive(Debug)]
pub(super) struct ConnectionState {
    opened: Instant,
    /// The number of requests being handled.
    handling: AtomicUsize,
    /// Whether a first request has begun.
    served: AtomicBool,
    http2: AtomicBool,
    /// When the first byte of the current headers arrived; 0 if no headers are being read.
    headers_started: AtomicU64,
    /// When bytes were last written or a request last ended.
    last_progress: AtomicU64,
    signal: AtomicU8,
    pub(super) waker: AtomicWaker,
}

impl ConnectionState {
    pub(super) fn new() -> Self {
        Self {
            opened: Instant::now(),
            handling: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            headers_started: AtomicU64::new(0),
            last_progress: AtomicU64::new(0),
            signal: AtomicU8::new(0),
            waker: AtomicWaker::new(),
        }
    }

    /// Bytes were read. Between requests, they start the next request's headers.
    pub(super) fn on_read(&self) {
        if !self.is_busy() && self.headers_started.load(Relaxed) == 0 {
            self.headers_started.store(self.now(), Relaxed);
        }
    }

    /// Bytes were written.
    pub(super) fn on_write(&self) {
        self.last_progress.store(self.now(), Relaxed);
    }

    /// A request begins. It ends when the guard is dropped.
    pub(super) fn begin_request(&self, version: Version) -> RequestGuard<'_> {
        self.handling.fetch_add(1, Relaxed);
        self.served.store(true, Relaxed);
        self.http2.store(version == Version::HTTP_2, Relaxed);
        self.headers_started.store(0, Relaxed);
        RequestGuard(self)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.handling.load(Relaxed) > 0
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

    /// The deadline of an idle connection; none while a request is being handled.
    ///
    /// HTTP/2 pings and window updates look like the start of headers. So on HTTP/2 the header timeout applies only to
    /// the first request; afterwards the idle timeout applies, from the last write.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<Instant> {
        if self.is_busy() {
            return None;
        }
        if !self.has_served() {
            return Some(self.opened + limits.header_timeout);
        }
        let last_progress = self.last_progress.load(Relaxed);
        let headers_started = self.headers_started.load(Relaxed);
        Some(match headers_started {
            0 => self.at(last_progress) + limits.idle_timeout,
            _ if self.is_http2() => self.at(last_progress) + limits.idle_timeout,
            // The later of the two: with pipelining, the next request may arrive before the last response is written.
            started => self.at(started.max(last_progress)) + limits.header_timeout,
        })
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

    /// Clears an `Evict` signal, because a request arrived before the connection was closed.
    pub(super) fn cancel_evict(&self) {
        let _ = self.signal.compare_exchange(ConnectionSignal::Evict as u8, 0, Relaxed, Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    fn at(&self, millis: u64) -> Instant {
        self.opened + Duration::from_millis(millis)
    }
}

/// Marks a request as being handled until dropped.
#[derive(Debug)]
pub(super) struct RequestGuard<'a>(&'a ConnectionState);

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.0.on_write();
        self.0.handling.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        connections: 1,
        header_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(75),
    };

    /// A connection opened `seconds` ago.
    fn opened_ago(seconds: u64) -> ConnectionState {
        let opened = Instant::now() - Duration::from_secs(seconds);
        ConnectionState { opened, ..ConnectionState::new() }
    }

    /// Seconds until the deadline.
    fn remaining(state: &ConnectionState) -> Option<f64> {
        let deadline = state.deadline(&LIMITS)?;
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
    fn lower_signal_does_not_replace_a_higher_one() {
        let state = ConnectionState::new();
        state.send_signal(ConnectionSignal::Drain);
        state.send_signal(ConnectionSignal::Evict);
        state.cancel_evict();
        assert_eq!(state.signal(), Some(ConnectionSignal::Drain));
    }
}
