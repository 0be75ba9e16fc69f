//! The flags of lookup-svc; each has an environment variable of the same name in upper case.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use edge::EdgeArgs;
use quota_client::BatchConfig;
use service_kit::{ServeArgs, TelemetryArgs, parse_duration, telemetry};

use crate::geo::GeoArgs;
use crate::geo_update::GeoUpdateArgs;

/// The public IP lookup API: tells each caller its own address, place, network and connection.
///
/// Without a command it serves. It needs a quota-svc (--quota-url), which knows the API keys and counts.
#[derive(Parser, Debug)]
#[command(name = "lookup-svc", version, about, max_term_width = 110)]
pub struct Cli {
    /// What to serve and how.
    #[command(flatten)]
    pub config: Config,

    /// Something else than serving.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What the program can do besides serving.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Print the API's OpenAPI document as JSON
    Openapi,
    /// Download geo databases, verify them and put them in place
    GeoUpdate(Box<GeoUpdateArgs>),
    /// Check from outside that a running service answers; exits with 0 if it does
    Selftest(SelftestArgs),
}

/// What to check.
#[derive(Args, Debug, Clone)]
pub struct SelftestArgs {
    /// Address of the public API, for example http://localhost:8080
    #[arg(long, value_name = "URL", value_parser = http_url)]
    pub url: String,
}

/// How lookup-svc serves.
#[derive(Args, Debug, Clone)]
pub struct Config {
    /// Address and port of the public API
    #[arg(long, env, value_name = "ADDR", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,

    /// Address and port of /livez, /readyz and /metrics
    #[arg(long, env, value_name = "ADDR", default_value = "0.0.0.0:9080")]
    pub admin_listen: SocketAddr,

    /// The API's address as its clients see it
    #[arg(long, env, value_name = "URL", default_value = "http://localhost:8080", value_parser = http_url)]
    pub base_url: String,

    /// Documentation that errors link to; by default the page /docs of this service
    #[arg(long, env, value_name = "URL")]
    pub docs_url: Option<String>,

    /// The dashboard, where owners create and resume their keys
    #[arg(long, env, value_name = "URL", default_value = "http://localhost:8081", value_parser = http_url)]
    pub dashboard_url: String,

    /// Where the exhausted demo sends people; by default the dashboard
    #[arg(long, env, value_name = "URL")]
    pub signup_url: Option<String>,

    /// Where an exhausted key's owner asks for more; by default a section of the documentation
    #[arg(long, env, value_name = "URL")]
    pub enterprise_url: Option<String>,

    /// How long a request may take in all
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "1s")]
    pub request_timeout: Duration,

    #[expect(missing_docs, reason = "a doc comment on a flattened group would replace its help")]
    #[command(flatten)]
    pub quota: QuotaArgs,

    #[expect(missing_docs, reason = "as above")]
    #[command(flatten)]
    pub edge: EdgeArgs,

    #[expect(missing_docs, reason = "as above")]
    #[command(flatten)]
    pub geo: GeoArgs,

    #[expect(missing_docs, reason = "as above")]
    #[command(flatten)]
    pub serve: ServeArgs,

    #[expect(missing_docs, reason = "as above")]
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// How charges reach quota-svc.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Quota")]
pub struct QuotaArgs {
    /// The quota-svc that judges and counts
    #[arg(long, env, value_name = "URL", default_value = "http://127.0.0.1:8082", value_parser = http_url)]
    pub quota_url: String,

    /// How long a charge may take, waiting included; then the answer is 500
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "400ms")]
    pub quota_deadline: Duration,

    /// Charges that may wait; one more is answered 500 at once
    #[arg(long, env, value_name = "N", default_value_t = 4096)]
    pub quota_queue: usize,

    /// Charges that travel together at the most (quota-svc takes 256)
    #[arg(long, env, value_name = "N", default_value_t = 64)]
    pub quota_batch: usize,

    /// Calls under way at the same time; 0 chooses by the number of worker threads
    #[arg(long, env, value_name = "N", default_value_t = 0)]
    pub quota_in_flight: usize,

    /// Send each charge in a call of its own, for comparison
    #[arg(long, env, hide = true)]
    pub no_batching: bool,
}

impl Config {
    /// The bounds of charging; to be asked within the runtime that will serve.
    pub fn batching(&self) -> BatchConfig {
        let default = BatchConfig::default();
        BatchConfig {
            queue: self.quota.quota_queue,
            in_flight: if self.quota.quota_in_flight == 0 {
                default.in_flight
            } else {
                self.quota.quota_in_flight
            },
            batch: self.quota.quota_batch,
            deadline: self.quota.quota_deadline.min(self.request_timeout),
            batching: !self.quota.no_batching,
            inject: Some(telemetry::inject_context),
        }
    }

    /// What the quota's deadline leaves of a request's time: a body that nobody wants may take that long.
    pub fn body_deadline(&self) -> Duration {
        self.request_timeout.saturating_sub(self.quota.quota_deadline)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 8080)),
            admin_listen: SocketAddr::from(([0, 0, 0, 0], 9080)),
            base_url: "http://localhost:8080".to_owned(),
            docs_url: None,
            dashboard_url: "http://localhost:8081".to_owned(),
            signup_url: None,
            enterprise_url: None,
            request_timeout: Duration::from_secs(1),
            quota: QuotaArgs::default(),
            edge: EdgeArgs::default(),
            geo: GeoArgs::default(),
            serve: ServeArgs::default(),
            telemetry: TelemetryArgs::default(),
        }
    }
}

impl Default for QuotaArgs {
    fn default() -> Self {
        Self {
            quota_url: "http://127.0.0.1:8082".to_owned(),
            quota_deadline: Duration::from_millis(400),
            quota_queue: 4096,
            quota_batch: 64,
            quota_in_flight: 0,
            no_batching: false,
        }
    }
}

fn http_url(text: &str) -> Result<String, String> {
    let url = reqwest::Url::parse(text)
        .map_err(|error| format!("{error}; write for example https://ip.example"))?;
    match (url.scheme(), url.query(), url.fragment()) {
        ("http" | "https", None, None) => Ok(text.trim_end_matches('/').to_owned()),
        ("http" | "https", _, _) => Err("it must not have a query or a fragment".to_owned()),
        _ => Err("it must begin with http:// or https://".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(flags: &[&str]) -> Cli {
        Cli::try_parse_from([&["lookup-svc"], flags].concat()).expect("the flags are good")
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_flags_defaults_are_the_codes_defaults() {
        let cli = parse(&[]);
        assert!(cli.command.is_none(), "without a command it serves");
        assert_eq!(format!("{:?}", cli.config), format!("{:?}", Config::default()));
    }

    #[test]
    fn every_flag_has_the_environment_variable_of_its_name() {
        for arg in Cli::command().get_arguments().filter(|arg| arg.get_long().is_some()) {
            let long = arg.get_long().unwrap_or_default();
            if !["help", "version"].contains(&long) {
                let name = long.replace('-', "_").to_uppercase();
                assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(name.as_str()));
            }
        }
    }

    #[test]
    fn an_address_must_be_one() {
        for wrong in ["ip.example", "ftp://ip.example", "https://ip.example/?x"] {
            assert!(Cli::try_parse_from(["lookup-svc", "--base-url", wrong]).is_err(), "{wrong}");
        }
        assert_eq!(parse(&["--base-url", "https://ip.example/"]).config.base_url, "https://ip.example");
    }

    #[test]
    fn the_parts_of_a_request_fit_into_its_time() {
        let config = Config { request_timeout: Duration::from_millis(300), ..Config::default() };
        assert_eq!(config.batching().deadline, Duration::from_millis(300));
        assert_eq!(config.body_deadline(), Duration::ZERO);
    }
}
