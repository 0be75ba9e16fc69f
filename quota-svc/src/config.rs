//! Flags and environment variables of quota-svc.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base::flags::{flag_defaults, parse_duration};
use http_server::ServeArgs;
use quota_api::Limits;
use secrecy::{ExposeSecret, SecretString};
use service_kit::{ListenAddrParser, TelemetryArgs};

use crate::domain::time::Clock;
use crate::router::Serve;
use crate::store::Store;
use crate::store::embedded::EmbeddedStore;
use crate::store::redis::{Credentials, Password, RedisOptions, RedisStore};

#[derive(clap::Args, Debug, Clone)]
pub struct Config {
    /// Listen address of the internal API; an address other than loopback requires --allow-remote
    #[arg(long, env, value_name = "ADDR", default_value = "127.0.0.1:8082", help_heading = "Serving")]
    #[arg(value_parser = ListenAddrParser)]
    pub listen: SocketAddr,
    /// Listen address of /livez, /readyz and /metrics
    #[arg(long, env, value_name = "ADDR", default_value = "[::]:9082", help_heading = "Serving")]
    #[arg(value_parser = ListenAddrParser)]
    pub admin_listen: SocketAddr,
    /// Accept connections from other machines. They are not encrypted: use it only on a network that you trust
    #[arg(long, env, help_heading = "Serving")]
    pub allow_remote: bool,
    /// File with the token that clients must send (32 to 1024 characters). Commands send the token in this file
    #[arg(long, env, value_name = "PATH", global = true, help_heading = "Serving")]
    pub quota_token_file: Option<PathBuf>,
    /// Which operations to serve; lookup-svc needs only `charges`
    #[arg(long, env, value_enum, default_value_t = Serve::All, help_heading = "Serving")]
    pub serve: Serve,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub serving: ServeArgs,
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// The store: either --redis-url or --store-file.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Store")]
pub struct StoreArgs {
    /// Redis or Valkey, in one of these forms: redis://HOST:PORT/DB (rediss:// for TLS); unix:///PATH;
    /// redis+cluster://HOST,HOST; redis+sentinel://HOST,HOST/MASTER
    #[arg(long, env, value_name = "URL", hide_env_values = true, conflicts_with = "store_file")]
    pub redis_url: Option<SecretString>,
    /// Store everything in this file instead of Redis; only for a single machine
    #[arg(long, env, value_name = "PATH")]
    pub store_file: Option<PathBuf>,
    /// Redis user (ACL)
    #[arg(long, env, value_name = "NAME")]
    pub redis_username: Option<String>,
    /// Redis password; prefer --redis-password-file
    #[arg(long, env, value_name = "PASSWORD", hide_env_values = true)]
    pub redis_password: Option<SecretString>,
    /// File with the Redis password
    #[arg(long, env, value_name = "PATH", conflicts_with = "redis_password")]
    pub redis_password_file: Option<PathBuf>,
    /// User on the Sentinels (ACL); the user and password of the URL are for the master
    #[arg(long, env, value_name = "NAME")]
    pub redis_sentinel_username: Option<String>,
    /// Password on the Sentinels; prefer --redis-sentinel-password-file
    #[arg(long, env, value_name = "PASSWORD", hide_env_values = true)]
    pub redis_sentinel_password: Option<SecretString>,
    /// File with the password on the Sentinels
    #[arg(long, env, value_name = "PATH", conflicts_with = "redis_sentinel_password")]
    pub redis_sentinel_password_file: Option<PathBuf>,
    /// PEM file with the certificate authority of a rediss:// server
    #[arg(long, env, value_name = "PATH")]
    pub redis_ca_file: Option<PathBuf>,
    /// Prefix of all Redis keys
    #[arg(long, env, value_name = "TEXT", default_value = "ipl:")]
    pub key_prefix: String,
    /// Maximum time for the store to charge a batch
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "250ms")]
    pub store_timeout: Duration,
    /// Maximum time for an operation on accounts, keys or sessions, including the confirmation of its writes; in an
    /// import, for each step. dashboard-api waits 3 s for all operations of a request
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "2500ms")]
    pub write_timeout: Duration,
}

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Requests per day for keys without their own limit
    #[arg(long, env, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub daily_limit: u32,
    /// Requests per 60 s per key; one more pauses the key
    #[arg(long, env, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..))]
    pub burst_limit: u16,
    /// Requests per day for the demo, shared by all callers
    #[arg(long, env, value_name = "N", default_value_t = 1_000)]
    pub demo_limit: u32,
}

impl LimitArgs {
    pub fn limits(&self) -> Limits {
        Limits { daily: self.daily_limit, burst: self.burst_limit, demo: self.demo_limit }
    }
}

impl Default for StoreArgs {
    fn default() -> Self {
        flag_defaults()
    }
}

impl Default for Config {
    fn default() -> Self {
        flag_defaults()
    }
}

impl Config {
    /// Rejects a non-loopback listen address without `--allow-remote`.
    pub fn check(&self) -> anyhow::Result<()> {
        if !self.listen.ip().is_loopback() && !self.allow_remote {
            bail!(
                "--listen {} is not a loopback address: use a loopback address, or add --allow-remote if only your \
                 services can reach the port",
                self.listen
            );
        }
        Ok(())
    }
}

impl StoreArgs {
    /// Opens the store. Connecting to Redis goes on in the background.
    pub fn open(&self, limits: Limits) -> anyhow::Result<Arc<dyn Store>> {
        match (&self.redis_url, &self.store_file) {
            (None, None) => bail!("no store configured: set --redis-url URL or --store-file PATH"),
            (None, Some(path)) => Ok(Arc::new(EmbeddedStore::open(path, limits, Clock::Store)?)),
            (Some(url), _) => Ok(Arc::new(RedisStore::start(RedisOptions {
                url: url.expose_secret().to_owned(),
                credentials: self.credentials()?,
                key_prefix: self.key_prefix.clone(),
                store_timeout: self.store_timeout,
                write_timeout: self.write_timeout,
                limits,
                clock: Clock::Store,
            })?)),
        }
    }

    fn credentials(&self) -> anyhow::Result<Credentials> {
        let (file, sentinel_file) = (&self.redis_password_file, &self.redis_sentinel_password_file);
        Ok(Credentials {
            username: self.redis_username.clone(),
            password: password("--redis-password-file", file, &self.redis_password)?,
            sentinel_username: self.redis_sentinel_username.clone(),
            sentinel_password: password(
                "--redis-sentinel-password-file",
                sentinel_file,
                &self.redis_sentinel_password,
            )?,
            ca_file: self.redis_ca_file.clone(),
        })
    }
}

/// The password in the file that `flag` names, or else the password given directly. Fails if the file can't be read.
fn password(
    flag: &str,
    file: &Option<PathBuf>,
    given: &Option<SecretString>,
) -> anyhow::Result<Option<Password>> {
    let Some(path) = file else { return Ok(given.clone().map(Password::Given)) };
    let password = Password::File(path.clone());
    password.read().with_context(|| format!("can't read {flag} {}", path.display()))?;
    Ok(Some(password))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        config: Config,
    }

    fn parse(flags: &[&str]) -> Config {
        Flags::try_parse_from(["quota-svc"].iter().chain(flags)).unwrap().config
    }

    #[test]
    fn flag_defaults_match_code_defaults() {
        assert_eq!(Config::default().limits.limits(), Limits::default());
    }

    #[test]
    fn non_loopback_listen_address_requires_allow_remote() {
        assert!(parse(&[]).check().is_ok());
        assert!(
            parse(&["--listen", "0.0.0.0:8082"]).check().unwrap_err().to_string().contains("--allow-remote")
        );
        let remote = ["--listen", "0.0.0.0:8082", "--allow-remote"];
        assert!(parse(&remote).check().is_ok());
    }

    #[test]
    fn debug_output_contains_no_secret() {
        let flags = [
            "--redis-url",
            "redis://u:hush@h",
            "--redis-password",
            "hush",
            "--redis-sentinel-password",
            "hush",
        ];
        let config = parse(&flags);
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn missing_store_error_names_the_flags() {
        let limits = Limits::default();
        let error = parse(&[]).store.open(limits).err().unwrap().to_string();
        assert!(error.contains("--redis-url") && error.contains("--store-file"));
    }
}
