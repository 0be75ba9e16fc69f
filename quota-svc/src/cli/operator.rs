//! The way to quota-svc and back: the client, the answer's form, and errors that say what to do next.

use std::io::Write;
use std::time::Duration;

use anyhow::anyhow;
use quota_client::wire::Account;
use quota_client::{ClientError, QuotaClient};
use serde::Serialize;
use url::Url;

use super::{ClientArgs, Output};

/// Longer than every deadline of quota-svc, so that the operator sees its own answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What every command works with.
pub(super) struct Operator {
    pub client: QuotaClient,
    pub output: Output,
    url: String,
}

/// What a call was about, for its error message.
#[derive(Debug, Clone, Copy)]
pub(super) enum About<'a> {
    /// The account with this login.
    Account(&'a str),
    /// The key with this id.
    Key(&'a str),
    /// Nothing in particular.
    Everything,
}

impl Operator {
    pub fn new(args: &ClientArgs) -> anyhow::Result<Self> {
        let client = QuotaClient::new(&args.quota_url, TIMEOUT).map_err(|error| match error {
            ClientError::BaseUrl(why) => anyhow!("--quota-url: {why}, as in http://127.0.0.1:8082"),
            error => error.into(),
        })?;
        Ok(Self { client, output: args.output, url: without_password(&args.quota_url) })
    }

    /// The account with this login; that there is none is an error that names the command which creates it.
    pub async fn account(&self, login: &str) -> anyhow::Result<Account> {
        let found = self.client.find_account(login).await;
        let found = found.map_err(|error| self.explain(error, About::Account(login)))?;
        found.ok_or_else(|| no_account(login))
    }

    /// Prints `object` or, for people, what `text` makes of it.
    pub fn show(&self, object: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        print(&match self.output {
            Output::Json => serde_json::to_string(object)?,
            Output::Text => text(),
        })
    }

    /// What went wrong and what to do next.
    pub fn explain(&self, error: ClientError, about: About<'_>) -> anyhow::Error {
        let (url, cause) = (&self.url, root_cause(&error));
        match &error {
            ClientError::Refused { error, message, .. } => refused(error, message, about),
            ClientError::Unreachable(_) => anyhow!(
                "no quota-svc answers at {url} ({cause}). Start one (`quota-svc --store-file quota.redb`, or with \
                 --redis-url), or say where it runs with --quota-url URL"
            ),
            ClientError::TimedOut | ClientError::Interrupted(_) => anyhow!(
                "quota-svc at {url} gave no answer ({cause}). The command may have been carried out: look before you \
                 repeat it"
            ),
            ClientError::Protocol(_) => {
                anyhow!("what answers at {url} is no quota-svc of this version ({cause}); check --quota-url")
            }
            _ => anyhow!("the command could not be sent ({cause})"),
        }
    }
}

/// The layers between say nothing that helps an operator.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn refused(code: &str, message: &str, about: About<'_>) -> anyhow::Error {
    match (code, about) {
        ("account_not_found", About::Account(login)) => no_account(login),
        ("account_exists", About::Account(login)) => anyhow!("there is an account {} already", quoted(login)),
        ("key_limit_reached", About::Account(login)) => anyhow!(
            "{message} `quota-svc key list --account {login}` shows its keys, `quota-svc key delete ID` makes room"
        ),
        ("key_not_found", About::Key(id)) => {
            anyhow!("there is no key with the id {id}. `quota-svc key list --account LOGIN` shows the ids")
        }
        ("key_inactive", About::Key(id)) => anyhow!("{message} Do: quota-svc key reactivate {id}"),
        ("key_paused", About::Key(id)) => anyhow!("{message} Do: quota-svc key resume {id}"),
        ("not_found", _) => anyhow!(
            "this quota-svc does not know the operation. One that runs with `--serve charges`, as beside lookup-svc, \
             takes no commands: use the one beside dashboard-api, or another with --quota-url"
        ),
        _ => anyhow!("quota-svc refused: {message}"),
    }
}

fn no_account(login: &str) -> anyhow::Error {
    let login = quoted(login);
    anyhow!("there is no account {login}. Create it with: quota-svc account create {login}")
}

/// A login for an error message, unless somebody has given a key in its place.
fn quoted(login: &str) -> &str {
    if login.contains(api_key::PREFIX) { "LOGIN" } else { login }
}

/// The URL may carry a password; it goes into messages without.
fn without_password(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else { return "--quota-url".to_owned() };
    if url.set_username("").is_ok() && url.set_password(None).is_ok() {
        return url.as_str().trim_end_matches('/').to_owned();
    }
    "--quota-url".to_owned()
}

/// Writes to standard output and says so when that fails, where `println!` would panic.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_gets_into_a_message() {
        assert_eq!(without_password("http://u:hush@127.0.0.1:8082/"), "http://127.0.0.1:8082");
        assert!(!no_account("ipl_0123456789").to_string().contains("0123456789"));
        assert!(no_account("ada").to_string().ends_with("quota-svc account create ada"));
    }

    #[test]
    fn a_refusal_names_the_command_that_helps() {
        let says = |code, about| refused(code, "Why.", about).to_string();
        assert!(says("key_inactive", About::Key("ab")).contains("key reactivate ab"));
        assert!(says("key_paused", About::Key("ab")).contains("key resume ab"));
        assert!(says("key_limit_reached", About::Account("ada")).contains("key list --account ada"));
        assert!(says("not_found", About::Everything).contains("--serve charges"));
        assert_eq!(says("invalid_name", About::Key("ab")), "quota-svc refused: Why.");
    }
}
