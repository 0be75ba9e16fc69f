//! Commands that every program has: shell completions and man pages, generated from its flags and commands.

use std::{fs, path::PathBuf};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

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
        let command = super::command::<T>();
        match self {
            Self::Completions { shell } => print(&completions(command, *shell)?),
            Self::Man { to: None } => {
                let mut page = Vec::new();
                Man::new(command).render(&mut page)?;
                print(str::from_utf8(&page)?)
            }
            Self::Man { to: Some(dir) } => {
                let context = || format!("can't write the man pages to --to {}", dir.display());
                fs::create_dir_all(dir).with_context(context)?;
                clap_mangen::generate_to(command, dir).with_context(context)
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
