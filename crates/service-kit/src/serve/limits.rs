//! How much of what a connection may take.

use std::time::Duration;

use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::ServeArgs;

/// The most bytes of request line and headers; more is answered 431.
pub(super) const MAX_HEADER_BYTES: usize = 16 * 1024;

/// hyper's own bound, a bit higher so that the answer to what lies between carries our body.
const HEADER_BUFFER: usize = 24 * 1024;

/// Streams a client may have open at the same time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 200;

/// Streams reset before they were looked at, after which the connection ends (rapid reset).
const MAX_PENDING_RESETS: usize = 20;

/// Streams that we had to reset, after which the connection ends.
const MAX_ERROR_RESETS: usize = 100;

/// What HTTP/2 may have on its way out for each stream.
const SEND_BUFFER: usize = 64 * 1024;

const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Descriptors left for everything that is not this port's connections: stores, files, the admin port.
const RESERVED_DESCRIPTORS: u64 = 32;

/// The bounds of one port.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) header_timeout: Duration,
    pub(super) idle_timeout: Duration,
}

impl Limits {
    pub(super) fn new(args: &ServeArgs) -> Self {
        Self {
            connections: args.max_connections.clamp(1, descriptors()),
            header_timeout: args.header_timeout,
            idle_timeout: args.idle_timeout,
        }
    }
}

/// How many connections the system lets us have, after asking it for all that it allows.
fn descriptors() -> usize {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => before.maximum,
        Err(_) => before.current,
    };
    // No limit at all reads as none.
    let free = now.unwrap_or(u64::from(u32::MAX)).saturating_sub(RESERVED_DESCRIPTORS);
    usize::try_from(free.clamp(1, u64::from(u32::MAX >> 4))).unwrap_or(1)
}

/// hyper, bounded. Deadlines are not here: `activity` has them for both protocols.
pub(super) fn protocols() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // A client may close its side once it has asked. And hyper need not have a second read buffer for each request
    // only to see it go: what has been asked is answered within a second anyway.
    builder.http1().header_read_timeout(None).max_buf_size(HEADER_BUFFER).half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(HEADER_BUFFER as u32)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
