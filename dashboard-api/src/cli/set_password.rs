//! `dashboard-api set-password`: sets an account's password, typed without echo or read from standard input.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, bail};
use quota_client::wire::SetCredential;
use quota_client::{QuotaClient, QuotaToken};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::{ExposeSecret, SecretString};

use crate::app::QUOTA_TIMEOUT;
use crate::config::Config;
use crate::password::Passwords;

/// Sets the password of the account with this login and revokes all of its sessions.
pub(super) async fn run(config: &Config, login: &str) -> anyhow::Result<()> {
    let token = QuotaToken::load_for_command(config.quota_token_file.as_deref(), &config.quota_url)?;
    let quota = QuotaClient::new(&config.quota_url, QUOTA_TIMEOUT)?.with_token(token.as_ref());
    let Some(account) = quota.find_account(login).await? else {
        bail!("account {login} does not exist. To create it, run: quota-svc account create {login}");
    };
    let password = tokio::task::spawn_blocking(read_password).await??;
    let credential = Passwords::new()?.hash_new(&password, &account.login).await?;
    let expected_version = account.credential_version;
    let change = SetCredential { credential, expected_version, ..SetCredential::default() };
    quota.set_credential(&account.id, &change).await?;
    println!("Password set for {}. All sessions of this account are revoked.", account.login);
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
