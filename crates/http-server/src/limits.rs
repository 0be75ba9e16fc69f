//! Limits on connections, headers and HTTP/2 streams, and the flags of a server.

use std::time::Duration;

use base::flags::parse_duration;
use clap::builder::FalseyValueParser;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum size of URL and headers in bytes, and number of headers, which is also hyper's on HTTP/1. More get 431.
pub(crate) const MAX_HEADER_BYTES: usize = 16 * 1024;
pub(crate) const MAX_HEADERS: usize = 100;

/// Maximum handshakes in progress per port, unless a quarter of its connections is less: their buffers are larger than
/// those of idle connections.
pub(crate) const MAX_HANDSHAKES: usize = 1024;

/// Maximum cost of a port's connections: the bytes that they make the process hold for requests and responses.
pub(crate) const MAX_COST: usize = 64 << 20;

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

/// Flags for serving connections and for shutdown.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Serving")]
pub struct ServeArgs {
    /// After SIGTERM, keep accepting connections for this long while /readyz reports not ready
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    pub drain_delay: Duration,

    /// After the drain delay, time for in-flight requests to finish
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "25s")]
    pub grace: Duration,

    /// Maximum connections per port. One client network may have a quarter of them. At the limit, a new connection replaces
    /// one of the network with the most
    #[arg(long, env, value_name = "N", default_value_t = 10_000)]
    pub max_connections: usize,

    /// Maximum time for a client to send a request's headers, and before that for its TLS handshake; no flag.
    #[arg(skip = Duration::from_secs(10))]
    pub header_timeout: Duration,

    /// Maximum time that a connection may be idle between requests; no flag.
    #[arg(skip = Duration::from_secs(75))]
    pub idle_timeout: Duration,

    /// Maximum time without progress of a response; no flag.
    #[arg(skip = Duration::from_secs(30))]
    pub response_timeout: Duration,

    /// Number of worker threads. 0 chooses it: one thread if there are one or two CPUs, one per CPU if there are more
    #[arg(long, env, value_name = "N", default_value_t = 0)]
    pub workers: usize,
}

base::default_from_flags!(ServeArgs);

/// Flags of a port that clients reach.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Edge")]
pub struct ListenerArgs {
    /// Require a PROXY protocol header (version 1 or 2) from a trusted proxy at the start of each connection, and close
    /// connections without one. For load balancers that forward TCP. X-Forwarded-For and similar headers are trusted if the
    /// client in the PROXY header is a trusted proxy
    #[arg(long, env, value_parser = FalseyValueParser::new())]
    pub proxy_protocol: bool,
}

/// The configured number of connections, but not more than file descriptors are left for them. Raises their limit to the
/// hard limit.
pub(crate) fn max_connections(configured: usize) -> usize {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let now = setrlimit(Resource::Nofile, raised).map_or(before.current, |()| before.maximum);
    // `None` means unlimited. 32 are reserved for everything except this port's connections: stores, files, the admin port.
    let free = now.unwrap_or(u64::from(u32::MAX)).saturating_sub(32);
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
