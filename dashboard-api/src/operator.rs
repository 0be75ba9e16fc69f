//! The operator's command: give an account its password, without it being seen or kept.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use quota_client::QuotaClient;
use quota_client::wire::SetCredential;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::{ExposeSecret, SecretString};

use crate::password::Passwords;

/// Longer than quota-svc takes to confirm a write.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sets the password of the account with this login; all of its sessions end.
pub async fn set_password(quota_url: &str, login: &str) -> anyhow::Result<()> {
    let quota = QuotaClient::new(quota_url, TIMEOUT)?;
    let Some(account) = quota.find_account(login).await? else {
        bail!("there is no account {login}: `quota-svc account create {login}` makes it");
    };
    let password = tokio::task::spawn_blocking(read_password).await??;
    let credential = Passwords::new()?.hash(&password).await?;
    let expected_version = account.credential_version;
    let change = SetCredential { credential, expected_version, keep_session: None };
    quota.set_credential(&account.id, &change).await?;
    println!("{} can sign in with the new password; all earlier sessions have ended", account.login);
    Ok(())
}

/// Asks twice at a terminal; otherwise takes the first line of standard input.
fn read_password() -> anyhow::Result<SecretString> {
    if !io::stdin().is_terminal() {
        return read_line();
    }
    let first = ask("New password: ")?;
    let second = ask("Once more: ")?;
    if first.expose_secret() != second.expose_secret() {
        bail!("these are two different passwords; nothing was changed");
    }
    Ok(first)
}

fn ask(question: &str) -> anyhow::Result<SecretString> {
    eprint!("{question}");
    io::stderr().flush()?;
    let _silent = Silence::begin().context("the terminal can't be silenced")?;
    read_line()
}

fn read_line() -> anyhow::Result<SecretString> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("no password could be read")?;
    Ok(SecretString::from(line.trim_end_matches(['\r', '\n'])))
}

/// While it lives the terminal does not show what is typed.
struct Silence(Termios);

impl Silence {
    fn begin() -> rustix::io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // There is nobody left to tell if even this fails.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
        eprintln!();
    }
}
