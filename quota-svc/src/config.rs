//! Flags and environment variables of quota-svc.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::ensure;
use http_server::ServeArgs;
use quota_api::Limits;
use service_kit::{ListenAddrParser, TelemetryArgs};

use crate::router::Serve;
use crate::store::StoreArgs;

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
    pub limits: Limits,
    #[command(flatten)]
    pub serving: ServeArgs,
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

base::default_from_flags!(Config);

impl Config {
    /// Rejects a non-loopback listen address without `--allow-remote`, and an invalid `--redis-url`.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.listen.ip().is_loopback() || self.allow_remote,
            "--listen {} is not a loopback address: use a loopback address, or add --allow-remote if only your services can \
             reach the port",
            self.listen
        );
        self.store.check()
    }
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
        assert_eq!(Config::default().limits, Limits::default());
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
    fn negative_limit_is_rejected_with_the_range() {
        for flag in ["--daily-limit", "--burst-limit", "--demo-limit"] {
            let error = Flags::try_parse_from(["quota-svc", flag, "-1"]).err().unwrap().to_string();
            assert!(error.contains("invalid value '-1'") && error.contains("-1 is not in"), "{error}");
        }
    }

    #[test]
    fn invalid_redis_url_is_rejected_by_the_check() {
        let error = parse(&["--redis-url", "http://localhost"]).check().unwrap_err().to_string();
        assert!(error.contains("--redis-url"), "{error}");
    }

    #[test]
    fn debug_output_contains_no_secret() {
        let config = parse(&["--redis-url", "redis://u:hush@h"]);
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn missing_store_error_names_the_flags() {
        let limits = Limits::default();
        let error = parse(&[]).store.open(limits).err().unwrap().to_string();
        assert!(error.contains("--redis-url") && error.contains("--store-file"));
    }
}
