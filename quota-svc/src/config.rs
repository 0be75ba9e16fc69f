//! Flags and environment of quota-svc.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser;
use secrecy::SecretString;
use service_kit::{ServeArgs, TelemetryArgs, parse_duration};

use crate::api::Serve;
use crate::cli::{ClientArgs, Command as Operate};
use crate::domain::limits::Limits;
use crate::domain::time::Clock;
use crate::store::redis::{ConfirmWrites, Credentials, RedisOptions};

/// Judges every request to the IP lookup API: accounts, API keys, a daily quota and a burst limit that pauses a key.
///
/// Without a command it serves its internal API to the services of the same pod. With one it is the operator's
/// tool and talks to the quota-svc that runs at --quota-url.
///
/// Every flag can be given as an environment variable of the same name: --redis-url is REDIS_URL.
#[derive(Parser, Debug)]
#[command(name = "quota-svc", version, args_conflicts_with_subcommands = false)]
pub struct Cli {
    /// What to do instead of serving
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How commands reach the running quota-svc
    #[command(flatten)]
    pub client: ClientArgs,
    /// How to serve
    #[command(flatten)]
    pub config: Config,
}

/// What to do instead of serving.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Print the OpenAPI document of the internal API
    Openapi,
    /// The operator's commands.
    #[command(flatten)]
    Operate(Operate),
}

/// How to serve.
#[derive(clap::Args, Debug, Clone)]
pub struct Config {
    /// Address of the internal API; anything but loopback needs --allow-remote
    #[arg(long, env, default_value = "127.0.0.1:8082", help_heading = "Serving")]
    pub listen: SocketAddr,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, env, default_value = "0.0.0.0:9082", help_heading = "Serving")]
    pub admin_listen: SocketAddr,
    /// Listen and answer beyond this machine. There is no authentication: whoever reaches the port owns every key
    #[arg(long, env, help_heading = "Serving")]
    pub allow_remote: bool,
    /// What to serve: `charges` is all that lookup-svc needs
    #[arg(long, env, value_enum, default_value_t = Serve::All, help_heading = "Serving")]
    pub serve: Serve,
    /// Where accounts, keys and counters are kept
    #[command(flatten)]
    pub store: StoreArgs,
    /// The limits
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Connections and stopping
    #[command(flatten)]
    pub serving: ServeArgs,
    /// Logs
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// Where accounts, keys and counters are kept: one of --redis-url and --store-file.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Store")]
pub struct StoreArgs {
    /// Redis or Valkey: redis://HOST:PORT/DB, rediss:// for TLS, unix:///PATH, redis+cluster://HOST,HOST,
    /// redis+sentinel://HOST,HOST/MASTER
    #[arg(long, env, value_name = "URL", hide_env_values = true, conflicts_with = "store_file")]
    pub redis_url: Option<SecretString>,
    /// Keep everything in this file, without a server; for one machine
    #[arg(long, env, value_name = "PATH")]
    pub store_file: Option<PathBuf>,
    /// User of the Redis ACL
    #[arg(long, env, value_name = "NAME")]
    pub redis_username: Option<String>,
    /// Password for Redis; better in a file
    #[arg(long, env, value_name = "PASSWORD", hide_env_values = true)]
    pub redis_password: Option<SecretString>,
    /// File that holds the password for Redis
    #[arg(long, env, value_name = "PATH", conflicts_with = "redis_password")]
    pub redis_password_file: Option<PathBuf>,
    /// Certificate authority of a rediss:// server, as PEM
    #[arg(long, env, value_name = "PATH")]
    pub redis_ca_file: Option<PathBuf>,
    /// What the names in Redis start with
    #[arg(long, env, value_name = "TEXT", default_value = "ipl:")]
    pub key_prefix: String,
    /// How long the store may take to judge a batch of charges
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "250ms")]
    pub store_timeout: Duration,
    /// How long a change of an account or a key may take, with its confirmation
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "3s")]
    pub write_timeout: Duration,
    /// Whether Redis confirms such changes (on disk, on a replica) before they are answered
    #[arg(long, env, value_enum, default_value_t = ConfirmWrites::Auto)]
    pub confirm_writes: ConfirmWrites,
}

/// The limits of all keys.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Requests a day for a key without a limit of its own
    #[arg(long, env, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub daily_limit: u32,
    /// Requests within 60 seconds; one more pauses the key
    #[arg(long, env, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..))]
    pub burst_limit: u16,
    /// Requests a day for all anonymous callers of the demo together
    #[arg(long, env, value_name = "N", default_value_t = 1_000)]
    pub demo_limit: u32,
}

impl LimitArgs {
    /// The limits as the domain has them.
    pub fn limits(&self) -> Limits {
        Limits { daily: self.daily_limit, burst: self.burst_limit, demo: self.demo_limit }
    }
}

impl Default for LimitArgs {
    fn default() -> Self {
        let Limits { daily, burst, demo } = Limits::default();
        Self { daily_limit: daily, burst_limit: burst, demo_limit: demo }
    }
}

impl Default for StoreArgs {
    fn default() -> Self {
        Self {
            redis_url: None,
            store_file: None,
            redis_username: None,
            redis_password: None,
            redis_password_file: None,
            redis_ca_file: None,
            key_prefix: "ipl:".to_owned(),
            store_timeout: Duration::from_millis(250),
            write_timeout: Duration::from_secs(3),
            confirm_writes: ConfirmWrites::Auto,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8082)),
            admin_listen: SocketAddr::from(([0, 0, 0, 0], 9082)),
            allow_remote: false,
            serve: Serve::All,
            store: StoreArgs::default(),
            limits: LimitArgs::default(),
            serving: ServeArgs::default(),
            telemetry: TelemetryArgs::default(),
        }
    }
}

/// Which store to use.
pub enum StoreChoice {
    /// Redis or Valkey.
    Redis(RedisOptions),
    /// A file.
    File(PathBuf),
}

impl Config {
    /// Refuses what would be dangerous by accident.
    pub fn check(&self) -> anyhow::Result<()> {
        if !self.listen.ip().is_loopback() && !self.allow_remote {
            bail!(
                "--listen {} is not a loopback address. The internal API has no authentication: give a loopback \
                 address, or --allow-remote if nothing but your services can reach the port",
                self.listen
            );
        }
        Ok(())
    }
}

impl StoreArgs {
    /// Which store these flags name.
    pub fn choice(&self, limits: Limits) -> anyhow::Result<StoreChoice> {
        use secrecy::ExposeSecret;
        match (&self.redis_url, &self.store_file) {
            (None, None) => bail!("no store: give --redis-url URL for Redis or Valkey, or --store-file PATH"),
            (None, Some(path)) => Ok(StoreChoice::File(path.clone())),
            (Some(url), _) => Ok(StoreChoice::Redis(RedisOptions {
                url: url.expose_secret().to_owned(),
                credentials: self.credentials()?,
                key_prefix: self.key_prefix.clone(),
                store_timeout: self.store_timeout,
                write_timeout: self.write_timeout,
                confirm_writes: self.confirm_writes,
                limits,
                clock: Clock::Store,
            })),
        }
    }

    fn credentials(&self) -> anyhow::Result<Credentials> {
        let password = match &self.redis_password_file {
            None => self.redis_password.clone(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("--redis-password-file {} can't be read", path.display()))?;
                Some(text.trim_end_matches(['\r', '\n']).into())
            }
        };
        let username = self.redis_username.clone();
        Ok(Credentials { username, password, ca_file: self.redis_ca_file.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Config {
        Cli::try_parse_from(["quota-svc"].iter().chain(flags)).unwrap().config
    }

    #[test]
    fn the_flags_defaults_are_the_codes_defaults_and_the_specification() {
        assert_eq!(format!("{:?}", parse(&[])), format!("{:?}", Config::default()));
        assert_eq!(parse(&[]).limits.limits(), Limits { daily: 10_000, burst: 300, demo: 1_000 });
    }

    #[test]
    fn listening_beyond_this_machine_must_be_asked_for() {
        assert!(parse(&[]).check().is_ok());
        assert!(
            parse(&["--listen", "0.0.0.0:8082"]).check().unwrap_err().to_string().contains("--allow-remote")
        );
        assert!(parse(&["--listen", "0.0.0.0:8082", "--allow-remote"]).check().is_ok());
    }

    #[test]
    fn a_config_can_be_logged() {
        let config = parse(&["--redis-url", "redis://u:hush@h", "--redis-password", "hush"]);
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn without_a_store_it_says_what_to_give() {
        let limits = Limits::default();
        let error = parse(&[]).store.choice(limits).err().unwrap().to_string();
        assert!(error.contains("--redis-url") && error.contains("--store-file"));
    }
}
