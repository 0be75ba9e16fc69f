//! Flags of a server, as clap groups.

use std::time::Duration;

use base::flags::parse_duration;
use clap::builder::FalseyValueParser;

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

    /// Maximum time for a client to read a response, and once more for every 256 KiB of it; no flag.
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
