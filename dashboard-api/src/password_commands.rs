//! The commands for passwords: `set-password` reads one, `reset-password` creates and prints one, `invite` prints a link with
//! which the owner sets one.

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::{Context, ensure};
use console::Term;
use quota_client::QuotaClient;
use quota_client::wire::{Account, AccountAction, AccountChange, NewAccount, SessionKind, SetCredential};
use secrecy::SecretString;
use serde_json::json;
use service_kit::command_line::{Output, command_error};
use service_kit::{base_url, is_local_http};

use crate::password::{self, random_password};
use crate::password_link::{INVITATION_TTL, LinkToken, RESET_TTL};

/// The commands. A new password revokes all sessions and password links of the account.
#[derive(clap::Subcommand, Debug)]
pub enum PasswordCommand {
    /// Set an account's password, typed at the terminal or read from standard input
    SetPassword {
        /// Login of the account
        login: String,
    },
    /// Set an account's password to a new random one and print it
    #[command(mut_arg("public_url", |arg| arg.requires("link")))]
    ResetPassword {
        /// Login of the account
        login: String,
        /// Instead, print a link with which the owner sets a password, once and within 30 minutes; until then, the old one
        /// is valid
        #[arg(long)]
        link: bool,
        #[command(flatten)]
        url: LinkArgs,
    },
    /// Create an account, unless it exists, and print a link with which its owner sets a password, once and within 7 days
    Invite {
        /// Login of the account
        login: String,
        #[command(flatten)]
        url: LinkArgs,
    },
}

#[derive(clap::Args, Debug)]
pub struct LinkArgs {
    /// Public URL of the dashboard, for the link [default: that of the service]
    #[arg(long, value_name = "URL", value_parser = base_url)]
    public_url: Option<String>,
}

impl PasswordCommand {
    /// `program` is the program and flags with which the `account` commands in messages start, such as `quota-svc`.
    /// `public_url` is that of the dashboard, without a trailing slash.
    pub async fn run(
        self,
        quota: &QuotaClient,
        output: Output,
        program: &str,
        public_url: Option<String>,
    ) -> anyhow::Result<()> {
        let link_url = |url: LinkArgs| {
            url.public_url.or(public_url).context(
                "a link needs the URL of the dashboard: set --public-url, such as https://keys.example.org",
            )
        };
        match self {
            Self::SetPassword { login } => {
                let account = find(quota, &login, program).await?;
                let password = tokio::task::spawn_blocking(read_password).await??;
                change(quota, &account, &password).await?;
                let login = &account.login;
                output.show(&json!({ "account": login, "sessions_revoked": true }), || {
                    format!("Password set for {login}. All sessions of this account are revoked.")
                })
            }
            Self::ResetPassword { login, link: false, .. } => {
                let account = find(quota, &login, program).await?;
                let password = random_password()?;
                change(quota, &account, &password.clone().into()).await?;
                let login = &account.login;
                output.show(&json!({ "account": login, "password": password, "sessions_revoked": true }), || {
                    format!(
                        "New password of {login}, not shown again:\n\n    {password}\n\nAll sessions of this account \
                         are revoked."
                    )
                })
            }
            Self::ResetPassword { login, link: true, url } => {
                let url = link_url(url)?;
                let account = find(quota, &login, program).await?;
                show_link(quota, &account, (RESET_TTL, "30 minutes"), &url, output).await
            }
            Self::Invite { login, url } => {
                let url = link_url(url)?;
                let account = invited(quota, &login).await?;
                show_link(quota, &account, (INVITATION_TTL, "7 days"), &url, output).await
            }
        }
    }
}

async fn find(quota: &QuotaClient, login: &str, program: &str) -> anyhow::Result<Account> {
    quota.find_account(login).await?.ok_or_else(|| {
        let message =
            format!("account {login} does not exist. To create it, run: {program} account create {login}");
        command_error("account_not_found", message)
    })
}

/// Finds or creates an account without a password.
async fn invited(quota: &QuotaClient, login: &str) -> anyhow::Result<Account> {
    let Some(account) = quota.find_account(login).await? else {
        let account = NewAccount { login: login.to_owned(), credential: None };
        return Ok(quota.create_account(&account).await?);
    };
    if quota.credential(&account.id).await?.credential.is_some() {
        let message = format!(
            "account {login} already has a password. For a link to set a new one: reset-password {login} --link"
        );
        return Err(command_error("account_exists", message));
    }
    Ok(account)
}

/// Creates a password link and prints it. `ttl` is its lifetime, also in words.
async fn show_link(
    quota: &QuotaClient,
    account: &Account,
    (ttl, lifetime): (Duration, &str),
    public_url: &str,
    output: Output,
) -> anyhow::Result<()> {
    let login = &account.login;
    let token = LinkToken::generate(&account.id)?;
    token.store(quota, SessionKind::Link, ttl).await?;
    let link = token.link(public_url);
    quota.change_account(&account.id, &AccountChange::new(AccountAction::PasswordLink)).await?;
    output.show(&json!({ "account": login, "link": link, "expires_in_seconds": ttl.as_secs() }), || {
        let is_local = public_url.parse().is_ok_and(|url| is_local_http(&url));
        let hint = if is_local { " It opens on this machine only; for others, set --public-url." } else { "" };
        format!(
            "With this link, {login} can set a password, once and within {lifetime}. Anyone who has it can do so: send it to \
             its owner only.{hint}\n\n    {link}"
        )
    })
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
        let mut line = String::new();
        io::stdin().read_line(&mut line).context("can't read the password")?;
        return Ok(line.trim_end_matches(['\r', '\n']).into());
    }
    let prompt = |text| {
        eprint!("{text}");
        Term::stderr().read_secure_line().context("can't read the password without echo")
    };
    let password = prompt("New password: ")?;
    ensure!(password == prompt("Repeat password: ")?, "the passwords do not match; nothing was changed");
    Ok(password.into())
}
