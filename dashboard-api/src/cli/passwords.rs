//! The commands that change an account's password: `set-password` reads it, `reset-password` creates and prints it.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, bail};
use quota_client::wire::{Account, SetCredential};
use quota_client::{COMMAND_TIMEOUT, QuotaClient, QuotaToken};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use service_kit::command_line::{CommandError, Output};

use crate::config::Config;
use crate::password::{self, random_password};

/// What the commands need to call quota-svc and to print the result.
pub struct PasswordCommands {
    quota: QuotaClient,
    output: Output,
    /// The program and flags with which the `account` commands in messages start, such as `quota-svc`.
    program: String,
}

impl PasswordCommands {
    /// For the commands of dashboard-api itself.
    pub(super) fn connect(config: &Config, output: Output) -> anyhow::Result<Self> {
        let token = QuotaToken::load_optional(config.quota_token_file.as_deref())?;
        let quota = QuotaClient::new(&config.quota_url, COMMAND_TIMEOUT).context("--quota-url")?;
        Ok(Self::new(quota.with_token(token.as_ref()), output, "quota-svc".to_owned()))
    }

    /// `program` is the program and flags with which the `account` commands in messages start.
    pub fn new(quota: QuotaClient, output: Output, program: String) -> Self {
        Self { quota, output, program }
    }

    /// Sets the password of the account with this login, typed without echo or read from standard input, and revokes all
    /// of its sessions.
    pub async fn set(&self, login: &str) -> anyhow::Result<()> {
        let account = self.account(login).await?;
        let password = tokio::task::spawn_blocking(read_password).await??;
        self.change(&account, &password).await?;
        let login = &account.login;
        self.output.show(&json!({ "account": login, "sessions_revoked": true }), || {
            format!("Password set for {login}. All sessions of this account are revoked.")
        })
    }

    /// Gives the account with this login a random password, prints it, and revokes all of its sessions.
    pub async fn reset(&self, login: &str) -> anyhow::Result<()> {
        let account = self.account(login).await?;
        let password = random_password()?;
        self.change(&account, &password.clone().into()).await?;
        let login = &account.login;
        self.output.show(&json!({ "account": login, "password": password, "sessions_revoked": true }), || {
            format!(
                "New password of {login}, not shown again:\n\n    {password}\n\nAll sessions of this account are \
                 revoked."
            )
        })
    }

    async fn account(&self, login: &str) -> anyhow::Result<Account> {
        let found = self.quota.find_account(login).await?;
        found.ok_or_else(|| {
            let program = &self.program;
            let message = format!(
                "account {login} does not exist. To create it, run: {program} account create {login}"
            );
            CommandError { code: "account_not_found".to_owned(), message }.into()
        })
    }

    async fn change(&self, account: &Account, password: &SecretString) -> anyhow::Result<()> {
        let credential = password::hash_new(password, &account.login)?;
        let expected_version = account.credential_version;
        let change = SetCredential { credential, expected_version, ..SetCredential::default() };
        self.quota.set_credential(&account.id, &change).await?;
        Ok(())
    }
}

/// If standard input is a terminal, prompts for the password twice. If not, reads the first line.
fn read_password() -> anyhow::Result<SecretString> {
    if !io::stdin().is_terminal() {
        return read_line();
    }
    let first = prompt("New password: ")?;
    let second = prompt("Repeat password: ")?;
    if first.expose_secret() != second.expose_secret() {
        bail!("the passwords do not match; nothing was changed");
    }
    Ok(first)
}

fn prompt(text: &str) -> anyhow::Result<SecretString> {
    eprint!("{text}");
    io::stderr().flush()?;
    let _echo_off = EchoOff::new().context("can't turn off the terminal's echo")?;
    read_line()
}

fn read_line() -> anyhow::Result<SecretString> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("can't read the password")?;
    Ok(SecretString::from(line.trim_end_matches(['\r', '\n'])))
}

/// Turns off the terminal's echo until dropped.
struct EchoOff(Termios);

impl EchoOff {
    fn new() -> rustix::io::Result<Self> {
        let original = tcgetattr(io::stdin())?;
        let mut silent = original.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(original))
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        // Best effort: an error can't be returned from `drop`.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
        eprintln!();
    }
}
