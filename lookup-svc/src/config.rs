//! The command line of lookup-svc. Each flag of the server can also be set by an environment variable, such as
//! `IP_LOOKUP_BASE_URL` for `--base-url`.

use std::path::PathBuf;
use std::time::Duration;

use base::flags::parse_duration;
use clap::builder::{ArgPredicate, FalseyValueParser};
use clap::{Args, Parser, Subcommand};
use edge::EdgeArgs;
use geo::GeoArgs;
use geo::update::GeoUpdateArgs;
use quota_client::BatchConfig;
use service_kit::command_line::{ManualCommand, OutputArgs, short_help};
use service_kit::{PublicServiceArgs, base_url, host_flag, telemetry, web_url};

use crate::explain::ExplainArgs;

/// The flags that `-h` shows: what a first setup needs.
const SHORT_HELP: &str = "\
    listen admin_listen redirect_listen base_url docs_url dashboard_url quota_url quota_token_file \
    trusted_proxies discover_proxies client_ip_from proxy_protocol colo geo_db tls_cert tls_key \
    log_format log_level";

const EXAMPLES: &str = "\
Examples:
  # Serve behind a proxy, with city data
  lookup-svc --quota-url http://127.0.0.1:8082 --trusted-proxies 10.0.0.0/8 --geo-db /var/lib/ip-lookup/geo
  # Show how a request through the proxy would be handled
  lookup-svc --trusted-proxies 10.0.0.0/8 explain --peer 10.0.0.1 -H \"X-Forwarded-For: 203.0.113.7\"";

/// Returns the caller's IP address, location, network and connection details as JSON
///
/// Runs the server unless a command is given. Requires quota-svc (--quota-url).
///
/// Every flag can also be set by an environment variable, for example --base-url by IP_LOOKUP_BASE_URL.
#[derive(Parser, Debug)]
#[command(name = "lookup-svc", version, about, max_term_width = 110, mut_args(short_help(SHORT_HELP)))]
#[command(after_long_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    pub config: Config,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Print the API's OpenAPI document as JSON
    Openapi,
    /// Download, verify and install geo databases
    GeoUpdate(Box<GeoUpdateArgs>),
    Explain {
        #[command(flatten)]
        output: OutputArgs,
        // Last, because its documentation is the command's help.
        #[command(flatten)]
        args: ExplainArgs,
    },
    /// Check that a running service responds
    Selftest(SelftestArgs),
    #[command(flatten)]
    Manual(ManualCommand),
}

#[derive(Args, Debug, Clone)]
pub struct SelftestArgs {
    /// Public URL of the API, for example http://localhost:8080
    #[arg(long, value_name = "URL", value_parser = base_url)]
    pub url: String,
    /// PEM file with the certificate authorities to trust, instead of the public ones
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Connect to this host and port instead of those in the URL; the certificate must still be for the URL's host. A port in
    /// the URL takes precedence
    #[arg(long, value_name = "HOST:PORT")]
    pub connect_to: Option<String>,
    /// URL of the admin port. With it, also check that --discover-proxies has found a proxy
    #[arg(long, value_name = "URL", value_parser = base_url)]
    pub admin_url: Option<String>,
}

/// The settings of the server.
#[derive(Args, Debug, Clone)]
pub struct Config {
    /// Public URL of the API [default with TLS: https://localhost:8080]
    #[arg(long, env, value_name = "URL", default_value = "http://localhost:8080", value_parser = base_url)]
    #[arg(default_value_if("tls_cert", ArgPredicate::IsPresent, "https://localhost:8080"))]
    pub base_url: String,
    /// Host name of this API with IPv4 addresses only (A records), such as ipv4.ip.example.org. The home page then shows
    /// visitors who use IPv6 their IPv4 address, too. Has the scheme, port and path of --base-url
    #[arg(long, env, value_name = "NAME", value_parser = host_flag)]
    pub ipv4_host: Option<String>,
    /// Host name of this API with IPv6 addresses only (AAAA records), such as ipv6.ip.example.org, for visitors who use
    /// IPv4
    #[arg(long, env, value_name = "NAME", value_parser = host_flag)]
    pub ipv6_host: Option<String>,
    /// Documentation URL in errors [default: {base-url}/docs]
    #[arg(long, env, value_name = "URL", value_parser = base_url_or_empty)]
    pub docs_url: Option<String>,
    /// URL of the dashboard, where owners create and resume keys
    #[arg(long, env, value_name = "URL", default_value = "http://localhost:8081", value_parser = base_url)]
    pub dashboard_url: String,
    /// Sign-up URL shown when the demo quota is used up [default: {dashboard-url}/#sign-up]
    #[arg(long, env, value_name = "URL", value_parser = link)]
    pub signup_url: Option<String>,
    /// URL of a page about higher limits, shown when a key's daily quota is used up [default: {docs-url}#enterprise]
    #[arg(long, env, value_name = "URL", value_parser = link)]
    pub enterprise_url: Option<String>,
    /// Also send the headers RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11, in addition to
    /// X-RateLimit-*
    #[arg(long, env, value_parser = FalseyValueParser::new())]
    pub ratelimit_headers: bool,
    /// Maximum time per request
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "1s")]
    pub request_timeout: Duration,
    #[command(flatten)]
    pub quota: QuotaArgs,
    #[command(flatten)]
    pub edge: EdgeArgs,
    #[command(flatten)]
    pub geo: GeoArgs,
    #[command(flatten, next_help_heading = "Serving")]
    pub service: PublicServiceArgs,
}

/// Calls to quota-svc.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Quota")]
pub struct QuotaArgs {
    /// URL of quota-svc, which checks keys and counts requests
    #[arg(long, env, value_name = "URL", default_value = "http://127.0.0.1:8082", value_parser = base_url)]
    pub quota_url: String,
    /// File with the token that quota-svc requires
    #[arg(long, env, value_name = "PATH")]
    pub quota_token_file: Option<PathBuf>,
    /// Maximum time per charge, including queueing; requests that exceed it get 500
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "400ms")]
    pub quota_deadline: Duration,
    /// Maximum number of queued charges; if the queue is full, requests get 500 immediately
    // For tests and benchmarks, like the next two.
    #[arg(long, env, value_name = "N", default_value_t = 4096, hide = true)]
    pub quota_queue: usize,
    /// Maximum number of charges per call (quota-svc accepts up to 256)
    #[arg(long, env, value_name = "N", default_value_t = 64, hide = true)]
    pub quota_batch: usize,
    /// Maximum number of calls in flight [default: 2, or 4 with one worker thread]
    #[arg(long, env, value_name = "N", hide = true)]
    pub quota_in_flight: Option<usize>,
}

impl Config {
    /// How charges are queued and batched. Must be called within the server's runtime, because the default number of
    /// calls in flight depends on the number of worker threads.
    pub fn batching(&self) -> BatchConfig {
        let default = BatchConfig::default();
        BatchConfig {
            queue_capacity: self.quota.quota_queue,
            in_flight: self.quota.quota_in_flight.unwrap_or(default.in_flight),
            max_wait: default.max_wait,
            max_batch: self.quota.quota_batch,
            deadline: self.quota.quota_deadline.min(self.request_timeout),
            inject_trace_context: Some(telemetry::inject_context),
        }
    }

    /// Maximum time to read a request body: the request timeout minus the time reserved for the charge.
    pub fn body_timeout(&self) -> Duration {
        self.request_timeout.saturating_sub(self.quota.quota_deadline)
    }
}

base::default_from_flags!(Config);

/// An empty value, such as that of an unset variable in a template, stands for the default.
fn base_url_or_empty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Ok(String::new()) } else { base_url(text) }
}

/// A link on the documentation page and in errors. Other schemes, such as `javascript:`, must be rejected.
fn link(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Ok(String::new());
    }
    match text.starts_with("mailto:") {
        true => Ok(text.to_owned()),
        false => web_url(text).map(|_| text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(flags: &[&str]) -> Cli {
        Cli::try_parse_from([&["lookup-svc"], flags].concat()).expect("valid flags")
    }

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn short_help_shows_at_most_twenty_flags() {
        let mut command = Cli::command();
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_short_help_set()).count();
        assert_eq!(shown, SHORT_HELP.split(' ').count(), "each name is that of a flag");
        assert!(shown + 2 <= 20, "with -h and -V");
        let all = command.render_long_help().to_string();
        assert!(all.contains("--edge-rtt-unit") && all.contains("--request-timeout"), "{all}");
    }

    #[test]
    fn command_line_without_flags_runs_server() {
        assert!(parse(&[]).command.is_none());
    }

    #[test]
    fn every_flag_has_environment_variable_of_its_name() {
        for arg in Cli::command().get_arguments().filter(|arg| arg.get_long().is_some()) {
            let long = arg.get_long().unwrap_or_default();
            if !["help", "version"].contains(&long) {
                let name = long.replace('-', "_").to_uppercase();
                assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(name.as_str()));
            }
        }
    }

    #[test]
    fn invalid_base_url_is_rejected() {
        for invalid in ["ip.example", "ftp://ip.example", "https://ip.example/?x"] {
            assert!(Cli::try_parse_from(["lookup-svc", "--base-url", invalid]).is_err(), "{invalid}");
        }
        assert_eq!(parse(&["--base-url", "https://ip.example/"]).config.base_url, "https://ip.example");
    }

    #[test]
    fn base_url_defaults_to_https_with_tls() {
        assert_eq!(parse(&[]).config.base_url, "http://localhost:8080");
        let tls = ["--tls-cert", "a.crt", "--tls-key", "a.key"];
        assert_eq!(parse(&tls).config.base_url, "https://localhost:8080");
        let given = parse(&[&tls[..], &["--base-url", "https://ip.example"]].concat());
        assert_eq!(given.config.base_url, "https://ip.example");
        assert!(Cli::try_parse_from(["lookup-svc", "--tls-cert", "a.crt"]).is_err(), "without a key");
        assert!(Cli::try_parse_from(["lookup-svc", "--tls-min-version", "1.1"]).is_err());
    }

    #[test]
    fn links_with_other_schemes_are_rejected() {
        for flag in ["--docs-url", "--signup-url", "--enterprise-url"] {
            assert!(Cli::try_parse_from(["lookup-svc", flag, "javascript:alert(1)"]).is_err(), "{flag}");
            parse(&[flag, ""]);
            parse(&[flag, "https://docs.example/x"]);
        }
        parse(&["--signup-url", "https://keys.example/?plan=free#sign-up"]);
        parse(&["--enterprise-url", "mailto:sales@ip.example"]);
    }

    #[test]
    fn charge_deadline_and_body_timeout_fit_request_timeout() {
        let config = Config { request_timeout: Duration::from_millis(300), ..Config::default() };
        assert_eq!(config.batching().deadline, Duration::from_millis(300));
        assert_eq!(config.body_timeout(), Duration::ZERO);
    }
}
