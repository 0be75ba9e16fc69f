//! Values of command-line flags: defaults and durations.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{Args, Command};

/// Returns the arguments of a command line without flags. Ignores environment variables.
///
/// # Panics
/// One of the flags is required.
pub fn flag_defaults<T: Args>() -> T {
    parse_args([""; 0]).expect("no flag is required")
}

/// Implements `Default` for arguments: those of a command line without flags.
#[macro_export]
macro_rules! default_from_flags {
    ($type:ty) => {
        impl Default for $type {
            fn default() -> Self {
                $crate::flags::flag_defaults()
            }
        }
    };
}

/// Parses arguments as a command line would. Ignores environment variables.
pub fn parse_args<T: Args>(args: impl IntoIterator<Item: Into<OsString> + Clone>) -> clap::error::Result<T> {
    let command = T::augment_args(Command::new("").no_binary_name(true));
    let command = command.mut_args(|arg| arg.env(Resettable::Reset));
    T::from_arg_matches(&command.try_get_matches_from(args)?)
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
