//! Flags of `ip-lookup`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use dashboard_api::config::Switch;
use lookup_svc::geo::GeoArgs;
use secrecy::SecretString;
use service_kit::{ListenerArgs, LogFormat, ServeArgs, TelemetryArgs, TlsArgs, base_url, parse_duration};

/// IP lookup API on one machine: public API, quotas and dashboard in one process, data in one directory.
///
/// The first start creates an account and an API key and prints them. ip-lookup needs neither Redis nor a download.
///
/// Every flag can also be set by the environment variable of the same name, for example --data-dir by DATA_DIR.
#[derive(Parser, Debug, Clone)]
#[command(name = "ip-lookup", version)]
pub struct Config {
    /// Listen address of the public API
    #[arg(long, env, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Listen address of the dashboard
    #[arg(long, env, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub dashboard_listen: SocketAddr,
    /// Listen address of quota-svc's internal API, which its commands call; must be a loopback address
    #[arg(long, env, value_name = "ADDR", default_value = "127.0.0.1:8082")]
    pub quota_listen: SocketAddr,
    /// Listen address of /livez, /readyz and /metrics
    #[arg(long, env, value_name = "ADDR", default_value = "127.0.0.1:9080")]
    pub admin_listen: SocketAddr,
    /// Listen address of a port that redirects plain HTTP to the https URLs of the API and the dashboard: to that of the
    /// requested host, for an unknown host to the API's
    #[arg(long, env, value_name = "ADDR")]
    pub redirect_listen: Option<SocketAddr>,
    /// Public URL of the API, for links and examples [default: http://localhost or the address, with the port of --listen]
    #[arg(long, env, value_name = "URL", value_parser = base_url)]
    pub base_url: Option<String>,
    /// Public URL of the dashboard [default: http://localhost or the address, with the port of --dashboard-listen]
    #[arg(long, env, value_name = "URL", value_parser = base_url)]
    pub public_url: Option<String>,
    /// Let visitors of the dashboard create accounts
    #[arg(long, env, value_enum, default_value_t = Switch::On)]
    pub signup: Switch,
    /// Send the dashboard's cookies over plain HTTP, too. Only for a network that you trust; http://localhost works
    /// without it
    #[arg(long, env)]
    pub insecure_cookies: bool,
    /// Directory for persistent data
    #[arg(long, env, value_name = "PATH", default_value = "./data")]
    pub data_dir: PathBuf,
    /// Store accounts, keys and counters in this Redis or Valkey instead of the data directory
    #[arg(long, env, value_name = "URL", hide_env_values = true)]
    pub redis_url: Option<SecretString>,
    /// Trusted proxies (CIDRs or IP addresses): only their X-Forwarded-For and X-Edge-* headers are used. `none`
    /// trusts no proxy
    #[arg(long, env, value_name = "CIDRS", value_delimiter = ',', default_value = "127.0.0.0/8,::1/128")]
    pub trusted_proxies: Vec<String>,
    /// Requests per day for keys without their own limit
    #[arg(long, env, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub daily_limit: u32,
    /// Requests per 60 s per key; one more pauses the key
    #[arg(long, env, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..))]
    pub burst_limit: u16,
    /// Requests per day for the demo, shared by all callers
    #[arg(long, env, value_name = "N", default_value_t = 1_000)]
    pub demo_limit: u32,
    /// Time for in-flight requests to finish after Ctrl-C
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "25s")]
    pub grace: Duration,
    /// Log format on standard error: text for people, json for machines
    #[arg(long, env, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Log filter: error, warn, info or debug, or a list such as info,hyper=debug
    #[arg(long, env, value_name = "FILTER", default_value = "warn")]
    pub log_level: String,
    #[command(flatten)]
    pub geo: GeoArgs,
    /// For the API and the dashboard.
    #[command(flatten)]
    pub listener: ListenerArgs,
    /// For the API and the dashboard.
    #[command(flatten)]
    pub tls: TlsArgs,
}

impl Config {
    /// Sets no drain delay: there is no load balancer to wait for, so the services stop accepting connections as soon
    /// as Ctrl-C is pressed.
    pub fn serve_args(&self) -> ServeArgs {
        ServeArgs { drain_delay: Duration::ZERO, grace: self.grace, ..ServeArgs::default() }
    }

    /// The scheme of the public URLs that are not given.
    pub fn scheme(&self) -> &'static str {
        if self.tls.tls_cert.is_empty() { "http" } else { "https" }
    }

    pub fn telemetry(&self) -> TelemetryArgs {
        TelemetryArgs { log_format: self.log_format, log_level: self.log_level.clone() }
    }
}
