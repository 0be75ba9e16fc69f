//! Flags for logging.

use base::flags::flag_defaults;
use tracing_subscriber::EnvFilter;

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
