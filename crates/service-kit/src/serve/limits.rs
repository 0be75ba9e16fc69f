//! Limits on connections, headers and HTTP/2 streams.

use std::time::Duration;

use hyper_util::{rt::TokioTimer, server::conn::auto::Builder};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::streams::StreamExecutor;

/// Maximum size of URL and headers in bytes; larger requests get 431.
pub(super) const MAX_HEADER_BYTES: usize = 16 * 1024;

/// hyper's own limit on HTTP/1. Higher than ours, so that most oversized requests reach our code. `server_errors`
/// rewrites the 431 that hyper sends to the others.
const HEADER_BUFFER: usize = 24 * 1024;

/// The same on HTTP/2: the size of all header fields, each plus 32 bytes.
const HEADER_LIST: u32 = 64 * 1024;

/// Maximum concurrent streams per HTTP/2 connection.
const MAX_STREAMS: u32 = 200;

/// Maximum number of streams that a client may reset before the server has accepted them. If there are more, the
/// connection is closed. This protects against the HTTP/2 rapid reset attack.
const MAX_PENDING_RESETS: usize = 20;

/// Maximum number of streams that the server resets because of client errors. If there are more, the connection is
/// closed.
const MAX_ERROR_RESETS: usize = 100;

/// Maximum bytes buffered for writing per HTTP/2 stream. Small, because a client can have many streams and read none.
const SEND_BUFFER: usize = 16 * 1024;

const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// File descriptors reserved for everything except this port's connections: stores, files, the admin port.
const RESERVED_DESCRIPTORS: u64 = 32;

/// Maximum number of handshakes (PROXY header and TLS) in progress per port, unless only few file descriptors are
/// available.
const MAX_HANDSHAKES: usize = 1024;

/// The configured number of connections, but not more than file descriptors are left for them.
pub(super) fn max_connections(configured: usize) -> usize {
    configured.clamp(1, available_descriptors())
}

/// Maximum number of handshakes in progress: at most a quarter of the available file descriptors.
pub(super) fn max_handshakes() -> usize {
    (available_descriptors() / 4).clamp(1, MAX_HANDSHAKES)
}

/// Like [`max_connections`], for a port that needs file descriptors for handshakes, too.
pub(super) fn max_connections_with_handshakes(configured: usize) -> usize {
    configured.clamp(1, available_descriptors().saturating_sub(max_handshakes()).max(1))
}

/// Raises the file descriptor limit to the hard limit. Returns what is left for the connections of a port, at least 1.
fn available_descriptors() -> usize {
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

/// hyper's servers, with their limits. The timeouts are in `connection_state`.
pub(super) struct Protocols {
    http1: Builder<StreamExecutor>,
    http2: Builder<StreamExecutor>,
}

impl Protocols {
    pub(super) fn new() -> Self {
        let mut http1 = Builder::new(StreamExecutor).http1_only();
        // `half_close` lets a client close its side after it has sent a request. It also avoids a second read
        // buffer per request, which hyper would use to notice an early disconnect.
        http1.http1().header_read_timeout(None).max_buf_size(HEADER_BUFFER).half_close(true);
        let mut http2 = Builder::new(StreamExecutor).http2_only();
        http2
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(HEADER_LIST)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_local_error_reset_streams(MAX_ERROR_RESETS)
            .max_send_buf_size(SEND_BUFFER)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        Self { http1, http2 }
    }

    pub(super) fn of(&self, is_http2: bool) -> &Builder<StreamExecutor> {
        if is_http2 { &self.http2 } else { &self.http1 }
    }
}
