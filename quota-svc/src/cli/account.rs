//! The `account` commands.

use quota_api::{Account, AccountAction, AccountChange, NewAccount, Role};
use serde_json::json;

use super::context::CliContext;
use super::key::keys_of;
use super::key_view::event_table;
use super::output::{ConfirmArgs, PagedList, attributes, counted, time};
use crate::domain::account::Login;
use crate::domain::id::AccountId;

#[derive(clap::Subcommand, Debug)]
pub enum AccountCommand {
    /// Create an account; its owner can sign in once `set-password` has set a password
    Create(LoginArg),
    /// List all accounts
    List,
    /// Show an account and its keys
    Show(LoginArg),
    /// Let an account manage all accounts in the dashboard, or only its own keys
    SetRole {
        #[command(flatten)]
        account: LoginArg,
        /// The role
        #[arg(value_enum)]
        role: Role,
    },
    /// Suspend an account: its keys get 403, and its owner can sign in but change nothing
    Suspend {
        #[command(flatten)]
        account: LoginArg,
        /// Reason, which the owner sees
        #[arg(long)]
        reason: String,
    },
    /// End the suspension of an account: each key returns to its previous state
    Restore(LoginArg),
    /// Sign an account's owner out everywhere, and revoke links to set the password
    EndSessions(LoginArg),
    /// Show what admins and the operator did with an account
    Events(LoginArg),
    /// Delete an account and all its keys permanently
    #[command(mut_arg("login", |arg| arg.help("Login of the account, or its ID")))]
    Delete {
        #[command(flatten)]
        account: LoginArg,
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
}

#[derive(clap::Args, Debug)]
pub struct LoginArg {
    /// Login of the account, for example an email address; not case-sensitive
    login: String,
}

impl AccountCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<()> {
        match self {
            Self::Create(account) => create(account.login, context).await,
            Self::List => list(context).await,
            Self::Show(account) => show(&account.login, context).await,
            Self::SetRole { account, role } => {
                let action = match role {
                    Role::Admin => AccountAction::MakeAdmin,
                    Role::Owner => AccountAction::MakeOwner,
                };
                change(&account.login, action, None, context).await
            }
            Self::Suspend { account, reason } => {
                change(&account.login, AccountAction::Suspend, Some(reason), context).await
            }
            Self::Restore(account) => change(&account.login, AccountAction::Restore, None, context).await,
            Self::EndSessions(account) => {
                change(&account.login, AccountAction::EndSessions, None, context).await
            }
            Self::Events(LoginArg { login }) => {
                let account = context.account(&login).await?;
                let events = context.call(&login, context.client.account_events(&account.id)).await?;
                context.output.show(&events, || event_table(&events.events))
            }
            Self::Delete { account, confirm } => delete(&account.login, confirm, context).await,
        }
    }
}

/// Changes an account. Prints it, and whether it has changed.
async fn change(
    login: &str,
    action: AccountAction,
    reason: Option<String>,
    context: &CliContext,
) -> anyhow::Result<()> {
    let before = context.account(login).await?;
    let change = AccountChange { action, reason };
    let account = context.call(login, context.client.change_account(&before.id, &change)).await?;
    let changed = account != before || action == AccountAction::EndSessions;
    context.show_change("account", &account, changed, &details(&account))
}

async fn create(login: String, context: &CliContext) -> anyhow::Result<()> {
    let new = NewAccount { login, credential: None };
    let account = context.call(&new.login, context.client.create_account(&new)).await?;
    context.output.show(&account, || {
        let (login, program) = (&account.login, &context.program);
        format!(
            "Created account {login}.\nTo create a key: {program} key create --account {login} --name NAME --scope full"
        )
    })
}

async fn list(context: &CliContext) -> anyhow::Result<()> {
    let headings = &["id", "created", "sign-in", "role", "login"];
    let mut list = PagedList { noun: "account", headings, output: context.output, printed: 0 };
    let page = async |accounts: Vec<Account>| list.print_page(&accounts, row);
    let unreadable = context.for_each_page(page).await?;
    list.print_end(&unreadable, || {
        let (program, ids) = (&context.program, unreadable.join("\n"));
        format!(
            "These accounts can't be read. To delete one with its keys: {program} account delete ID\n\n{ids}"
        )
    })
}

/// All columns before the login have a fixed width, so that pages align.
fn row(account: &Account) -> [String; 5] {
    let sign_in = if account.credential_version > 0 { "yes" } else { "no" };
    let role = if account.suspension.is_some() { "suspended" } else { account.role.as_str() };
    let (sign_in, role) = (format!("{sign_in:7}"), format!("{role:9}"));
    [account.id.clone(), time(account.created_at), sign_in, role, account.login.clone()]
}

async fn show(login: &str, context: &CliContext) -> anyhow::Result<()> {
    let account = context.account(login).await?;
    let list = keys_of(std::slice::from_ref(&account), None, context).await?;
    let mut object = json!(account);
    object["keys"] = list.keys.iter().map(|view| json!(view.key)).collect();
    if !list.unreadable.is_empty() {
        object["unreadable"] = json!(list.unreadable);
    }
    context.output.show(&object, || format!("{}\n\n{}", details(&account), list.text(&context.program)))
}

fn details(account: &Account) -> String {
    let sign_in = if account.credential_version > 0 { "yes" } else { "no: the account has no password" };
    let mut rows = vec![
        ("id", account.id.clone()),
        ("login", account.login.clone()),
        ("created", time(account.created_at)),
        ("sign-in", sign_in.to_owned()),
        ("role", account.role.as_str().to_owned()),
    ];
    if let Some(suspension) = &account.suspension {
        rows.push(("suspended", format!("since {}: {}", time(suspension.at), suspension.reason)));
    }
    attributes(rows)
}

/// Deletes the account with this login or, if there is none, with this ID.
async fn delete(login: &str, confirm: ConfirmArgs, context: &CliContext) -> anyhow::Result<()> {
    let client = &context.client;
    let is_id = AccountId::from_hex(login).is_ok() && matches!(client.find_account(login).await, Ok(None));
    // quota-svc derives the ID from the login in the same way. Finding the account by its login would fail if it is unreadable.
    let id = if is_id { login.to_owned() } else { Login::parse(login)?.account_id().to_string() };
    let mut deleted = json!({ "deleted": true, "id": id });
    let what = match context.call_readable(login, client.account(&id)).await? {
        None => format!("{login} (unreadable) with all its keys"),
        Some(account) => {
            let listed = context.call(login, client.keys(&id)).await?;
            let keys = (listed.keys.len() + listed.unreadable.len()) as u64;
            (deleted["account"], deleted["keys"]) = (json!(account.login), json!(keys));
            format!("{} with {}", account.login, counted(keys, "key"))
        }
    };
    confirm.ask(&format!("Delete account {what} permanently?"))?;
    context.call(login, client.delete_account(&id, None)).await?;
    context.output.show(&deleted, || format!("Deleted account {what}."))
}
