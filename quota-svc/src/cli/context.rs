//! Shared by all commands: the client for quota-svc, the output format, and error messages with the next step.

use std::path::Path;

use anyhow::anyhow;
use quota_api::{Account, Actor};
use quota_client::{COMMAND_TIMEOUT, ClientError, QuotaClient, QuotaToken};
use serde::Serialize;
use service_kit::command_line::{CommandError, Output};
use url::Url;

/// What a command needs to call quota-svc and to print the result.
pub struct CliContext {
    pub(super) client: QuotaClient,
    pub(super) output: Output,
    /// The program and flags with which the commands in messages start, such as `quota-svc`.
    pub(super) program: String,
    address: String,
}

/// The object of a call, for its error message.
#[derive(Debug, Clone, Copy)]
pub(super) enum ErrorContext<'a> {
    Account(&'a str),
    Key(&'a str),
    Other,
}

impl CliContext {
    /// For the commands of quota-svc itself.
    pub(super) fn connect(url: &str, token_file: Option<&Path>, output: Output) -> anyhow::Result<Self> {
        let token = QuotaToken::load_flag(token_file)?;
        let client = QuotaClient::new(url, COMMAND_TIMEOUT).map_err(|error| match error {
            ClientError::BaseUrl(reason) => {
                anyhow!("--quota-url: {reason}. Example: http://127.0.0.1:8082")
            }
            error => error.into(),
        })?;
        let client = client.with_token(&token);
        Ok(Self::new(client, without_password(url), output, "quota-svc".to_owned()))
    }

    /// `address` is where quota-svc is, and `program` the program and flags with which commands start, both for messages.
    pub fn new(client: QuotaClient, address: String, output: Output, program: String) -> Self {
        Self { client: client.acting_as(Actor::Operator), output, program, address }
    }

    /// Finds an account by its login. If there is none, the error names the command that creates it.
    pub(super) async fn account(&self, login: &str) -> anyhow::Result<Account> {
        let found = self.client.find_account(login).await;
        let found = found.map_err(self.explain(ErrorContext::Account(login)))?;
        found.ok_or_else(|| self.account_not_found(login))
    }

    pub(super) fn account_not_found(&self, login: &str) -> anyhow::Error {
        command_error("account_not_found", self.no_account(login))
    }

    /// Fetches page after page and passes each to `each`. `fetch` gets a cursor and returns the next one with its page.
    pub(super) async fn for_each_page<P>(
        &self,
        fetch: impl AsyncFn(Option<&str>) -> Result<(Option<String>, P), ClientError>,
        mut each: impl AsyncFnMut(P) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut cursor = None;
        loop {
            let (next, page) = fetch(cursor.as_deref()).await.map_err(self.explain(ErrorContext::Other))?;
            each(page).await?;
            if next.is_none() {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Prints `object` as JSON, or `text`, depending on `--output`.
    pub(super) fn show(&self, object: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        self.output.show(object, text)
    }

    /// Turns errors of a call into messages that state the next step.
    pub(super) fn explain<'a>(
        &'a self,
        context: ErrorContext<'a>,
    ) -> impl Fn(ClientError) -> anyhow::Error + Copy + 'a {
        move |error| self.message(error, context)
    }

    fn message(&self, error: ClientError, context: ErrorContext<'_>) -> anyhow::Error {
        let (url, cause) = (&self.address, root_cause(&error));
        let (code, message) = match &error {
            ClientError::Api { code, message, .. } => (code.as_str(), self.api_error(code, message, context)),
            ClientError::Unreachable(_) => (
                "unreachable",
                format!(
                    "can't reach quota-svc at {url} ({cause}). Start it with --store-file or --redis-url, or set \
                     --quota-url"
                ),
            ),
            ClientError::TimedOut | ClientError::Interrupted(_) => (
                "no_response",
                format!(
                    "no response from quota-svc at {url} ({cause}). The command may have taken effect: check before you \
                     repeat it"
                ),
            ),
            ClientError::Protocol(_) => (
                "invalid_response",
                format!(
                    "the response from {url} is not from this version of quota-svc ({cause}); check --quota-url"
                ),
            ),
            _ => ("failed", format!("the command could not be sent ({cause})")),
        };
        command_error(code, message)
    }

    fn api_error(&self, code: &str, message: &str, context: ErrorContext<'_>) -> String {
        let program = &self.program;
        match (code, context) {
            ("account_not_found", ErrorContext::Account(login)) => self.no_account(login),
            ("account_exists", ErrorContext::Account(login)) => {
                format!("account {} already exists", redacted(login))
            }
            ("key_limit_reached", ErrorContext::Account(login)) => format!(
                "{message} To see the account's keys, run: {program} key list --account {login}. To delete one, run: \
                 {program} key delete ID"
            ),
            ("key_not_found", ErrorContext::Key(id)) => {
                format!("no key with ID {id}. To see the IDs, run: {program} key list")
            }
            ("key_inactive", ErrorContext::Key(id)) => format!("{message} Run: {program} key reactivate {id}"),
            ("key_paused", ErrorContext::Key(id)) => format!("{message} Run: {program} key resume {id}"),
            ("unauthorized", _) => "this quota-svc requires a token, and the one that was sent is missing or wrong. Set \
                 --quota-token-file: for ip-lookup, the file quota-token in its --data-dir"
                .to_owned(),
            ("not_found", _) => "this quota-svc does not serve this operation. A quota-svc with `--serve charges`, like \
                 the one next to lookup-svc, accepts no commands. Use the quota-svc of dashboard-api: run the command \
                 there, or set --quota-url"
                .to_owned(),
            _ => message.to_owned(),
        }
    }

    fn no_account(&self, login: &str) -> String {
        let (login, program) = (redacted(login), &self.program);
        format!("account {login} does not exist. To create it, run: {program} account create {login}")
    }
}

pub(super) fn command_error(code: &str, message: String) -> anyhow::Error {
    CommandError { code: code.to_owned(), message }.into()
}

/// The innermost error: the errors around it don't help an operator.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
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

#[cfg(test)]
mod tests {
    use quota_api::RejectionCode;

    use super::*;

    fn context() -> CliContext {
        CliContext::connect("http://127.0.0.1:8082", Some(testkit::process::token_file()), Output::Text)
            .unwrap()
    }

    #[test]
    fn messages_contain_no_secrets() {
        assert_eq!(without_password("http://u:hush@127.0.0.1:8082/"), "http://127.0.0.1:8082");
        let no_account = |login: &str| context().no_account(login);
        assert!(!no_account("ipl_0123456789").contains("0123456789"));
        assert!(no_account("ada").ends_with("quota-svc account create ada"));
    }

    #[test]
    fn api_error_names_the_next_command() {
        let message = |code, error_context| context().api_error(code, "Reason.", error_context);
        assert!(message("key_inactive", ErrorContext::Key("ab")).contains("key reactivate ab"));
        assert!(message("key_paused", ErrorContext::Key("ab")).contains("key resume ab"));
        assert!(
            message("key_limit_reached", ErrorContext::Account("ada")).contains("key list --account ada")
        );
        assert!(message("unauthorized", ErrorContext::Other).contains("--quota-token-file"));
        assert!(message("not_found", ErrorContext::Other).contains("--serve charges"));
        let contexts = [ErrorContext::Key("ab"), ErrorContext::Account("ada"), ErrorContext::Other];
        for (code, error_context) in
            RejectionCode::ALL.iter().flat_map(|code| contexts.map(|each| (code, each)))
        {
            let shown = message(code.as_str(), error_context);
            let is_specific = ["account ada", "no key with ID ab"].iter().any(|text| shown.contains(text));
            assert!(is_specific || shown.contains("Reason."), "{code:?}: {shown}");
        }
    }
}
