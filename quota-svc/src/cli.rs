//! Runs the server, or a command for operators. All commands call a running quota-svc, so they work with
//! either store and need no access to the store itself.

mod account;
mod context;
mod export;
mod import;
mod key;
mod key_view;
mod output;

use std::process::ExitCode;

use account::AccountCommand;
use base::progress::Progress;
use clap::Parser;
pub use context::CliContext;
use export::ExportArgs;
use import::ImportArgs;
use key::KeyCommand;
use output::{attributes, counted, with_commas};
use quota_api::{Overview, UsageCount};
use serde_json::json;
use service_kit::command_line::{self, ManualCommand, OutputArgs, short_help};
use service_kit::{Kit, runtime};

use crate::app::QuotaService;
use crate::config::Config;

/// The flags that `-h` shows: what a first setup and the commands need.
const SHORT_HELP: &str = "\
    listen quota_url quota_token_file redis_url store_file redis_username redis_password_file \
    daily_limit burst_limit demo_limit log_level output";

const EXAMPLES: &str = "\
Examples:
  # Serve with the data in Redis
  quota-svc --redis-url redis://redis:6379 --quota-token-file token
  # List the keys of an account
  quota-svc --quota-token-file token key list --account ada";

/// Accounts, API keys and quotas: checks and counts every request
///
/// Runs the internal API unless a command is given. The commands for accounts and keys, export and import call the
/// quota-svc that is running at --quota-url.
///
/// Server flags and --quota-url can also be set as environment variables, for example --redis-url as IP_LOOKUP_REDIS_URL.
#[derive(Parser, Debug)]
#[command(name = "quota-svc", version, mut_args(short_help(SHORT_HELP)), after_long_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// URL of the running quota-svc
    #[arg(long, env = "QUOTA_URL", hide_env_values = true, value_name = "URL", global = true)]
    #[arg(default_value = "http://127.0.0.1:8082", help_heading = "Command options")]
    quota_url: String,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    config: Config,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    #[command(flatten)]
    Client(ClientCommand),
    #[command(flatten)]
    Manual(ManualCommand),
}

/// The commands that call a quota-svc. `ip-lookup` has them, too.
#[derive(clap::Subcommand, Debug)]
pub enum ClientCommand {
    /// Create, list, show, suspend and delete accounts
    #[command(subcommand)]
    Account(AccountCommand),
    /// Create, list, find, change and delete API keys
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  PROGRAM key create --account ada --name Production --scope full
  PROGRAM key list --account ada --output json"
    )]
    Key(KeyCommand),
    /// Show the service in numbers: accounts, keys by state, requests of today; reads every key
    Overview,
    /// Write all accounts and keys as JSON lines, for a backup or to import them into another store
    #[command(after_long_help = "Examples:\n  PROGRAM export > backup.jsonl")]
    Export(ExportArgs),
    /// Add the accounts and keys of an export; existing ones are not changed
    Import(ImportArgs),
}

/// Runs the given command, or the server if no command is given.
pub fn run(cli: Cli) -> ExitCode {
    let Cli { command, quota_url, output, config } = cli;
    let result = runtime::run(&config.serving, async {
        match command {
            None => serve(&config).await,
            Some(Command::Manual(command)) => command.run::<Cli>(),
            Some(Command::Client(ClientCommand::Key(KeyCommand::Generate { login }))) => {
                key::generate(&login, output.output)
            }
            Some(Command::Client(command)) => {
                let token_file = config.quota_token_file.as_deref();
                let context = CliContext::connect(&quota_url, token_file, output.output)?;
                command.run(&context).await
            }
        }
    });
    command_line::exit(output.output, result)
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let kit = Kit::start("quota-svc", &config.serving, &config.telemetry)?;
    let service = QuotaService::start(None, config, &kit).await?;
    // Started only now, so that the API port accepts connections before /readyz reports ready.
    kit.serve_admin(config.admin_listen).await?;
    service.run().await;
    kit.finish()
}

impl ClientCommand {
    /// Runs the command and prints its result to standard output.
    pub async fn run(self, context: &CliContext) -> anyhow::Result<()> {
        match self {
            Self::Account(command) => command.run(context).await,
            Self::Key(command) => command.run(context).await,
            Self::Overview => overview(context).await,
            Self::Export(args) => args.run(context).await,
            Self::Import(args) => args.run(context).await,
        }
    }
}

async fn overview(context: &CliContext) -> anyhow::Result<()> {
    let overview = context.call("", context.client.overview()).await?;
    let mut progress = Progress::start(Progress::BAR).only_if_slow();
    progress.set_total(overview.accounts);
    let mut counts = UsageCount::default();
    loop {
        let page = context.call("", context.client.count_keys(counts.next.as_deref())).await?;
        counts += page;
        progress.update(counts.accounts, counted(counts.accounts, "account"));
        if counts.next.is_none() {
            break;
        }
    }
    drop(progress);
    let mut object = json!(overview);
    object["counts"] = json!(counts);
    context.output.show(&object, || overview_text(&overview, &counts))
}

fn overview_text(overview: &Overview, counts: &UsageCount) -> String {
    let &UsageCount { accounts, suspended, active, paused, inactive, unreadable, requests_today, .. } =
        counts;
    let Overview { demo_used, demo_limit, store, store_problem, .. } = overview;
    let [active, paused, inactive] = [active, paused, inactive].map(with_commas);
    let mut rows = vec![
        ("accounts", format!("{}, {} suspended", with_commas(accounts), with_commas(suspended))),
        ("keys", format!("{active} active, {paused} paused, {inactive} inactive")),
        ("unreadable keys", with_commas(unreadable)),
        ("requests today", with_commas(requests_today)),
        ("demo today", format!("{} of {}", with_commas(*demo_used), with_commas(*demo_limit))),
        ("store", store.clone()),
    ];
    rows.extend(store_problem.clone().map(|problem| ("problem", problem)));
    attributes(rows)
}
