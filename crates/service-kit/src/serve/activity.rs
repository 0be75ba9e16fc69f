//! What one connection is doing, and until when it may.

use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use http::Version;
use tokio::time::Instant;

use super::limits::Limits;

/// What the server asks of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    /// Give up the place if nothing is under way: others are waiting.
    Yield = 1,
    /// Finish what is under way, take nothing new.
    Stop = 2,
    /// The grace is over.
    Abort = 3,
}

/// Shared by the connection's task, its streams and the roster; all atomics, for it is touched on
/// every read and every request.
#[derive(Debug)]
pub(super) struct Activity {
    opened: Instant,
    handling: AtomicUsize,
    served: AtomicBool,
    http2: AtomicBool,
    /// When the headers being read began; 0 where none are.
    header_since: AtomicU64,
    /// When something last went out or was finished.
    progress: AtomicU64,
    order: AtomicU8,
    pub(super) waker: AtomicWaker,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            opened: Instant::now(),
            handling: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            header_since: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            order: AtomicU8::new(0),
            waker: AtomicWaker::new(),
        }
    }

    /// Bytes came in: outside a request they are the beginning of the next one's headers.
    pub(super) fn received(&self) {
        if !self.is_busy() && self.header_since.load(Relaxed) == 0 {
            self.header_since.store(self.now(), Relaxed);
        }
    }

    /// Bytes went out.
    pub(super) fn sent(&self) {
        self.progress.store(self.now(), Relaxed);
    }

    /// A request begins; it lasts as long as the guard.
    pub(super) fn begin(&self, version: Version) -> Busy<'_> {
        self.handling.fetch_add(1, Relaxed);
        self.served.store(true, Relaxed);
        self.http2.store(version == Version::HTTP_2, Relaxed);
        self.header_since.store(0, Relaxed);
        Busy(self)
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

    /// When the connection has had its time, or none while a request is being answered.
    ///
    /// HTTP/2's pings and window updates are bytes too, so there only the first request has the
    /// header deadline; afterwards the time since the last answer counts.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<Instant> {
        if self.is_busy() {
            return None;
        }
        if !self.has_served() {
            return Some(self.opened + limits.header_timeout);
        }
        let progress = self.progress.load(Relaxed);
        let header_since = self.header_since.load(Relaxed);
        Some(match header_since {
            0 => self.at(progress) + limits.idle_timeout,
            _ if self.is_http2() => self.at(progress) + limits.idle_timeout,
            // A client that is still reading the last answer may have sent the next request already.
            since => self.at(since.max(progress)) + limits.header_timeout,
        })
    }

    /// Gives an order; a weaker one never replaces a stronger one.
    pub(super) fn give(&self, order: Order) {
        self.order.fetch_max(order as u8, Relaxed);
        self.waker.wake();
    }

    /// The order that stands.
    pub(super) fn order(&self) -> Option<Order> {
        match self.order.load(Relaxed) {
            0 => None,
            1 => Some(Order::Yield),
            2 => Some(Order::Stop),
            _ => Some(Order::Abort),
        }
    }

    /// Forgets an order to yield: a request came before it.
    pub(super) fn stay(&self) {
        let _ = self.order.compare_exchange(Order::Yield as u8, 0, Relaxed, Relaxed);
    }

    /// Milliseconds since the connection was opened, from 1 on: 0 means never.
    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    fn at(&self, millis: u64) -> Instant {
        self.opened + Duration::from_millis(millis)
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Busy<'a>(&'a Activity);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.sent();
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

    /// A connection that was opened so many seconds ago.
    fn opened_ago(seconds: u64) -> Activity {
        let opened = Instant::now() - Duration::from_secs(seconds);
        Activity { opened, ..Activity::new() }
    }

    fn left(activity: &Activity) -> Option<f64> {
        let deadline = activity.deadline(&LIMITS)?;
        Some((deadline - Instant::now()).as_secs_f64().round())
    }

    #[test]
    fn dripping_the_first_headers_gains_no_time() {
        let activity = opened_ago(4);
        activity.received();
        assert_eq!(left(&activity), Some(6.0));
    }

    #[test]
    fn a_request_has_all_the_time_and_then_the_idle_limit_holds() {
        let activity = opened_ago(100);
        let busy = activity.begin(Version::HTTP_11);
        assert_eq!(left(&activity), None);
        drop(busy);
        assert_eq!(left(&activity), Some(75.0));
    }

    #[test]
    fn of_the_next_headers_the_first_byte_counts() {
        let activity = opened_ago(100);
        drop(activity.begin(Version::HTTP_11));
        activity.progress.store(50_000, Relaxed);
        activity.header_since.store(97_000, Relaxed);
        activity.received();
        assert_eq!(left(&activity), Some(7.0));
    }

    #[test]
    fn pings_neither_shorten_nor_lengthen_an_idle_http2_connection() {
        let activity = opened_ago(100);
        drop(activity.begin(Version::HTTP_2));
        activity.progress.store(95_000, Relaxed);
        activity.received();
        assert_eq!(left(&activity), Some(70.0));
    }

    #[test]
    fn a_stronger_order_stands() {
        let activity = Activity::new();
        activity.give(Order::Stop);
        activity.give(Order::Yield);
        activity.stay();
        assert_eq!(activity.order(), Some(Order::Stop));
    }
}
