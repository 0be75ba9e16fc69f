//! The flags that every service shares, as clap groups.

use std::time::Duration;

/// How connections are served and how the service stops.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Serving")]
pub struct ServeArgs {
    /// After SIGTERM, how long to go on accepting while /readyz already says no
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    pub drain_delay: Duration,

    /// After that, how long requests under way may take to finish
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "25s")]
    pub grace: Duration,

    /// Connections held at the same time on each port; over it, the longest idle ones are closed
    #[arg(long, env, value_name = "N", default_value_t = 10_000)]
    pub max_connections: usize,

    /// How long a client may take to send a request's headers
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub header_timeout: Duration,

    /// How long a connection may stay open between two requests
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "75s")]
    pub idle_timeout: Duration,

    /// Worker threads; 0 takes one on up to two CPUs, else as many as there are CPUs
    #[arg(long, env, value_name = "N", default_value_t = 0)]
    pub workers: usize,
}

impl Default for ServeArgs {
    fn default() -> Self {
        Self {
            drain_delay: Duration::from_secs(5),
            grace: Duration::from_secs(25),
            max_connections: 10_000,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            workers: 0,
        }
    }
}

/// What the service says about itself, and how.
///
/// OpenTelemetry export is configured by its own standard variables (`OTEL_EXPORTER_OTLP_ENDPOINT` …).
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Logging")]
pub struct TelemetryArgs {
    /// Log lines for people (text) or for machines (json), on standard error
    #[arg(long, env, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// What to log: a level, or a list such as info,hyper=debug
    #[arg(long, env, value_name = "FILTER", default_value = "info")]
    pub log_level: String,
}

impl Default for TelemetryArgs {
    fn default() -> Self {
        Self { log_format: LogFormat::Text, log_level: "info".to_owned() }
    }
}

/// The shape of a log line.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Reads a duration such as `250ms`, `5s` or `1h 30m`; usable as a clap value parser.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    // A bare 0 is how people switch a delay off; humantime wants a unit even there.
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write for example 250ms, 5s or 10m"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        serve: ServeArgs,
        #[command(flatten)]
        telemetry: TelemetryArgs,
    }

    #[test]
    fn the_flags_defaults_are_the_codes_defaults() {
        let cli = Cli::try_parse_from(["x"]).expect("no flag is required");
        assert_eq!(format!("{:?}", cli.serve), format!("{:?}", ServeArgs::default()));
        assert_eq!(format!("{:?}", cli.telemetry), format!("{:?}", TelemetryArgs::default()));
    }

    #[test]
    fn durations_are_read_with_their_unit() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert!(parse_duration("5").is_err_and(|error| error.contains("for example")));
    }
}
