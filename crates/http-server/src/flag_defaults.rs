//! The default values of command-line flags.

use clap::builder::Resettable;
use clap::{Args, Command};

/// Returns the arguments of a command line without flags. Ignores environment variables.
///
/// # Panics
/// One of the flags is required.
pub fn flag_defaults<T: Args>() -> T {
    let command = T::augment_args(Command::new("")).mut_args(|arg| arg.env(Resettable::Reset));
    T::from_arg_matches(&command.get_matches_from([""])).expect("no flag is required")
}
