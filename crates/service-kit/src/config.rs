//! Flags shared by all services, as clap groups.

use std::time::Duration;

use tracing_subscriber::EnvFilter;

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

    /// Maximum time for a client to send a request's headers, and before that for its TLS handshake
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

    /// Log filter: off, error, warn, info, debug or trace, or a list such as info,hyper=debug
    #[arg(long, env, value_name = "FILTER", default_value = "info", value_parser = parse_log_filter)]
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

/// Checks a log filter and returns it in the form that [`EnvFilter`] understands. A clap value parser.
///
/// `EnvFilter` takes a word that is not a level for the name of a target and logs nothing of all others, so a mistyped
/// level would turn the log off.
fn parse_log_filter(text: &str) -> Result<String, String> {
    // Filters on spans (`[name{field=value}]=level`) have more than a target and a level.
    let filter = match text.contains('[') {
        true => text.to_owned(),
        false => text.split(',').map(parse_directive).collect::<Result<Vec<_>, _>>()?.join(","),
    };
    EnvFilter::try_new(&filter).map_err(|error| error.to_string())?;
    Ok(filter)
}

fn parse_directive(text: &str) -> Result<String, String> {
    let (target, level) = match text.split_once('=') {
        Some((target, level)) => (Some(target.trim()), level),
        None => (None, text),
    };
    let level = match level.trim().to_ascii_lowercase().as_str() {
        "warning" => "warn".to_owned(),
        level => level.to_owned(),
    };
    if !["off", "error", "warn", "info", "debug", "trace"].contains(&level.as_str()) {
        return Err(format!("{level:?} is not a level: use off, error, warn, info, debug or trace"));
    }
    Ok(target.map(|target| format!("{target}={level}")).unwrap_or(level))
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

    #[test]
    fn log_filter_with_an_unknown_level_is_rejected() {
        for (text, filter) in [
            ("info", "info"),
            ("WARNING", "warn"),
            ("warn,hyper=debug", "warn,hyper=debug"),
            ("info, hyper=warning", "info,hyper=warn"),
            ("off", "off"),
            ("info,[request]=trace", "info,[request]=trace"),
        ] {
            assert_eq!(parse_log_filter(text).as_deref(), Ok(filter), "{text}");
        }
        for text in ["verbose", "", "info,", "hyper", "hyper=", "hyper=verbose", "info,loud", "a=b=info"] {
            assert!(parse_log_filter(text).is_err(), "{text}");
        }
    }
}
