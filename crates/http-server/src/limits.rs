//! Limits on connections and headers, and the flags of a server.

use std::time::Duration;

use base::flags::parse_duration;
use clap::builder::FalseyValueParser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum size of URL and headers in bytes, and number of headers, which is also hyper's on HTTP/1. More get 431.
pub(crate) const MAX_HEADER_BYTES: usize = 16 * 1024;
pub(crate) const MAX_HEADERS: usize = 100;

/// Maximum handshakes in progress per port, and at most a quarter of its connections: they need large buffers.
pub(crate) const MAX_HANDSHAKES: usize = 1024;

/// Maximum cost of a port's connections: the bytes that they make the process hold for requests and responses.
pub(crate) const MAX_COST: usize = 64 << 20;

/// What each connection may hold without a cost: one ordinary request. So most requests do not touch the shared counters.
pub(crate) const FREE_COST: usize = 16 * 1024;

/// Memory of a request or response besides its headers and body: its stream, its task, the response's headers. It includes
/// a small response, so that no request is charged and then refused because of its response.
pub(crate) const REQUEST_COST: usize = 8 * 1024;
pub(crate) const SMALL_RESPONSE: usize = 2 * 1024;

/// Memory of a header field besides its text: its place in the map, which doubles as it grows.
pub(crate) const FIELD_COST: usize = 224;

/// Maximum size of a list of header fields that h2 accepts, as HTTP/2 counts it: each field, plus 32 bytes.
pub(crate) const MAX_HEADER_LIST: u32 = 64 * 1024;

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

/// The configured number of connections, as far as there are file descriptors. Raises their limit to the hard limit.
pub(crate) fn max_connections(configured: usize) -> usize {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    let now = setrlimit(Resource::Nofile, raised).map_or(before.current, |()| before.maximum);
    // `None` means unlimited. 32 are reserved for everything except this port's connections: stores, files, the admin port.
    let free = now.unwrap_or(u64::from(u32::MAX)).saturating_sub(32);
    configured.clamp(1, usize::try_from(free).unwrap_or(usize::MAX).max(1))
}
