//! The commands of `ip-lookup`. Those for accounts and keys work while the service runs and while it is stopped.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;

use clap::Parser;
use dashboard_api::password_commands::PasswordCommand;
use geo::update::{self, GeoUpdateArgs, Report};
use lookup_svc::explain::{self, ExplainArgs};
use quota_svc::cli::{CliContext, ClientCommand};
use service_kit::command_line::{ManualCommand, Output, OutputArgs, short_help};

use crate::config::{Config, DATA_DIR};
use crate::service_urls::ServiceUrls;
use crate::{command_socket, data_dir};

/// The flags that `-h` shows: what a first setup needs.
const SHORT_HELP: &str = "\
    listen dashboard_listen api_host dashboard_host acme_email base_url public_url data_dir \
    trusted_proxies geo_db tls_cert tls_key log_level";

const EXAMPLES: &str = "\
Examples:
  # Serve on this machine
  ip-lookup
  # Serve two host names over HTTPS, with certificates from Let's Encrypt and cities from DB-IP
  ip-lookup --api-host ip.example.org --dashboard-host keys.example.org --acme-email you@example.org \\
    --signup off --geo-update dbip-lite
  # Create a key, and find out why a request gets the wrong address
  ip-lookup key create --account admin --name Production --scope full
  ip-lookup --trusted-proxies 10.0.0.0/8 explain --peer 10.0.0.1 -H \"X-Forwarded-For: 203.0.113.7\"";

/// IP lookup API on one machine: public API, quotas and dashboard in one process, data in one directory
///
/// Runs the service unless a command is given. The first start creates an account and an API key and prints them
/// (see --print-credentials). ip-lookup needs neither Redis nor a download.
///
/// Commands work while the service runs and while it is stopped. Run them as the same user and with the same --data-dir
/// and --redis-url.
///
/// Every flag of the service can also be set by an environment variable, for example --data-dir by IP_LOOKUP_DATA_DIR.
#[derive(Parser, Debug)]
#[command(name = "ip-lookup", version, mut_args(short_help(SHORT_HELP)), after_long_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub config: Config,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(clap::Subcommand, Debug)]
pub enum Command {
    #[command(flatten)]
    Client(ClientCommand),
    #[command(flatten)]
    Password(PasswordCommand),
    /// Download, verify and install geo databases, by default in the directory geo in --data-dir, which the service uses
    /// if no --geo-db is given
    #[command(mut_arg("to", |arg| arg.required(false)
        .help("Directory to install the databases in [default: geo in --data-dir]")))]
    GeoUpdate(Box<GeoUpdateArgs>),
    Explain(ExplainArgs),
    /// Print the JSON that a client with this address would get, from the geo data that the service would load
    Lookup {
        /// IPv4 or IPv6 address
        address: IpAddr,
    },
    #[command(flatten)]
    Manual(ManualCommand),
}

/// Runs a command and prints its result.
pub async fn run(command: Command, config: &Config, output: Output) -> anyhow::Result<()> {
    match command {
        Command::Manual(command) => command.run::<Cli>(),
        Command::Explain(args) => {
            let (edge, geo) = (config.edge(), config.geo_args());
            explain::run(&edge, &geo, config.listener.proxy_protocol, args, output).await
        }
        Command::Lookup { address } => explain::print_lookup(&config.geo_args(), address),
        Command::GeoUpdate(mut args) => {
            args.to.get_or_insert_with(|| data_dir::geo_dir(&config.data_dir));
            update::run(*args, Report::default()).await
        }
        Command::Client(command) => {
            let creates_store = matches!(command, ClientCommand::Import(_));
            let run = async |client, address| {
                command.run(&CliContext::new(client, address, output, program(config))).await
            };
            command_socket::run_command(config, creates_store, run).await
        }
        Command::Password(command) => {
            let public_url = ServiceUrls::at(config, config.listen, config.dashboard_addr()).dashboard;
            let run =
                async |client, _| command.run(&client, output, &program(config), Some(public_url)).await;
            command_socket::run_command(config, false, run).await
        }
    }
}

/// The program with the flags that a command needs to reach the service with this configuration.
pub fn program(config: &Config) -> String {
    let mut line = called_as(std::env::args_os().next(), std::env::var_os("CARGO").is_some());
    if config.data_dir != Path::new(DATA_DIR) {
        line += &format!(" --data-dir {}", quoted(&config.data_dir.display().to_string()));
    }
    line
}

/// How this program was called: by cargo, with a path or by its name.
fn called_as(program: Option<OsString>, by_cargo: bool) -> String {
    match program.map(|program| program.to_string_lossy().into_owned()) {
        Some(_) if by_cargo => "cargo run --release --".to_owned(),
        Some(path) if path.contains('/') => quoted(&path),
        _ => "ip-lookup".to_owned(),
    }
}

/// Quotes text for a shell, if needed.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    match text.chars().all(is_plain) && !text.is_empty() {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Cli {
        Cli::try_parse_from(line.split(' ')).unwrap()
    }

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn short_help_shows_at_most_fifteen_flags() {
        let shown = Cli::command().get_arguments().filter(|arg| !arg.is_hide_short_help_set()).count();
        assert_eq!(shown, SHORT_HELP.split(' ').count(), "each name is that of a flag");
        assert!(shown + 2 <= 15, "with -h and -V");
    }

    #[test]
    fn flags_of_the_data_may_follow_the_command() {
        for line in
            ["ip-lookup --data-dir d key list --output json", "ip-lookup key list --data-dir d --output json"]
        {
            let Cli { command, output, config } = parse(line);
            assert!(matches!(command, Some(Command::Client(ClientCommand::Key(_)))), "{line}");
            assert_eq!((config.data_dir.as_path(), output.output), (Path::new("d"), Output::Json), "{line}");
        }
    }

    #[test]
    fn geo_update_needs_no_directory() {
        let Some(Command::GeoUpdate(args)) = parse("ip-lookup geo-update dbip-lite").command else {
            panic!("another command");
        };
        assert_eq!(args.to, None);
    }

    #[test]
    fn commands_in_messages_have_the_flags_of_the_service() {
        let line = program(&parse("ip-lookup --data-dir /srv/ip").config);
        assert!(line.ends_with(" --data-dir /srv/ip"), "{line}");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
    }

    #[test]
    fn commands_in_messages_start_as_the_program_was_called() {
        let called = |program: &str, by_cargo| called_as(Some(program.into()), by_cargo);
        assert_eq!(called("target/release/ip-lookup", true), "cargo run --release --");
        assert_eq!(called("./ip lookup", false), "'./ip lookup'");
        assert_eq!(called("ip-lookup", false), "ip-lookup");
    }
}
