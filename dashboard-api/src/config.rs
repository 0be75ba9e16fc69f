//! Flags and environment of dashboard-api.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Parser;
use edge::EdgeArgs;
use service_kit::{ServeArgs, TelemetryArgs};
use url::Url;

use crate::session::SessionKey;

/// The dashboard of the IP lookup API: sign up, create keys, see their use, resume what was paused.
///
/// Serves a JSON API, its description at /swagger and the page that uses it. Keeps nothing itself: accounts,
/// sessions and keys are quota-svc's. To be reached under a host name of its own.
///
/// Every flag can be given as an environment variable of the same name: --quota-url is QUOTA_URL.
#[derive(Parser, Debug)]
#[command(name = "dashboard-api", version)]
pub struct Cli {
    /// What to do instead of serving
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to serve
    #[command(flatten)]
    pub config: Config,
}

/// What to do instead of serving.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Print the OpenAPI document
    Openapi,
    /// Give an account its password, typed at the terminal or read from standard input
    SetPassword {
        /// The account's login
        login: String,
    },
}

/// How to serve.
#[derive(clap::Args, Debug, Clone)]
pub struct Config {
    /// Address of the dashboard
    #[arg(long, env, default_value = "0.0.0.0:8081", help_heading = "Serving")]
    pub listen: SocketAddr,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, env, default_value = "0.0.0.0:9081", help_heading = "Serving")]
    pub admin_listen: SocketAddr,
    /// Where quota-svc's internal API is
    #[arg(long, env, value_name = "URL", default_value = "http://127.0.0.1:8082", global = true)]
    pub quota_url: String,
    /// The address under which people open the dashboard, where a proxy in front changes the Host header
    #[arg(long, env, value_name = "URL")]
    pub public_url: Option<Url>,
    /// The public address of the lookup API, for the curl line that is shown with a new key
    #[arg(long, env, value_name = "URL", default_value = "http://localhost:8080")]
    pub lookup_url: Url,
    /// Documentation that errors and the page link to [default: {lookup-url}/docs]
    #[arg(long, env, value_name = "URL")]
    pub docs_url: Option<Url>,
    /// A line in the page's footer, TEXT=URL: what the geo data's licence asks for, such as
    /// "IP Geolocation by DB-IP=https://db-ip.com"; repeatable with ';' between
    #[arg(long, env, value_name = "TEXT=URL", value_delimiter = ';')]
    pub attribution: Vec<Attribution>,
    /// Who may enter and how
    #[command(flatten)]
    pub accounts: AccountArgs,
    /// Whom to believe about the client's address
    #[command(flatten)]
    pub edge: EdgeArgs,
    /// Connections and stopping
    #[command(flatten)]
    pub serving: ServeArgs,
    /// Logs
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// Accounts and sessions.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Accounts")]
pub struct AccountArgs {
    /// File with 32 or more random bytes that session cookies are encrypted with; the same for all replicas
    #[arg(long, env, value_name = "PATH")]
    pub session_key_file: Option<PathBuf>,
    /// The key itself, from a program that runs the dashboard inside itself.
    #[arg(skip)]
    pub session_key: Option<SessionKey>,
    /// Send cookies without Secure: for plain HTTP on the own machine only
    #[arg(long, env)]
    pub insecure_cookies: bool,
    /// Whether visitors may create accounts; if off, the operator does (quota-svc account create, set-password)
    #[arg(long, env, value_enum, default_value_t = Switch::On)]
    pub signup: Switch,
    /// How many accounts there may be before sign-up closes by itself
    #[arg(long, env, value_name = "N", default_value_t = 10_000)]
    pub max_accounts: u64,
}

impl Default for Config {
    fn default() -> Self {
        let url = |text: &str| Url::parse(text).expect("a literal address");
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 8081)),
            admin_listen: SocketAddr::from(([0, 0, 0, 0], 9081)),
            quota_url: "http://127.0.0.1:8082".to_owned(),
            public_url: None,
            lookup_url: url("http://localhost:8080"),
            docs_url: None,
            attribution: Vec::new(),
            accounts: AccountArgs::default(),
            edge: EdgeArgs::default(),
            serving: ServeArgs::default(),
            telemetry: TelemetryArgs::default(),
        }
    }
}

impl Default for AccountArgs {
    fn default() -> Self {
        Self {
            session_key_file: None,
            session_key: None,
            insecure_cookies: false,
            signup: Switch::On,
            max_accounts: 10_000,
        }
    }
}

/// On or off.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// A text in the footer and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribution {
    /// What is shown.
    pub text: String,
    /// Where it leads.
    pub url: Url,
}

impl std::str::FromStr for Attribution {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (text, url) = line.split_once('=').ok_or("write TEXT=URL")?;
        let url = web_url(url)?;
        Ok(Self { text: text.trim().to_owned(), url })
    }
}

impl Config {
    /// Where the documentation is.
    pub fn docs_url(&self) -> String {
        match &self.docs_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => format!("{}/docs", self.lookup_url.as_str().trim_end_matches('/')),
        }
    }

    /// Refuses what can't work.
    pub fn check(&self) -> anyhow::Result<()> {
        for (flag, url) in
            [("--public-url", self.public_url.as_ref()), ("--lookup-url", Some(&self.lookup_url))]
        {
            if let Some(url) = url {
                web_url(url.as_str()).map_err(anyhow::Error::msg).with_context(|| flag.to_owned())?;
            }
        }
        Ok(())
    }
}

impl AccountArgs {
    /// The key of the session cookies.
    pub fn session_key(&self) -> anyhow::Result<SessionKey> {
        match (&self.session_key, &self.session_key_file) {
            (Some(key), _) => Ok(key.clone()),
            (None, Some(path)) => SessionKey::load(path),
            (None, None) => bail!(
                "no key for the session cookies: make one with `head -c 32 /dev/urandom > session.key && chmod 600 \
                 session.key` and give --session-key-file session.key"
            ),
        }
    }
}

/// The page makes links of it: nothing but http and https may pass.
fn web_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err(format!("{url} is not an http or https address")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Config, clap::Error> {
        Ok(Cli::try_parse_from(["dashboard-api"].iter().chain(flags))?.config)
    }

    #[test]
    fn the_documentation_is_the_lookup_services_unless_told() {
        assert_eq!(parse(&[]).unwrap().docs_url(), "http://localhost:8080/docs");
        assert_eq!(
            parse(&["--lookup-url", "https://a.example"]).unwrap().docs_url(),
            "https://a.example/docs"
        );
        assert_eq!(parse(&["--docs-url", "https://d.example/x/"]).unwrap().docs_url(), "https://d.example/x");
    }

    #[test]
    fn the_flags_defaults_are_the_codes_defaults() {
        assert_eq!(format!("{:?}", parse(&[]).unwrap()), format!("{:?}", Config::default()));
    }

    #[test]
    fn without_a_key_it_says_how_to_make_one() {
        let error = parse(&[]).unwrap().accounts.session_key().unwrap_err();
        assert!(error.to_string().contains("/dev/urandom"));
    }

    #[test]
    fn only_web_addresses_become_links() {
        let config = parse(&["--attribution", "A by B=https://b.example;C=http://c.example/d=e"]).unwrap();
        assert_eq!(config.attribution[0].text, "A by B");
        assert_eq!(config.attribution[1].url.as_str(), "http://c.example/d=e");
        assert!(parse(&["--attribution", "x=javascript:alert(1)"]).is_err());
        assert!(parse(&["--public-url", "file:///etc"]).unwrap().check().is_err());
    }

    #[test]
    fn every_flag_has_the_environment_variable_of_its_name() {
        let command = <Cli as clap::CommandFactory>::command();
        for arg in command.get_arguments().filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
        {
            let flag = arg.get_long().unwrap().replace('-', "_").to_uppercase();
            assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(flag.as_str()));
        }
    }
}
