//! Limits on connections, headers and HTTP/2 streams.

use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum size of URL and headers in bytes, and number of headers, which is also hyper's on HTTP/1. More get 431.
pub(crate) const MAX_HEADER_BYTES: usize = 16 * 1024;
pub(crate) const MAX_HEADERS: usize = 100;

/// File descriptors reserved for everything except this port's connections: stores, files, the admin port.
const RESERVED_DESCRIPTORS: u64 = 32;

/// Maximum handshakes in progress per port. Their buffers are larger than those of idle connections.
const MAX_HANDSHAKES: usize = 1024;

/// Maximum cost of a port's connections: the bytes that they make the process hold for requests and responses.
pub(crate) const MAX_COST: usize = 64 << 20;

/// One client network may use each limit of a port divided by this.
pub(crate) const NETWORK_SHARE: usize = 4;

/// What each connection may hold without a cost: one ordinary request. So most HTTP/1 requests do not touch the counters
/// of port and network.
pub(crate) const FREE_COST: usize = 16 * 1024;

/// Memory of a request or response besides its headers and body: its stream, its task, the response's headers. It includes
/// a small response, so that no request is charged and then refused because of its response.
pub(crate) const REQUEST_COST: usize = 8 * 1024;
pub(crate) const SMALL_RESPONSE: usize = 2 * 1024;

/// Memory of a header field besides its text: its place in the map, which doubles as it grows.
pub(crate) const FIELD_COST: usize = 224;

/// Maximum size of a list of header fields that h2 accepts, as HTTP/2 counts it: each field, plus 32 bytes.
const MAX_HEADER_LIST: u32 = 64 * 1024;

/// Maximum cost of an unfinished header block: as many fields as fit into the list, with one byte of text each.
pub(crate) const MAX_BLOCK_COST: usize = MAX_HEADER_LIST as usize / 33 * (1 + FIELD_COST);

/// Maximum bytes that h2 holds of a connection's request bodies, and hyper of its HTTP/1 requests.
pub(crate) const HTTP2_WINDOW: u32 = 128 * 1024;
pub(crate) const HTTP1_BUFFER: usize = 24 * 1024;

/// Maximum bytes that an HTTP/2 connection reads before other tasks have their turn. h2 needs the most time per byte for
/// SETTINGS that change the window of each stream.
pub(crate) const HTTP2_TURN: usize = 4 * 1024;

/// Maximum handshakes of a port with this many connections.
pub(crate) fn max_handshakes(max_connections: usize) -> usize {
    MAX_HANDSHAKES.min(max_connections / 4).max(1)
}

/// The configured number of connections, but not more than file descriptors are left for them. Raises their limit to the
/// hard limit.
pub(crate) fn max_connections(configured: usize) -> usize {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let now = setrlimit(Resource::Nofile, raised).map_or(before.current, |()| before.maximum);
    // `None` means unlimited.
    let free = now.unwrap_or(u64::from(u32::MAX)).saturating_sub(RESERVED_DESCRIPTORS);
    configured.clamp(1, usize::try_from(free).unwrap_or(usize::MAX).max(1))
}

/// hyper's HTTP/1 server, with its limits. The timeouts are in `connection_state`.
pub(crate) fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .header_read_timeout(None)
        // Higher than our limit, so that most oversized requests reach our code; `handler` replaces the 431 that hyper
        // sends to the others.
        .max_buf_size(HTTP1_BUFFER)
        // Lets a client close its side after it has sent a request. It also avoids a second read buffer per request, which
        // hyper would use to notice an early disconnect.
        .half_close(true);
    builder
}

/// hyper's HTTP/2 server, with its limits. `streams` runs the streams of the connection.
pub(crate) fn http2<E: Clone>(streams: E) -> http2::Builder<E> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(32)
        // h2 responds to larger requests itself.
        .max_header_list_size(MAX_HEADER_LIST)
        // Request bodies that are received and not read.
        .initial_stream_window_size(64 * 1024)
        .initial_connection_window_size(HTTP2_WINDOW)
        // Streams that a client resets before the server has accepted them ("rapid reset"), and streams that the server
        // resets because of client errors ("MadeYouReset"), which include those above the limit that a client opens before
        // it knows the limit. If there are more, the connection is closed.
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(500)
        // What h2 takes from hyper for each stream before it is written.
        .max_send_buf_size(16 * 1024)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10));
    builder
}
