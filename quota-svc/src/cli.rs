//! The operator's commands: clients of a running quota-svc, so that they work on either store and in every pod.

mod account;
mod confirm;
mod export;
mod file;
mod import;
mod key;
mod key_view;
mod operator;
mod progress;
mod table;

use std::io;

pub use account::AccountCommand;
pub use export::ExportArgs;
pub use import::ImportArgs;
pub use key::{DailyLimit, KeyCommand, ScopeArg};
use operator::Operator;

/// What an operator can do.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Create, list and delete accounts
    #[command(subcommand)]
    Account(AccountCommand),
    /// Create, list, change and delete API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Write all accounts and keys as JSON lines, for a back-up or another store
    Export(ExportArgs),
    /// Add the accounts and keys of an export; what is there already stays as it is
    Import(ImportArgs),
}

/// How commands reach the running quota-svc, and how they answer.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Operator's commands")]
pub struct ClientArgs {
    /// Where the running quota-svc listens
    #[arg(
        long,
        env = "QUOTA_URL",
        hide_env_values = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:8082",
        global = true
    )]
    pub quota_url: String,
    /// How a command prints what it has to say
    // No environment variable: OUTPUT is a name that too many scripts use for something else.
    #[arg(long, value_enum, default_value_t = Output::Text, global = true)]
    pub output: Output,
}

/// How a command prints what it has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// One JSON object, for programs
    Json,
}

/// Runs a command; what it has to say goes to standard output.
pub async fn run(command: Command, args: &ClientArgs) -> anyhow::Result<()> {
    let operator = Operator::new(args)?;
    let done = match command {
        Command::Account(command) => account::run(command, &operator).await,
        Command::Key(command) => key::run(command, &operator).await,
        Command::Export(args) => export::run(&args, &operator).await,
        Command::Import(args) => import::run(&args, &operator).await,
    };
    match done {
        // As in `quota-svc account list | head`: the reader has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        done => done,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
