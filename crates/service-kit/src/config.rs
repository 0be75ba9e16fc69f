//! Flags shared by all services, as clap groups.

use std::time::Duration;

use crate::flag_defaults::flag_defaults;

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

    /// Maximum connections per port. At the limit, a new connection replaces the oldest idle one
    #[arg(long, env, value_name = "N", default_value_t = 10_000)]
    pub max_connections: usize,

    /// Maximum time for a client to send a request's headers
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub header_timeout: Duration,

    /// Maximum time that a connection may be idle between requests
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "75s")]
    pub idle_timeout: Duration,

    /// Maximum time that a client may read nothing of a response
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    pub stall_timeout: Duration,

    /// Number of worker threads. 0 chooses it: one thread if there are one or two CPUs, one per CPU if there are more
    #[arg(long, env, value_name = "N", default_value_t = 0)]
    pub workers: usize,
}

impl Default for ServeArgs {
    fn default() -> Self {
        flag_defaults()
    }
}

/// Flags for logging.
///
/// OpenTelemetry export is configured by the standard variables (`OTEL_EXPORTER_OTLP_ENDPOINT` …).
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Logging")]
pub struct TelemetryArgs {
    /// Log format on standard error: text for people, json for machines
    #[arg(long, env, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Log filter: a level, or a list such as info,hyper=debug
    #[arg(long, env, value_name = "FILTER", default_value = "info")]
    pub log_level: String,
}

impl Default for TelemetryArgs {
    fn default() -> Self {
        flag_defaults()
    }
}

/// The format of log lines.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Parses a duration such as `250ms`, `5s` or `1h 30m`. A clap value parser.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    // Accepts a plain 0, the usual way to turn a delay off; humantime requires a unit.
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; for example: 250ms, 5s or 10m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_except_zero() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert!(parse_duration("5").is_err_and(|error| error.contains("for example")));
    }
}
