//! Commands for operators. They call a running quota-svc, so they work with either store and need no access to the
//! store itself.

mod account;
mod confirm;
mod context;
mod export;
mod import;
mod key;
mod key_view;
mod progress;
mod table;

use std::io;
use std::path::Path;

pub use account::AccountCommand;
use context::CliContext;
pub use export::ExportArgs;
pub use import::ImportArgs;
pub use key::{DailyLimit, KeyCommand, ScopeArg};

#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Create, list and delete accounts
    #[command(subcommand)]
    Account(AccountCommand),
    /// Create, list, change and delete API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Write all accounts and keys as JSON lines, for a backup or to import them into another store
    Export(ExportArgs),
    /// Add the accounts and keys of an export; existing ones are not changed
    Import(ImportArgs),
}

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Command options")]
pub struct ClientArgs {
    /// URL of the running quota-svc
    #[arg(
        long,
        env = "QUOTA_URL",
        hide_env_values = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:8082",
        global = true
    )]
    pub quota_url: String,
    /// Output format
    // No environment variable: many scripts use OUTPUT for something else.
    #[arg(long, value_enum, default_value_t = Output::Text, global = true)]
    pub output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Text and tables
    Text,
    /// One JSON object, for scripts
    Json,
}

/// Runs a command and prints its result to standard output.
pub async fn run(command: Command, args: &ClientArgs, token_file: Option<&Path>) -> anyhow::Result<()> {
    let context = CliContext::new(args, token_file)?;
    let result = match command {
        Command::Account(command) => account::run(command, &context).await,
        Command::Key(command) => key::run(command, &context).await,
        Command::Export(args) => export::run(&args, &context).await,
        Command::Import(args) => import::run(&args, &context).await,
    };
    match result {
        // The reader closed the pipe, as in `quota-svc account list | head`.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        result => result,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
