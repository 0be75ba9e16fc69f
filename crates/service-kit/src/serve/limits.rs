//! Limits on connections, headers and HTTP/2 streams.

use std::time::Duration;

use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::ServeArgs;

/// Maximum size of URL and headers in bytes; larger requests get 431.
pub(super) const MAX_HEADER_BYTES: usize = 16 * 1024;

/// hyper's own limit. Higher than ours, so that a request between the two gets our 431 with a JSON body.
const HEADER_BUFFER: usize = 24 * 1024;

/// Maximum concurrent streams per HTTP/2 connection.
const MAX_STREAMS: u32 = 200;

/// Maximum number of streams that a client may reset before the server has accepted them. If there are more, the
/// connection is closed. This protects against the HTTP/2 rapid reset attack.
const MAX_PENDING_RESETS: usize = 20;

/// Maximum number of streams that the server resets because of client errors. If there are more, the connection is
/// closed.
const MAX_ERROR_RESETS: usize = 100;

/// Maximum bytes buffered for writing per HTTP/2 stream.
const SEND_BUFFER: usize = 64 * 1024;

const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// File descriptors reserved for everything except this port's connections: stores, files, the admin port.
const RESERVED_DESCRIPTORS: u64 = 32;

/// The limits of one port.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) header_timeout: Duration,
    pub(super) idle_timeout: Duration,
}

impl Limits {
    pub(super) fn new(args: &ServeArgs) -> Self {
        Self {
            connections: args.max_connections.clamp(1, max_descriptors()),
            header_timeout: args.header_timeout,
            idle_timeout: args.idle_timeout,
        }
    }
}

/// Raises the file descriptor limit to the hard limit. Returns the number that is left for connections.
fn max_descriptors() -> usize {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => before.maximum,
        Err(_) => before.current,
    };
    // `None` means unlimited.
    let free = now.unwrap_or(u64::from(u32::MAX)).saturating_sub(RESERVED_DESCRIPTORS);
    usize::try_from(free.clamp(1, u64::from(u32::MAX >> 4))).unwrap_or(1)
}

/// Creates hyper's server with its limits. The header and idle timeouts of both protocols are in `connection_state`.
pub(super) fn protocols() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // `half_close` lets a client close its side after it has sent a request. It also avoids a second read
    // buffer per request, which hyper would use to notice an early disconnect.
    builder.http1().header_read_timeout(None).max_buf_size(HEADER_BUFFER).half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(HEADER_BUFFER as u32)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
