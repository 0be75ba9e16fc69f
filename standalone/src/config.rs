//! Flags of `ip-lookup`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use base::flags::parse_duration;
use clap::Parser;
use clap::builder::{ArgPredicate, FalseyValueParser};
use dashboard_api::config::{NoticeArgs, Switch};
use edge::EdgeArgs;
use geo::GeoArgs;
use http_server::{ListenerArgs, ServeArgs, TlsArgs};
use quota_client::wire::Limits;
use quota_svc::store::StoreArgs;
use secrecy::SecretString;
use service_kit::{ListenAddrParser, TelemetryArgs, base_url, host_flag, parse_listen_addr};

use crate::acme::AcmeArgs;
use crate::data_dir;

/// Default of `--data-dir`.
pub const DATA_DIR: &str = "./data";

/// The flags of the server. Commands use those that are `global`.
#[derive(Parser, Debug, Clone)]
#[command(name = "ip-lookup", version, mut_arg("log_level", |arg| arg.default_value("warn")))]
pub struct Config {
    /// Listen address of the public API. A port alone is on 127.0.0.1, `:PORT` on all addresses [default with --api-host:
    /// [::]:443]
    #[arg(long, env, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = ListenAddrParser)]
    #[arg(default_value_if("api_host", ArgPredicate::IsPresent, "[::]:443"))]
    pub listen: SocketAddr,
    /// Listen address of the dashboard [default with --dashboard-host: the same port as the API]
    #[arg(long, env, value_name = "ADDR", default_value = "127.0.0.1:8081", value_parser = ListenAddrParser)]
    #[arg(default_value_if("dashboard_host", ArgPredicate::IsPresent, None::<&str>))]
    pub dashboard_listen: Option<SocketAddr>,
    /// Listen address of quota-svc's internal API; must be a loopback address
    #[arg(long, env, value_name = "ADDR", default_value = "127.0.0.1:8082", value_parser = ListenAddrParser)]
    pub quota_listen: SocketAddr,
    /// Listen address of /livez, /readyz and /metrics
    #[arg(long, env, value_name = "ADDR", default_value = "127.0.0.1:9080", value_parser = ListenAddrParser)]
    pub admin_listen: SocketAddr,
    /// Listen address of a port that redirects plain HTTP to --public-url if the request is for its host, otherwise to
    /// --base-url; both must be https URLs. `none` opens no such port [default with --api-host: [::]:80]
    #[arg(long, env, value_name = "ADDR", value_parser = addr_or_none)]
    #[arg(default_value_if("api_host", ArgPredicate::IsPresent, "[::]:80"))]
    pub redirect_listen: Option<AddrOrNone>,
    /// Host name of the public API, such as ip.example.org: serves HTTPS for this name on port 443, and redirects plain HTTP.
    /// Needs a certificate. Requests for other hosts get 421
    #[arg(long, env, value_name = "NAME", value_parser = host_flag)]
    pub api_host: Option<String>,
    /// Host name of the dashboard, such as keys.example.org: serves HTTPS for this name, on the same port as the API unless
    /// --dashboard-listen is set
    #[arg(long, env, value_name = "NAME", value_parser = host_flag, requires = "api_host")]
    pub dashboard_host: Option<String>,
    /// Host name of the public API with IPv4 addresses only (A records), such as ipv4.ip.example.org. The home page then shows
    /// visitors who use IPv6 their IPv4 address, too
    #[arg(long, env, value_name = "NAME", value_parser = host_flag)]
    pub ipv4_host: Option<String>,
    /// Host name of the public API with IPv6 addresses only (AAAA records), such as ipv6.ip.example.org, for visitors who use
    /// IPv4
    #[arg(long, env, value_name = "NAME", value_parser = host_flag)]
    pub ipv6_host: Option<String>,
    /// Public URL of the API, for links and examples [default: https:// and --api-host, otherwise localhost or
    /// the listen address, with the port of --listen]
    #[arg(long, env, value_name = "URL", value_parser = base_url)]
    pub base_url: Option<String>,
    /// Public URL of the dashboard, which rejects requests for other hosts, except for loopback names [default: https://
    /// and --dashboard-host, otherwise localhost or the listen address, with the port of --dashboard-listen]
    #[arg(long, env, value_name = "URL", value_parser = base_url)]
    pub public_url: Option<String>,
    /// Let visitors of the dashboard create accounts
    #[arg(long, env, value_enum, default_value_t = Switch::On)]
    pub signup: Switch,
    /// Send the dashboard's cookies over plain HTTP, too. Only for a network that you trust; http://localhost works
    /// without it
    #[arg(long, env)]
    pub insecure_cookies: bool,
    /// Print the password and the API key that the first start creates. `off` creates the account without a password or
    /// key, for logs that others can read
    #[arg(long, env, value_enum, default_value_t = Switch::On)]
    pub print_credentials: Switch,
    /// Directory for persistent data
    #[arg(long, env, value_name = "PATH", default_value = DATA_DIR, global = true)]
    pub data_dir: PathBuf,
    /// Store accounts, keys and counters in this Redis or Valkey instead of the data directory
    #[arg(long, env, value_name = "URL", hide_env_values = true, global = true)]
    pub redis_url: Option<SecretString>,
    /// Trusted proxies (CIDRs or IP addresses): only their X-Forwarded-For and X-Edge-* headers are used. `none`
    /// trusts no proxy
    #[arg(long, env, value_name = "CIDRS", value_delimiter = ',', default_value = "127.0.0.0/8,::1/128")]
    pub trusted_proxies: Vec<String>,
    /// IATA code of this data center, for the field `colo`, if no header of a trusted proxy provides one
    #[arg(long, env, value_name = "IATA")]
    pub colo: Option<String>,
    /// Also send the headers RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11, in addition to
    /// X-RateLimit-*
    #[arg(long, env, value_parser = FalseyValueParser::new())]
    pub ratelimit_headers: bool,
    /// Time for in-flight requests to finish after Ctrl-C
    #[arg(long, env, value_name = "TIME", value_parser = parse_duration, default_value = "25s")]
    pub grace: Duration,
    #[command(flatten)]
    pub limits: Limits,
    #[command(flatten)]
    pub notices: NoticeArgs,
    #[command(flatten)]
    pub geo: GeoArgs,
    /// For the API and the dashboard.
    #[command(flatten)]
    pub listener: ListenerArgs,
    /// For the API and the dashboard.
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub acme: AcmeArgs,
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

impl Config {
    /// Sets no drain delay: there is no load balancer to wait for, so the services stop accepting connections as soon
    /// as Ctrl-C is pressed.
    pub fn serve_args(&self) -> ServeArgs {
        ServeArgs { drain_delay: Duration::ZERO, grace: self.grace, ..ServeArgs::default() }
    }

    /// Rejects combinations of flags that can't work, before a port is opened.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.quota_listen.ip().is_loopback(),
            "--quota-listen {} must be a loopback address",
            self.quota_listen
        );
        if let Some(host) = &self.api_host {
            ensure!(
                self.scheme() == "https",
                "--api-host {host} needs a certificate: set --tls-cert and --tls-key, or --acme-email"
            );
        }
        for (flag, host) in [("--ipv4-host", &self.ipv4_host), ("--ipv6-host", &self.ipv6_host)] {
            let names = [&self.api_host, &self.dashboard_host, &self.ipv4_host, &self.ipv6_host];
            ensure!(
                host.is_none() || names.into_iter().filter(|name| *name == host).count() == 1,
                "{flag} must be a name of its own, not also that of --api-host, --dashboard-host, --ipv4-host or \
                 --ipv6-host"
            );
        }
        Ok(())
    }

    /// The address of the port that serves the dashboard.
    pub fn dashboard_addr(&self) -> SocketAddr {
        self.dashboard_listen.unwrap_or(self.listen)
    }

    /// The scheme of the dashboard. Plain HTTP if only the API has a host name and the dashboard is for this machine,
    /// because the certificate doesn't cover `localhost`.
    pub fn dashboard_scheme(&self) -> &'static str {
        let local = self.dashboard_host.is_none() && self.dashboard_addr().ip().is_loopback();
        if self.api_host.is_some() && local { "http" } else { self.scheme() }
    }

    /// The address of the port that redirects plain HTTP.
    pub fn redirect_addr(&self) -> Option<SocketAddr> {
        self.redirect_listen.flatten()
    }

    /// The scheme of default URLs: https if there is a certificate.
    pub fn scheme(&self) -> &'static str {
        let is_https = !self.tls.tls_cert.is_empty() || self.acme.acme_email.is_some();
        if is_https { "https" } else { "http" }
    }

    /// The host names that a certificate is needed for. None without `--api-host`: something else then serves HTTPS.
    pub fn hosts(&self) -> Vec<String> {
        let Some(api_host) = &self.api_host else { return Vec::new() };
        let others = self.dashboard_host.iter().chain(self.family_hosts());
        [api_host].into_iter().chain(others).cloned().collect()
    }

    /// The API's host names with addresses of one family.
    pub fn family_hosts(&self) -> impl Iterator<Item = &String> {
        self.ipv4_host.iter().chain(&self.ipv6_host)
    }

    /// quota-svc's configuration. The data directory's store is used unless --redis-url is set.
    pub fn quota(&self) -> quota_svc::config::Config {
        quota_svc::config::Config {
            listen: self.quota_listen,
            quota_token_file: Some(data_dir::quota_token_file(&self.data_dir)),
            store: StoreArgs {
                redis_url: self.redis_url.clone(),
                store_file: self.redis_url.is_none().then(|| data_dir::store_file(&self.data_dir)),
                ..StoreArgs::default()
            },
            limits: self.limits,
            ..quota_svc::config::Config::default()
        }
    }

    /// The geo flags. Without `--geo-db`, the databases come from the data directory, if it has any.
    pub fn geo_args(&self) -> GeoArgs {
        GeoArgs { default_dir: Some(data_dir::geo_dir(&self.data_dir)), ..self.geo.clone() }
    }

    /// The edge's flags.
    pub fn edge(&self) -> EdgeArgs {
        let is_none = self.trusted_proxies == ["none"];
        let trusted_proxies = if is_none { Vec::new() } else { self.trusted_proxies.clone() };
        EdgeArgs { trusted_proxies, colo: self.colo.clone(), ..EdgeArgs::default() }
    }
}

/// `None` for the value `none`.
pub type AddrOrNone = Option<SocketAddr>;

fn addr_or_none(text: &str) -> Result<AddrOrNone, &'static str> {
    if text == "none" { Ok(None) } else { parse_listen_addr(text, None).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &str) -> Result<Config, clap::Error> {
        Config::try_parse_from(["ip-lookup"].into_iter().chain(flags.split_whitespace()))
    }

    fn addresses(flags: &str) -> [Option<String>; 3] {
        let config = parse(flags).unwrap();
        [Some(config.listen), config.dashboard_listen, config.redirect_addr()]
            .map(|addr| addr.map(|addr| addr.to_string()))
    }

    #[test]
    fn hosts_change_the_default_addresses() {
        let some = |addr: &str| Some(addr.to_owned());
        let (api, dashboard) = (some("127.0.0.1:8080"), some("127.0.0.1:8081"));
        assert_eq!(addresses(""), [api, dashboard.clone(), None]);
        let (https, http) = (some("[::]:443"), some("[::]:80"));
        assert_eq!(addresses("--api-host a.example"), [https.clone(), dashboard, http.clone()]);
        let both = "--api-host a.example --dashboard-host b.example";
        assert_eq!(addresses(both), [https.clone(), None, http.clone()]);
        let given =
            format!("{both} --listen 127.0.0.1:1 --dashboard-listen 127.0.0.1:2 --redirect-listen none");
        assert_eq!(addresses(&given), [some("127.0.0.1:1"), some("127.0.0.1:2"), None]);
        assert!(parse("--dashboard-host b.example").unwrap_err().to_string().contains("--api-host"));
    }

    #[test]
    fn mistyped_log_level_and_negative_limit_are_rejected() {
        for (flags, part) in
            [("--log-level warnn", "\"warnn\" is not a level"), ("--daily-limit -1", "-1 is not in 1..")]
        {
            let error = parse(flags).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn host_must_be_a_plain_name() {
        for (text, name) in
            [("IP.Example.org.", "ip.example.org"), ("localhost", "localhost"), ("a_b.x", "a_b.x")]
        {
            assert_eq!(parse(&format!("--api-host {text}")).unwrap().api_host.as_deref(), Some(name));
        }
        for text in
            ["https://a.example", "a.example:443", "a.example/", "a..example", ".", "[::1]", "ä.example"]
        {
            let error = parse(&format!("--api-host {text}")).unwrap_err().to_string();
            assert!(error.contains("--api-host") && error.contains("ip.example.org"), "{error}");
        }
    }

    #[test]
    fn host_without_a_certificate_and_public_quota_port_are_rejected() {
        let error = parse("--api-host a.example").unwrap().check().unwrap_err().to_string();
        assert!(error.contains("--tls-cert") && error.contains("--api-host"), "{error}");
        let tls = "--tls-cert a.crt --tls-key a.key";
        assert!(parse(&format!("--api-host a.example {tls}")).unwrap().check().is_ok());
        let error = parse("--quota-listen 0.0.0.0:8082").unwrap().check().unwrap_err().to_string();
        assert!(error.contains("--quota-listen"), "{error}");
    }

    #[test]
    fn hosts_of_one_family_are_in_the_certificate_and_have_names_of_their_own() {
        let api = "--tls-cert a.crt --tls-key a.key --api-host a.example --dashboard-host b.example";
        let config = parse(&format!("{api} --ipv4-host v4.a.example --ipv6-host v6.a.example")).unwrap();
        assert!(config.check().is_ok());
        assert_eq!(config.hosts(), ["a.example", "b.example", "v4.a.example", "v6.a.example"]);
        assert!(parse("--ipv4-host v4.a.example").unwrap().hosts().is_empty(), "a proxy has the certificate");
        for flags in
            ["--ipv4-host a.example", "--ipv6-host b.example", "--ipv4-host c.example --ipv6-host c.example"]
        {
            let error = parse(&format!("{api} {flags}")).unwrap().check().unwrap_err().to_string();
            assert!(error.contains("a name of its own"), "{flags}: {error}");
        }
    }

    #[test]
    fn write_timeout_is_shorter_than_the_deadline_of_the_dashboard() {
        let write_timeout = quota_svc::store::StoreArgs::default().write_timeout;
        assert!(write_timeout < dashboard_api::deadline::QUOTA_TIMEOUT, "{write_timeout:?}");
    }
}
