//! Accounts: create, list, delete.

use quota_client::wire::{Account, NewAccount};
use serde_json::json;

use super::Output;
use super::confirm::Yes;
use super::operator::{About, Operator, print};
use super::table::{cell, counted, table, text, time};

/// The most that quota-svc gives at once.
const PAGE: u32 = 500;

/// Create, list and delete accounts.
#[derive(clap::Subcommand, Debug)]
pub enum AccountCommand {
    /// Create an account; `dashboard-api set-password LOGIN` then lets its owner sign in
    Create {
        /// What its owner signs in with, such as an e-mail address; case does not matter
        login: String,
    },
    /// List all accounts
    List,
    /// Delete an account with all its keys, for good
    Delete {
        /// The account's login
        login: String,
        /// Agreement
        #[command(flatten)]
        yes: Yes,
    },
}

pub(super) async fn run(command: AccountCommand, operator: &Operator) -> anyhow::Result<()> {
    match command {
        AccountCommand::Create { login } => create(login, operator).await,
        AccountCommand::List => list(operator).await,
        AccountCommand::Delete { login, yes } => delete(&login, yes, operator).await,
    }
}

async fn create(login: String, operator: &Operator) -> anyhow::Result<()> {
    let new = NewAccount { login, credential: None };
    let created = operator.client.create_account(&new).await;
    let account = created.map_err(|error| operator.explain(error, About::Account(&new.login)))?;
    operator.show(&account, || {
        let login = &account.login;
        format!(
            "Created the account {login}.\nA key for it: quota-svc key create --account {login} --name NAME --scope full"
        )
    })
}

/// Page by page, since there may be a million.
async fn list(operator: &Operator) -> anyhow::Result<()> {
    let (mut cursor, mut shown) = (None, 0);
    loop {
        let page = operator.client.list_accounts(cursor.as_deref(), PAGE).await;
        let mut page = page.map_err(|error| operator.explain(error, About::Everything))?;
        page.accounts.sort_by(|a, b| a.login.cmp(&b.login));
        show_page(&page.accounts, shown == 0, operator.output)?;
        shown += page.accounts.len() as u64;
        cursor = page.next;
        if cursor.is_none() {
            return print(&match operator.output {
                Output::Json if shown == 0 => "{\"accounts\":[]}".to_owned(),
                Output::Json => "]}".to_owned(),
                Output::Text => counted(shown, "account"),
            });
        }
    }
}

fn show_page(accounts: &[Account], first: bool, output: Output) -> anyhow::Result<()> {
    if accounts.is_empty() {
        return Ok(());
    }
    print(&match output {
        Output::Json => json_page(accounts, first)?,
        Output::Text => text_page(accounts, first),
    })
}

fn json_page(accounts: &[Account], first: bool) -> serde_json::Result<String> {
    let items: Vec<_> = accounts.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let start = if first { "{\"accounts\":[" } else { "," };
    Ok(format!("{start}{}", items.join(",\n")))
}

/// The columns before the login are always of one width, so the pages line up.
fn text_page(accounts: &[Account], first: bool) -> String {
    let mut rows = table(if first { &["id", "created", "sign-in", "login"] } else { &[] });
    for account in accounts {
        // As wide as the heading, which only the first page has.
        let sign_in = if account.credential_version > 0 { "yes    " } else { "no     " };
        rows.add_row([
            cell(&account.id),
            cell(time(account.created_at)),
            cell(sign_in),
            cell(&account.login),
        ]);
    }
    text(&rows)
}

async fn delete(login: &str, yes: Yes, operator: &Operator) -> anyhow::Result<()> {
    yes.check()?;
    let explain = |error| operator.explain(error, About::Account(login));
    let account = operator.account(login).await?;
    let keys = operator.client.keys(&account.id).await.map_err(explain)?.keys.len() as u64;
    let (login, count) = (&account.login, counted(keys, "key"));
    yes.ask(&format!("Delete the account {login} with {count}, for good?"))?;
    operator.client.delete_account(&account.id).await.map_err(explain)?;
    let deleted = json!({ "deleted": true, "account": login, "id": account.id, "keys": keys });
    operator.show(&deleted, || format!("Deleted the account {login} with {count}."))
}
