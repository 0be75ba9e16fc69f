//! Flags and environment variables of dashboard-api.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Parser;
use edge::EdgeArgs;
use ipnet::IpNet;
use poem_openapi::Object;
use serde::Serialize;
use service_kit::command_line::{ManualCommand, OutputArgs, short_help};
use service_kit::{PublicServiceArgs, is_local_http, web_url};
use url::Url;

use crate::mail::MailArgs;
use crate::password_commands::PasswordCommand;
use crate::session::SessionKey;

/// The flags that `-h` shows: what a first setup needs.
const SHORT_HELP: &str = "\
    listen quota_url quota_token_file public_url lookup_url session_key_file insecure_cookies signup \
    trusted_proxies tls_cert tls_key log_level";

const EXAMPLES: &str = "\
Examples:
  # Serve under its own host name; a proxy in front ends TLS
  dashboard-api --quota-url http://127.0.0.1:8082 --public-url https://keys.example.org \\
    --lookup-url https://ip.example.org --session-key-file session.key";

/// Dashboard of the IP lookup API: sign up, create API keys, see their usage, resume paused keys.
///
/// Serves the dashboard page, the JSON API behind it and that API's documentation (/swagger). Stateless: quota-svc
/// stores accounts, sessions and keys. Serve it under its own host name.
///
/// Every flag can also be set by an environment variable, for example --quota-url by IP_LOOKUP_QUOTA_URL.
#[derive(Parser, Debug)]
#[command(name = "dashboard-api", version, mut_args(short_help(SHORT_HELP)), after_long_help = EXAMPLES)]
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
    /// Print the OpenAPI document
    Openapi,
    #[command(flatten)]
    Password(PasswordCommand),
    #[command(flatten)]
    Manual(ManualCommand),
}

#[derive(clap::Args, Debug, Clone)]
#[command(mut_arg("listen", |arg| arg.default_value("[::]:8081")))]
#[command(mut_arg("admin_listen", |arg| arg.default_value("[::]:9081")))]
pub struct Config {
    /// URL of quota-svc's internal API
    #[arg(long, env, value_name = "URL", default_value = "http://127.0.0.1:8082", global = true)]
    pub quota_url: String,
    /// File with the token that quota-svc requires
    #[arg(long, env, value_name = "PATH", global = true)]
    pub quota_token_file: Option<PathBuf>,
    /// Public URL of the dashboard. http:// is accepted for localhost, and elsewhere with --insecure-cookies. If the URL is
    /// set, requests for other hosts are rejected, except for loopback names, so a proxy must forward the Host header
    #[arg(long, env, value_name = "URL", value_parser = web_url)]
    pub public_url: Option<Url>,
    /// The host to accept without a `public_url`, besides loopback names. Set by a program that embeds the dashboard and
    /// knows its URL; without it, every host is accepted.
    #[arg(skip)]
    pub default_host: Option<String>,
    /// Public URL of the lookup API, for the curl command shown with a new key
    #[arg(long, env, value_name = "URL", default_value = "http://localhost:8080", value_parser = web_url)]
    pub lookup_url: Url,
    /// Documentation URL in errors and on the page [default: {lookup-url}/docs]
    #[arg(long, env, value_name = "URL", value_parser = web_url)]
    pub docs_url: Option<Url>,
    /// Link in the page's footer, for the attribution that the geo data's license requires, such as
    /// "IP Geolocation by DB-IP=https://db-ip.com"; separate several with ';'
    #[arg(long, env, value_name = "TEXT=URL", value_delimiter = ';')]
    pub attribution: Vec<Attribution>,
    #[command(flatten)]
    pub accounts: AccountArgs,
    #[command(flatten)]
    pub notices: NoticeArgs,
    #[command(flatten)]
    pub edge: EdgeArgs,
    #[command(flatten, next_help_heading = "Serving")]
    pub service: PublicServiceArgs,
}

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Accounts")]
pub struct AccountArgs {
    /// File with the key that encrypts session cookies: 32 or more random bytes, the same for all replicas
    #[arg(long, env, value_name = "PATH")]
    pub session_key_file: Option<PathBuf>,
    /// A program that embeds the dashboard sets this instead of `session_key_file`.
    #[arg(skip)]
    pub session_key: Option<SessionKey>,
    /// Send cookies without the Secure attribute, for plain HTTP. Only on your own machine or a network that you trust
    #[arg(long, env)]
    pub insecure_cookies: bool,
    /// Let visitors create accounts; if off, the operator invites their owners (invite)
    #[arg(long, env, value_enum, default_value_t = Switch::On)]
    pub signup: Switch,
    /// Maximum number of accounts; sign-up closes when it is reached
    #[arg(long, env, value_name = "N", default_value_t = 10_000)]
    pub max_accounts: u64,
    /// Directory with the files login, password and api-key of an account to create, unless an account has this login
    #[arg(long, env, value_name = "PATH")]
    pub first_account_dir: Option<PathBuf>,
}

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Notices")]
pub struct NoticeArgs {
    /// Let owners set a webhook, which gets notices about paused keys, exceeded daily limits and keys that expire
    #[arg(long, env, value_enum, default_value_t = Switch::On)]
    pub webhooks: Switch,
    /// Accept webhooks with plain http:// URLs, for closed networks
    #[arg(long, env)]
    pub webhook_allow_http: bool,
    /// Send webhooks also to addresses in this network, on any port. By default, only public addresses get them, so that no
    /// owner reaches your own network
    #[arg(long, env, value_name = "CIDR", value_delimiter = ',')]
    pub webhook_allow_network: Vec<IpNet>,
    #[command(flatten)]
    pub mail: MailArgs,
}

base::default_from_flags!(Config);

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    On,
    Off,
}

/// A link.
// In the page's footer.
#[derive(Debug, Clone, Object, Serialize)]
#[oai(rename = "Link")]
pub struct Attribution {
    /// Text of the link.
    pub text: String,
    /// Target of the link.
    pub url: String,
}

impl std::str::FromStr for Attribution {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (text, url) = line.split_once('=').ok_or("expected TEXT=URL")?;
        Ok(Self { text: text.trim().to_owned(), url: web_url(url)?.into() })
    }
}

impl Config {
    /// Where the redirect port redirects to.
    pub fn redirect_url(&self) -> anyhow::Result<Option<&str>> {
        let url = || self.public_url.as_ref().context("--redirect-listen redirects to --public-url: set it");
        self.service.redirect_listen.map(|_| Ok(url()?.as_str())).transpose()
    }

    /// Documentation URL, without a trailing slash.
    pub fn docs_url(&self) -> String {
        match &self.docs_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => format!("{}/docs", self.lookup_url.as_str().trim_end_matches('/')),
        }
    }

    /// Origin of the public URL, such as `https://keys.example`.
    pub fn public_origin(&self) -> Option<String> {
        self.public_url.as_ref().map(|url| url.origin().ascii_serialization())
    }

    /// URL of the dashboard, for links in notices. Without `--public-url`, a page on this machine.
    pub fn dashboard_url(&self) -> String {
        let local = || format!("http://localhost:{}", self.service.listen.port());
        self.public_url.as_ref().map_or_else(local, |url| url.as_str().trim_end_matches('/').to_owned())
    }

    /// Host name of the dashboard's URL, without port and brackets. `None` if every host is accepted.
    pub fn host(&self) -> Option<String> {
        let host = self.public_url.as_ref().and_then(Url::host_str).or(self.default_host.as_deref());
        host.map(|host| host.trim_matches(['[', ']']).to_owned())
    }

    /// Rejects a `--public-url` at which browsers would reject the session cookies, and mail without a public URL.
    pub fn check(&self) -> anyhow::Result<()> {
        self.notices.mail.transport()?;
        match &self.public_url {
            Some(url) => check_cookies(url, self.accounts.insecure_cookies),
            None if self.notices.mail.smtp_url.is_some() => {
                bail!("--smtp-url needs --public-url, for the links in mail")
            }
            None => Ok(()),
        }
    }

    /// Whether session cookies get the Secure attribute. Not on a `--public-url` such as `http://localhost:8081`: some
    /// browsers reject Secure cookies there, and its traffic does not leave the machine.
    pub fn secure_cookies(&self) -> bool {
        !self.accounts.insecure_cookies && !self.public_url.as_ref().is_some_and(is_local_http)
    }
}

impl AccountArgs {
    /// Returns the key that encrypts session cookies.
    pub fn session_key(&self) -> anyhow::Result<SessionKey> {
        match (&self.session_key, &self.session_key_file) {
            (Some(key), _) => Ok(key.clone()),
            (None, Some(path)) => SessionKey::load(path),
            (None, None) => bail!(
                "no session key configured: create one with `head -c 32 /dev/urandom > session.key && chmod 600 \
                 session.key` and set --session-key-file session.key"
            ),
        }
    }
}

/// Rejects a dashboard URL at which nobody could sign in: browsers reject Secure cookies over plain HTTP.
pub fn check_cookies(url: &Url, insecure_cookies: bool) -> anyhow::Result<()> {
    if url.scheme() == "https" || is_local_http(url) || insecure_cookies {
        return Ok(());
    }
    bail!(
        "nobody could sign in to the dashboard at {url}: browsers reject its cookies over plain HTTP. Serve it through a \
         proxy with TLS and set --public-url to its https:// URL, or set --insecure-cookies if you trust the network"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Config, clap::Error> {
        Ok(Cli::try_parse_from(["dashboard-api"].iter().chain(flags))?.config)
    }

    #[test]
    fn docs_url_defaults_to_docs_under_the_lookup_url() {
        assert_eq!(parse(&[]).unwrap().docs_url(), "http://localhost:8080/docs");
        assert_eq!(
            parse(&["--lookup-url", "https://a.example"]).unwrap().docs_url(),
            "https://a.example/docs"
        );
        assert_eq!(parse(&["--docs-url", "https://d.example/x/"]).unwrap().docs_url(), "https://d.example/x");
    }

    #[test]
    fn missing_session_key_error_shows_how_to_create_one() {
        let error = parse(&[]).unwrap().accounts.session_key().unwrap_err();
        assert!(error.to_string().contains("/dev/urandom"));
    }

    #[test]
    fn non_http_urls_are_rejected() {
        let config = parse(&["--attribution", "A by B=https://b.example;C=http://c.example/d=e"]).unwrap();
        assert_eq!(config.attribution[0].text, "A by B");
        assert_eq!(config.attribution[1].url.as_str(), "http://c.example/d=e");
        assert!(parse(&["--attribution", "x=javascript:alert(1)"]).is_err());
        for flags in [
            ["--public-url", "file:///etc"],
            ["--lookup-url", "data:text/html,x"],
            ["--docs-url", "javascript:alert(1)"],
        ] {
            let error = parse(&flags).unwrap_err().to_string();
            assert!(error.contains(flags[0]), "{error}");
        }
        assert!(parse(&["--docs-url", "https://docs.example/x"]).unwrap().check().is_ok());
    }

    #[test]
    fn public_url_decides_whether_cookies_are_secure() {
        for (flags, want) in [
            (&[][..], Some(true)),
            (&["--insecure-cookies"], Some(false)),
            (&["--public-url", "https://keys.example"], Some(true)),
            (&["--public-url", "https://localhost:8443"], Some(true)),
            (&["--public-url", "http://localhost:8081"], Some(false)),
            (&["--public-url", "http://dashboard.localhost"], Some(false)),
            (&["--public-url", "http://127.0.0.1:8081/"], Some(false)),
            (&["--public-url", "http://[::1]:8081"], Some(false)),
            (&["--public-url", "http://keys.example", "--insecure-cookies"], Some(false)),
            (&["--public-url", "http://keys.example"], None),
            (&["--public-url", "http://localhost.example"], None),
            (&["--public-url", "http://192.0.2.1:8081"], None),
        ] {
            let config = parse(flags).unwrap();
            assert_eq!(config.check().is_ok().then(|| config.secure_cookies()), want, "{flags:?}");
        }
        let error = parse(&["--public-url", "http://keys.example"]).unwrap().check().unwrap_err().to_string();
        assert!(error.contains("--public-url") && error.contains("--insecure-cookies"), "{error}");
    }

    #[test]
    fn every_flag_has_an_environment_variable_of_the_same_name() {
        let command = <Cli as clap::CommandFactory>::command();
        // Only commands use --output, and many scripts use OUTPUT for something else.
        let without = ["help", "version", "output"];
        for arg in command.get_arguments().filter(|arg| !without.contains(&arg.get_id().as_str())) {
            let flag = arg.get_long().unwrap().replace('-', "_").to_uppercase();
            assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(flag.as_str()));
        }
    }
}
