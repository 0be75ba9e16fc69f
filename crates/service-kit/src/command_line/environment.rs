//! The environment variables of flags: `IP_LOOKUP_LISTEN` for `--listen`. The old name, `LISTEN`, still works in this
//! version and will be removed in the next.

use std::{collections::BTreeSet, env, ffi::OsStr};

use clap::{ArgMatches, Command, parser::ValueSource};

use crate::{
    config::{LogFormat, TelemetryArgs},
    telemetry,
};

/// Prefix of all variables. Kubernetes sets some with the same prefix for a Service named `ip-lookup`, such as
/// `IP_LOOKUP_PORT` and `IP_LOOKUP_SERVICE_HOST`. No flag has such a name, and unknown variables are ignored.
const PREFIX: &str = "IP_LOOKUP_";

/// Adds the prefix to the variables of all arguments, except where only the old name is set.
pub(super) fn with_prefix(command: Command) -> Command {
    rename(command, &|name| env::var_os(name).is_some())
}

fn rename(command: Command, is_set: &dyn Fn(&OsStr) -> bool) -> Command {
    let command = command.mut_args(|arg| {
        let Some(old) = arg.get_env().and_then(OsStr::to_str) else { return arg };
        let new = format!("{PREFIX}{old}");
        if !is_set(OsStr::new(&new)) && is_set(OsStr::new(old)) {
            return arg;
        }
        // clap accepts only static names. Leaks about 10 KB, once per process.
        arg.env(&*new.leak())
    });
    command.mut_subcommands(|subcommand| rename(subcommand, is_set))
}

/// Logs a warning for each old name whose value is used, in the format and with the filter that the flags select.
pub(super) fn warn_about_old_names(command: &Command, matches: &ArgMatches) {
    let mut names = BTreeSet::new();
    find_old_names(command, matches, &mut names);
    if names.is_empty() {
        return;
    }
    let mut args = TelemetryArgs::default();
    if let Ok(Some(format)) = matches.try_get_one::<LogFormat>("log_format") {
        args.log_format = *format;
    }
    if let Ok(Some(level)) = matches.try_get_one::<String>("log_level") {
        args.log_level.clone_from(level);
    }
    telemetry::log_early(&args, || {
        for name in names {
            tracing::warn!(
                "the environment variable {name} has a new name, {PREFIX}{name}. The old name stops working in the \
                 next version"
            );
        }
    });
}

/// Finds the arguments whose values come from variables without the prefix, in the command and its subcommands.
fn find_old_names<'a>(command: &'a Command, matches: &ArgMatches, names: &mut BTreeSet<&'a str>) {
    for arg in command.get_arguments() {
        let Some(name) = arg.get_env().and_then(OsStr::to_str) else { continue };
        if !name.starts_with(PREFIX)
            && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::EnvVariable)
        {
            names.insert(name);
        }
    }
    if let Some((name, matches)) = matches.subcommand()
        && let Some(subcommand) = command.find_subcommand(name)
    {
        find_old_names(subcommand, matches, names);
    }
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    /// The names of the variables of a command and its subcommand, if the variables in `set` are set.
    fn renamed(set: &[&str]) -> [String; 2] {
        let subcommand = Command::new("sub").arg(Arg::new("to").long("to").env("GEO_UPDATE_TO"));
        let command =
            Command::new("x").arg(Arg::new("listen").long("listen").env("LISTEN")).arg(Arg::new("no-env"));
        let command = rename(command.subcommand(subcommand), &|name| set.iter().any(|set| name == *set));
        let name = |command: &Command| {
            let names = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str());
            names.collect::<Vec<_>>().join(" ")
        };
        [name(&command), name(command.find_subcommand("sub").unwrap())]
    }

    #[test]
    fn old_name_is_used_only_if_the_prefixed_one_is_not_set() {
        let both = ["IP_LOOKUP_LISTEN", "IP_LOOKUP_GEO_UPDATE_TO"];
        assert_eq!(renamed(&[]), both);
        assert_eq!(renamed(&["LISTEN"]), ["LISTEN", both[1]]);
        assert_eq!(renamed(&["LISTEN", "IP_LOOKUP_LISTEN"]), both);
        assert_eq!(renamed(&["GEO_UPDATE_TO"]), [both[0], "GEO_UPDATE_TO"]);
    }
}
