//! Shared by all commands: the client for quota-svc, the output format, and error messages with the next step.

use std::path::Path;

use anyhow::Context;
use quota_api::{Account, Actor};
use quota_client::{COMMAND_TIMEOUT, ClientError, QuotaClient, QuotaToken};
use serde::Serialize;
use serde_json::json;
use service_kit::command_line::{Output, command_error};
use url::{Position, Url};

/// Accounts per call: the maximum that quota-svc returns.
const PAGE_SIZE: u32 = 500;

/// What a command needs to call quota-svc and to print the result.
pub struct CliContext {
    pub(super) client: QuotaClient,
    pub(super) output: Output,
    /// The program and flags with which the commands in messages start, such as `quota-svc`.
    pub(super) program: String,
    address: String,
}

impl CliContext {
    /// For the commands of quota-svc itself.
    pub(super) fn connect(url: &str, token_file: Option<&Path>, output: Output) -> anyhow::Result<Self> {
        let token = QuotaToken::load_flag(token_file)?;
        let client = QuotaClient::new(url, COMMAND_TIMEOUT).context("--quota-url")?.with_token(&token);
        // Without user name and password, because it is for messages.
        let address = format!("http://{}", Url::parse(url)?[Position::BeforeHost..].trim_end_matches('/'));
        Ok(Self::new(client, address, output, "quota-svc".to_owned()))
    }

    /// `address` is where quota-svc is, and `program` the program and flags with which commands start, both for messages.
    pub fn new(client: QuotaClient, address: String, output: Output, program: String) -> Self {
        Self { client: client.acting_as(Actor::Operator), output, program, address }
    }

    /// Waits for a call. Its error states the next step; `subject` is the login or the ID of the key that the call is about.
    pub(super) async fn call<T>(
        &self,
        subject: &str,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> anyhow::Result<T> {
        call.await.map_err(|error| self.explain(error, subject))
    }

    /// Like [`Self::call`], but `None` if the account or key is unreadable.
    pub(super) async fn call_readable<T>(
        &self,
        subject: &str,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> anyhow::Result<Option<T>> {
        match call.await {
            Err(error) if matches!(error.code(), Some("unreadable_account" | "unreadable_key")) => Ok(None),
            result => result.map(Some).map_err(|error| self.explain(error, subject)),
        }
    }

    /// Finds an account by its login. If there is none, the error names the command that creates it.
    pub(super) async fn account(&self, login: &str) -> anyhow::Result<Account> {
        let found = self.call(login, self.client.find_account(login)).await?;
        found.ok_or_else(|| command_error("account_not_found", self.no_account(login)))
    }

    /// Calls `each` with the readable accounts of every page, ordered by login. Returns the IDs of the unreadable ones.
    pub(super) async fn for_each_page(
        &self,
        mut each: impl AsyncFnMut(Vec<Account>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<String>> {
        let (mut unreadable, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.client.list_accounts(cursor.as_deref(), PAGE_SIZE);
            let mut page = self.call("", page).await?;
            page.accounts.sort_by(|a, b| a.login.cmp(&b.login));
            each(page.accounts).await?;
            unreadable.append(&mut page.unreadable);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(unreadable);
            }
        }
    }

    /// Prints an account or a key after a command that changes it, and whether it has changed.
    pub(super) fn show_change(
        &self,
        noun: &str,
        object: &impl Serialize,
        changed: bool,
        text: &str,
    ) -> anyhow::Result<()> {
        let mut object = json!(object);
        object["changed"] = json!(changed);
        self.output.show(&object, || match changed {
            true => text.to_owned(),
            false => format!("Nothing has changed: the {noun} was already as requested.\n\n{text}"),
        })
    }

    pub(super) fn explain(&self, error: ClientError, subject: &str) -> anyhow::Error {
        let (code, next) = match &error {
            ClientError::Api { code, message, .. } => {
                return command_error(code, self.explain_rejection(code, message, subject));
            }
            ClientError::Unreachable(_) => {
                ("unreachable", "Start it with --store-file or --redis-url, or set --quota-url")
            }
            ClientError::Protocol(_) => {
                ("invalid_response", "It may be of another version; check --quota-url")
            }
            _ => ("no_response", "The command may have taken effect: check before you repeat it"),
        };
        let error = anyhow::Error::from(error);
        // The errors between the first and the innermost one don't help an operator.
        let cause = error.chain().skip(1).last().map_or_else(String::new, |cause| format!(" ({cause})"));
        command_error(code, format!("{error} at {}{cause}. {next}", self.address))
    }

    fn explain_rejection(&self, code: &str, message: &str, subject: &str) -> String {
        let program = &self.program;
        match code {
            "account_not_found" => self.no_account(subject),
            "account_exists" => format!("account {} already exists", redacted(subject)),
            "key_limit_reached" => format!(
                "{message} To see the account's keys, run: {program} key list --account {subject}. To delete one, run: \
                 {program} key delete ID"
            ),
            "key_not_found" => format!("no key with ID {subject}. To see the IDs, run: {program} key list"),
            "key_inactive" => format!("{message} Run: {program} key reactivate {subject}"),
            "key_paused" => format!("{message} Run: {program} key resume {subject}"),
            "unauthorized" => "this quota-svc requires a token, and the one that was sent is missing or wrong. Set \
                 --quota-token-file: for ip-lookup, the file quota-token in its --data-dir"
                .to_owned(),
            "not_found" => "this quota-svc does not serve this operation. A quota-svc with `--serve charges`, like \
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

/// The login for an error message; a placeholder if it is an API key, entered by mistake.
fn redacted(login: &str) -> &str {
    if login.contains(api_key::PREFIX) { "LOGIN" } else { login }
}

#[cfg(test)]
mod tests {
    use quota_api::Rejection;

    use super::*;

    fn context(url: &str) -> CliContext {
        CliContext::connect(url, Some(testkit::process::token_file()), Output::Text).unwrap()
    }

    #[test]
    fn messages_contain_no_secrets() {
        let context = context("http://u:hush@127.0.0.1:8082/");
        assert_eq!(context.address, "http://127.0.0.1:8082");
        assert!(!context.no_account("ipl_0123456789").contains("0123456789"));
        assert!(context.no_account("ada").ends_with("quota-svc account create ada"));
    }

    #[test]
    fn rejection_names_the_next_command() {
        let context = context("http://127.0.0.1:8082");
        let message = |code, subject| context.explain_rejection(code, "Reason.", subject);
        assert!(message("key_inactive", "ab").contains("key reactivate ab"));
        assert!(message("key_paused", "ab").contains("key resume ab"));
        assert!(message("key_limit_reached", "ada").contains("key list --account ada"));
        assert!(message("unauthorized", "").contains("--quota-token-file"));
        assert!(message("not_found", "").contains("--serve charges"));
        for code in Rejection::CODES {
            let shown = message(code, "ada");
            let is_specific = ["account ada", "no key with ID ada"].iter().any(|text| shown.contains(text));
            assert!(is_specific || shown.contains("Reason."), "{code:?}: {shown}");
        }
    }
}
