//! Flags for logging.

use base::flags::flag_defaults;
use tracing_subscriber::filter::{LevelFilter, Targets};

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
    pub log_level: Targets,
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

/// Parses a log filter. A clap value parser.
///
/// [`Targets`] would take a word that is not a level for the name of a target and log nothing of all others, so a
/// mistyped level would turn the log off.
fn parse_log_filter(text: &str) -> Result<Targets, String> {
    text.split(',').try_fold(Targets::new(), |filter, directive| {
        Ok(match directive.split_once('=') {
            Some((target, level)) => filter.with_target(target.trim(), parse_level(level)?),
            None => filter.with_default(parse_level(directive)?),
        })
    })
}

fn parse_level(text: &str) -> Result<LevelFilter, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "off" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "warn" | "warning" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        level => Err(format!("{level:?} is not a level: use off, error, warn, info, debug or trace")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_filter_with_an_unknown_level_is_rejected() {
        for (text, filter) in [
            ("info", "info"),
            ("WARNING", "warn"),
            ("warn,hyper=debug", "warn,hyper=debug"),
            ("info, hyper=warning", "info,hyper=warn"),
            ("off", "off"),
        ] {
            assert_eq!(parse_log_filter(text), Ok(filter.parse().expect("a filter")), "{text}");
        }
        for text in ["verbose", "", "info,", "hyper", "hyper=", "hyper=verbose", "info,loud", "a=b=info"] {
            assert!(parse_log_filter(text).is_err(), "{text}");
        }
    }
}
