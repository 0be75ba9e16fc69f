//! Flags of a port that clients reach, in addition to those of TLS.

use clap::builder::FalseyValueParser;

use crate::flag_defaults::flag_defaults;

/// Flags of a port that clients reach.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Edge")]
pub struct ListenerArgs {
    /// Require a PROXY protocol header (version 1 or 2) from a trusted proxy at the start of each connection, and close
    /// connections without one. For load balancers that forward TCP. X-Forwarded-For and similar headers are trusted if the
    /// client in the PROXY header is a trusted proxy
    #[arg(long, env, value_parser = FalseyValueParser::new())]
    pub proxy_protocol: bool,
}

impl Default for ListenerArgs {
    fn default() -> Self {
        flag_defaults()
    }
}
