//! Commands that every program has: shell completions and man pages, generated from its flags and commands.

use std::io::{self, Write};
use std::{fs, path::PathBuf};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::print;

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
        let mut command = super::command::<T>();
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
fn write_pages(command: &Command, dir: &PathBuf) -> io::Result<()> {
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
