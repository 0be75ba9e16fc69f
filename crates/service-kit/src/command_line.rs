//! The command line of a program: flags and their environment variables, the output format, errors, and the commands that
//! every program has: shell completions and man pages, generated from its flags and commands.

use std::{
    ffi::{OsStr, OsString},
    fmt, fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, StyledStr, TypedValueParser};
use clap::{Arg, Command, CommandFactory, FromArgMatches};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use serde::Serialize;

use crate::build_info;

/// Prefix of the environment variables of all flags: `IP_LOOKUP_LISTEN` for `--listen`. Kubernetes sets some with the same
/// prefix for a Service named `ip-lookup`, such as `IP_LOOKUP_PORT` and `IP_LOOKUP_SERVICE_HOST`. No flag has such a name,
/// and unknown variables are ignored.
const ENV_PREFIX: &str = "IP_LOOKUP_";

/// Exit code of clap for a command line that can't be parsed.
const USAGE_EXIT_CODE: i32 = 2;

/// Commands and the flags of the whole program that they do not use, so their help does not show them.
const UNUSED_FLAGS: [(&str, &[&str]); 6] = [
    ("completions", GLOBAL_FLAGS),
    ("man", GLOBAL_FLAGS),
    ("openapi", GLOBAL_FLAGS),
    ("explain", &["redis_url"]),
    ("geo-update", &["redis_url", "output"]),
    ("lookup", &["redis_url", "output"]),
];

/// The flags that all commands accept, because they may also precede a command.
const GLOBAL_FLAGS: &[&str] = &["data_dir", "redis_url", "quota_url", "quota_token_file", "output"];

/// The output format of commands. For a program with `--output`.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct OutputArgs {
    /// Output format of commands
    // No environment variable: many scripts use OUTPUT for something else.
    #[arg(long, value_enum, default_value_t = Output::Text, global = true, help_heading = "Command options")]
    pub output: Output,
}

/// An output format.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Text and tables
    Text,
    /// One JSON object, for scripts; errors, too
    Json,
}

impl Output {
    /// Prints `object` as JSON, or `text`.
    pub fn show(self, object: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        print(&match self {
            Self::Json => serde_json::to_string(object)?,
            Self::Text => text(),
        })
    }
}

/// Like `println!`, but returns an error where that would panic.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    Ok(out.flush()?)
}

/// Whether to write colors to `stream`: it is a terminal that can show them, and `NO_COLOR` does not turn them off.
pub fn use_color(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && anstyle_query::term_supports_color() && !anstyle_query::no_color()
}

/// Hides all flags but those with these IDs, separated by spaces, in `-h`. `--help` shows all. For `mut_args` of a command.
pub fn short_help(ids: &str) -> impl Fn(Arg) -> Arg {
    move |arg| {
        let is_hidden = !ids.split(' ').any(|id| arg.get_id() == id);
        arg.hide_short_help(is_hidden)
    }
}

/// The error of a command, with a code for scripts such as `account_not_found`.
#[derive(Debug)]
struct CommandError {
    code: String,
    message: String,
}

/// An error with a code for scripts, such as `account_not_found`. `message`: what happened and what to do next.
pub fn command_error(code: &str, message: String) -> anyhow::Error {
    CommandError { code: code.to_owned(), message }.into()
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CommandError {}

/// Parses the command line of the process. Ends the process if it is invalid, and for `--help` and `--version`.
pub fn parse<T: CommandFactory + FromArgMatches>() -> T {
    let args: Vec<OsString> = std::env::args_os().collect();
    let mut command = command::<T>();
    let parsed = command.try_get_matches_from_mut(&args).and_then(|mut matches| {
        T::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    });
    parsed.unwrap_or_else(|error| {
        if error.use_stderr() && wants_json(&args) {
            let rendered = error.render().to_string();
            // The usage and hints follow after an empty line.
            let message = rendered.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            eprintln!("{}", json_error("usage", message.trim()));
            std::process::exit(USAGE_EXIT_CODE);
        }
        error.exit()
    })
}

/// The command of a program, with the prefixed environment variables. `--version` also shows the commit; `-V` does not.
fn command<T: CommandFactory>() -> Command {
    let command = hide_unused_flags(T::command());
    let name = command.get_name().to_owned();
    for_program(command, &name).long_version(build_info::LONG_VERSION.as_str())
}

/// Adds hidden copies of the flags in [`UNUSED_FLAGS`] to the commands, so clap does not add the visible ones.
fn hide_unused_flags(mut command: Command) -> Command {
    for (name, flags) in UNUSED_FLAGS {
        let is_unused = |arg: &&Arg| arg.is_global_set() && flags.contains(&arg.get_id().as_str());
        let hidden: Vec<_> =
            command.get_arguments().filter(is_unused).map(|arg| arg.clone().hide(true)).collect();
        if command.find_subcommand(name).is_some() {
            command = command.mut_subcommand(name, |subcommand| subcommand.args(hidden));
        }
    }
    command
}

/// Adds the prefix to environment variables, and replaces PROGRAM in the help of commands that several programs have.
fn for_program(mut command: Command, program: &str) -> Command {
    let with_name = |text: &StyledStr| text.to_string().replace("PROGRAM", program);
    if let Some(about) = command.get_about().map(with_name) {
        command = command.about(about);
    }
    if let Some(examples) = command.get_after_long_help().map(with_name) {
        command = command.after_long_help(examples);
    }
    let command = command.mut_args(|arg| match arg.get_env().and_then(OsStr::to_str) {
        // clap accepts only static names. Leaks about 10 KB, once per process.
        Some(name) => {
            let name: &'static str = format!("{ENV_PREFIX}{name}").leak();
            arg.env(name)
        }
        None => arg,
    });
    command.mut_subcommands(|subcommand| for_program(subcommand, program))
}

/// Whether the arguments have `--output json`. For command lines that clap can't parse.
fn wants_json(args: &[OsString]) -> bool {
    args.iter().any(|arg| arg == "--output=json")
        || args.windows(2).any(|pair| pair[0] == "--output" && pair[1] == "json")
}

/// Converts the result of `main` to an exit code. Prints an error on standard error: as one line, without a stack trace,
/// or as a JSON object with `error` (a code) and `message`. A closed pipe is no error, as in `ip-lookup key list | head`.
pub fn exit(output: Output, result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let io_error = error.downcast_ref::<io::Error>();
    if io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    match output {
        Output::Text => eprintln!("Error: {error:#}"),
        Output::Json => {
            let code = error.chain().find_map(|cause| cause.downcast_ref::<CommandError>());
            let code = code.map_or("failed", |error| &error.code);
            eprintln!("{}", json_error(code, &format!("{error:#}")));
        }
    }
    ExitCode::FAILURE
}

fn json_error(code: &str, message: &str) -> String {
    serde_json::json!({ "error": code, "message": message }).to_string()
}

/// Generates completions and man pages.
#[derive(clap::Subcommand, Debug, Clone)]
pub enum ManualCommand {
    /// Print a completion script for a shell, for example: source <(PROGRAM completions bash)
    Completions {
        /// The shell
        #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]).try_map(|name| name.parse::<Shell>()))]
        shell: Shell,
    },
    /// Print the man page, or write the pages of all commands to a directory
    Man {
        /// Directory for all pages, created if needed
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
}

impl ManualCommand {
    /// Runs the command for the program whose command line is `T`.
    pub fn run<T: CommandFactory>(&self) -> anyhow::Result<()> {
        let mut command = command::<T>();
        match self {
            Self::Completions { shell } => print(&completions(command, *shell)?),
            Self::Man { to } => {
                command = command.disable_help_subcommand(true);
                command.build();
                match to {
                    None => print(str::from_utf8(&man_page(&command)?)?),
                    Some(dir) => write_pages(&command, dir)
                        .with_context(|| format!("can't write the man pages to --to {}", dir.display())),
                }
            }
        }
    }
}

fn completions(mut command: Command, shell: Shell) -> anyhow::Result<String> {
    let (name, mut script) = (command.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut command, &name, &mut script);
    let script = String::from_utf8(script)?;
    // The script for Bash spells a program name with a hyphen in two ways, so nothing after a subcommand is completed:
    // https://github.com/clap-rs/clap/issues/6421
    let [wrong, right] = ["__subcmd__", "__"].map(|hyphen| name.replace('-', hyphen) + "__subcmd__");
    Ok(script.replace(&wrong, &right))
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(command: &Command, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(dir.join(format!("{name}.1")), man_page(command)?)?;
    command.get_subcommands().try_for_each(|subcommand| write_pages(subcommand, dir))
}

/// Like [`Man::render`], with the usage line as synopsis instead of a list of all flags, and with examples.
fn man_page(command: &Command) -> io::Result<Vec<u8>> {
    // The page would have no text for flags that `-h` hides.
    let mut command = command.clone().mut_args(|arg| arg.hide_short_help(false));
    let usage = command.render_usage().to_string();
    let examples = command.get_after_long_help().map(ToString::to_string);
    let (has_commands, has_version) = (command.has_subcommands(), command.get_version().is_some());
    let (man, mut page) = (Man::new(command), Vec::new());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    write_section(&mut page, "SYNOPSIS", usage.trim_start_matches("Usage: "))?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(examples) = examples {
        write_section(&mut page, "EXAMPLES", examples.trim_start_matches("Examples:\n"))?;
    }
    if has_version {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

/// Writes a section whose lines are not joined.
fn write_section(page: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [name]).control("nf", []);
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []).to_writer(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_output_is_recognized_in_invalid_command_lines() {
        let args = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in ["x --output json --unknown", "x --output=json", "x key list --output json"] {
            assert!(wants_json(&args(line)), "{line}");
        }
        for line in ["x", "x --output text", "x json --output"] {
            assert!(!wants_json(&args(line)), "{line}");
        }
    }
}
