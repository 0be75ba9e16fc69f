//! The commands that change an account's password: `set-password` reads it, `reset-password` creates and prints it.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, bail};
use quota_client::QuotaClient;
use quota_client::wire::{Account, SetCredential};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use service_kit::command_line::{CommandError, Output};

use crate::password::{self, random_password};

/// The commands. They revoke all sessions of the account.
#[derive(clap::Subcommand, Debug)]
pub enum PasswordCommand {
    /// Set an account's password, typed at the terminal or read from standard input
    SetPassword {
        /// Login of the account
        login: String,
    },
    /// Set an account's password to a new random one and print it
    ResetPassword {
        /// Login of the account
        login: String,
    },
}

impl PasswordCommand {
    /// `program` is the program and flags with which the `account` commands in messages start, such as `quota-svc`.
    pub async fn run(&self, quota: &QuotaClient, output: Output, program: &str) -> anyhow::Result<()> {
        let (Self::SetPassword { login } | Self::ResetPassword { login }) = self;
        let Some(account) = quota.find_account(login).await? else {
            let message = format!(
                "account {login} does not exist. To create it, run: {program} account create {login}"
            );
            return Err(CommandError { code: "account_not_found".to_owned(), message }.into());
        };
        let login = &account.login;
        match self {
            Self::SetPassword { .. } => {
                let password = tokio::task::spawn_blocking(read_password).await??;
                change(quota, &account, &password).await?;
                output.show(&json!({ "account": login, "sessions_revoked": true }), || {
                    format!("Password set for {login}. All sessions of this account are revoked.")
                })
            }
            Self::ResetPassword { .. } => {
                let password = random_password()?;
                change(quota, &account, &password.clone().into()).await?;
                output.show(&json!({ "account": login, "password": password, "sessions_revoked": true }), || {
                    format!(
                        "New password of {login}, not shown again:\n\n    {password}\n\nAll sessions of this account \
                         are revoked."
                    )
                })
            }
        }
    }
}

async fn change(quota: &QuotaClient, account: &Account, password: &SecretString) -> anyhow::Result<()> {
    let credential = password::hash_new(password, &account.login)?;
    let expected_version = account.credential_version;
    let change = SetCredential { credential, expected_version, ..SetCredential::default() };
    quota.set_credential(&account.id, &change).await?;
    Ok(())
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
