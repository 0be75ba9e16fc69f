//! Runs the server, or a command for operators. All commands except `openapi` call a running quota-svc, so they work with
//! either store and need no access to the store itself.

mod account;
mod confirm;
mod context;
mod export;
mod import;
mod key;
mod key_view;
mod table;

use std::io;

use account::AccountCommand;
use clap::Parser;
use context::CliContext;
use export::ExportArgs;
use import::ImportArgs;
use key::KeyCommand;
use service_kit::{Kit, runtime};

use crate::app::{self, QuotaService};
use crate::config::Config;

/// Accounts, API keys and quotas: checks and counts every request
///
/// Runs the internal API unless a command is given. All commands except openapi call the quota-svc that is
/// running at --quota-url.
///
/// Server flags and --quota-url can also be set as environment variables, for example --redis-url as REDIS_URL.
#[derive(Parser, Debug)]
#[command(name = "quota-svc", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    config: Config,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Print the OpenAPI document of the internal API
    Openapi,
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

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Command options")]
struct ClientArgs {
    /// URL of the running quota-svc
    #[arg(
        long,
        env = "QUOTA_URL",
        hide_env_values = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:8082",
        global = true
    )]
    quota_url: String,
    /// Output format
    // No environment variable: many scripts use OUTPUT for something else.
    #[arg(long, value_enum, default_value_t = Output::Text, global = true)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Text and tables
    Text,
    /// One JSON object, for scripts
    Json,
}

/// Runs the given command, or the server if no command is given.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    let Cli { command, client, config } = cli;
    runtime::run(&config.serving, async {
        match command {
            None => serve(&config).await,
            Some(command) => match run_command(command, &client, &config).await {
                // The reader closed the pipe, as in `quota-svc account list | head`.
                Err(error) if is_broken_pipe(&error) => Ok(()),
                result => result,
            },
        }
    })
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let kit = Kit::start("quota-svc", &config.serving, &config.telemetry)?;
    let service = QuotaService::start(config, &kit).await?;
    // Started only now, so that the API port accepts connections before /readyz reports ready.
    kit.serve_admin(config.admin_listen).await?;
    service.run().await;
    kit.finish()
}

/// Prints the result of a command to standard output.
async fn run_command(command: Command, args: &ClientArgs, config: &Config) -> anyhow::Result<()> {
    let context = || CliContext::new(args, config.quota_token_file.as_deref());
    match command {
        Command::Openapi => context::print(&app::document()?),
        Command::Account(command) => account::run(command, &context()?).await,
        Command::Key(command) => key::run(command, &context()?).await,
        Command::Export(args) => export::run(&args, &context()?).await,
        Command::Import(args) => import::run(&args, &context()?).await,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
