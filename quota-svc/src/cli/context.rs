//! Shared by all commands: the client for quota-svc, the output format, and error messages with the next step.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use quota_api::{Account, Actor};
use quota_client::{ClientError, QuotaClient, QuotaToken};
use serde::Serialize;
use url::Url;

use super::{ClientArgs, Output};

/// Longer than every timeout of quota-svc, so that its own error message arrives.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct CliContext {
    pub client: QuotaClient,
    pub output: Output,
    url: String,
}

/// The object of a call, for its error message.
#[derive(Debug, Clone, Copy)]
pub(super) enum ErrorContext<'a> {
    /// Login of the account.
    Account(&'a str),
    /// ID of the key.
    Key(&'a str),
    Other,
}

impl CliContext {
    pub fn new(args: &ClientArgs, token_file: Option<&Path>) -> anyhow::Result<Self> {
        let token = QuotaToken::load_for_command(token_file, &args.quota_url)?;
        let client = QuotaClient::new(&args.quota_url, TIMEOUT).map_err(|error| match error {
            ClientError::BaseUrl(reason) => {
                anyhow!("--quota-url: {reason}. Example: http://127.0.0.1:8082")
            }
            error => error.into(),
        })?;
        let client = client.with_token(token.as_ref()).acting_as(Actor::Operator);
        Ok(Self { client, output: args.output, url: without_password(&args.quota_url) })
    }

    /// Finds an account by its login. If there is none, the error names the command that creates it.
    pub async fn account(&self, login: &str) -> anyhow::Result<Account> {
        let found = self.client.find_account(login).await;
        found.map_err(self.explain(ErrorContext::Account(login)))?.ok_or_else(|| no_account(login))
    }

    /// Prints `object` as JSON, or `text`, depending on `--output`.
    pub fn show(&self, object: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        print(&match self.output {
            Output::Json => serde_json::to_string(object)?,
            Output::Text => text(),
        })
    }

    /// Turns errors of a call into messages that state the next step.
    pub fn explain<'a>(
        &'a self,
        context: ErrorContext<'a>,
    ) -> impl Fn(ClientError) -> anyhow::Error + Copy + 'a {
        move |error| self.message(error, context)
    }

    fn message(&self, error: ClientError, context: ErrorContext<'_>) -> anyhow::Error {
        let (url, cause) = (&self.url, root_cause(&error));
        match &error {
            ClientError::Api { code, message, .. } => api_error(code, message, context),
            ClientError::Unreachable(_) => anyhow!(
                "can't reach quota-svc at {url} ({cause}). Start it with --store-file or --redis-url, or set --quota-url"
            ),
            ClientError::TimedOut | ClientError::Interrupted(_) => anyhow!(
                "no response from quota-svc at {url} ({cause}). The command may have taken effect: check before you \
                 repeat it"
            ),
            ClientError::Protocol(_) => {
                anyhow!(
                    "the response from {url} is not from this version of quota-svc ({cause}); check --quota-url"
                )
            }
            _ => anyhow!("the command could not be sent ({cause})"),
        }
    }
}

/// The innermost error: the errors around it don't help an operator.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn api_error(code: &str, message: &str, context: ErrorContext<'_>) -> anyhow::Error {
    match (code, context) {
        ("account_not_found", ErrorContext::Account(login)) => no_account(login),
        ("account_exists", ErrorContext::Account(login)) => {
            anyhow!("account {} already exists", redacted(login))
        }
        ("key_limit_reached", ErrorContext::Account(login)) => anyhow!(
            "{message} To see the account's keys, run: quota-svc key list --account {login}. To delete one, run: \
             quota-svc key delete ID"
        ),
        ("key_not_found", ErrorContext::Key(id)) => {
            anyhow!("no key with ID {id}. To see the IDs, run: quota-svc key list --account LOGIN")
        }
        ("key_inactive", ErrorContext::Key(id)) => anyhow!("{message} Run: quota-svc key reactivate {id}"),
        ("key_paused", ErrorContext::Key(id)) => anyhow!("{message} Run: quota-svc key resume {id}"),
        ("unauthorized", _) => anyhow!(
            "this quota-svc requires a token, and the one that was sent is missing or wrong. Set --quota-token-file: for \
             ip-lookup, the file quota-token in its --data-dir"
        ),
        ("not_found", _) => anyhow!(
            "this quota-svc does not serve this operation. A quota-svc with `--serve charges`, like the one next to \
             lookup-svc, accepts no commands. Use the quota-svc of dashboard-api: run the command there, or set \
             --quota-url"
        ),
        _ => anyhow!("quota-svc returned an error: {message}"),
    }
}

fn no_account(login: &str) -> anyhow::Error {
    let login = redacted(login);
    anyhow!("account {login} does not exist. To create it, run: quota-svc account create {login}")
}

/// The login for an error message; a placeholder if it is an API key, entered by mistake.
fn redacted(login: &str) -> &str {
    if login.contains(api_key::PREFIX) { "LOGIN" } else { login }
}

/// The URL for messages, without user name and password. `--quota-url` if it can't be parsed.
fn without_password(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else { return "--quota-url".to_owned() };
    if url.set_username("").is_ok() && url.set_password(None).is_ok() {
        return url.as_str().trim_end_matches('/').to_owned();
    }
    "--quota-url".to_owned()
}

/// Like `println!`, but returns an error where that would panic.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_contain_no_secrets() {
        assert_eq!(without_password("http://u:hush@127.0.0.1:8082/"), "http://127.0.0.1:8082");
        assert!(!no_account("ipl_0123456789").to_string().contains("0123456789"));
        assert!(no_account("ada").to_string().ends_with("quota-svc account create ada"));
    }

    #[test]
    fn api_error_names_the_next_command() {
        let message = |code, context| api_error(code, "Reason.", context).to_string();
        assert!(message("key_inactive", ErrorContext::Key("ab")).contains("key reactivate ab"));
        assert!(message("key_paused", ErrorContext::Key("ab")).contains("key resume ab"));
        assert!(
            message("key_limit_reached", ErrorContext::Account("ada")).contains("key list --account ada")
        );
        assert!(message("unauthorized", ErrorContext::Other).contains("--quota-token-file"));
        assert!(message("not_found", ErrorContext::Other).contains("--serve charges"));
        assert_eq!(message("invalid_name", ErrorContext::Key("ab")), "quota-svc returned an error: Reason.");
    }
}
