//! The `account` commands: create, list, show, change, delete, events.

use quota_api::{Account, AccountAction, AccountChange, NewAccount, Role};
use serde_json::json;

use super::confirm::ConfirmArgs;
use super::context::{CliContext, ErrorContext};
use super::table::counted;
use super::{key_view, listing};
use crate::domain::account::Login;
use crate::domain::id::AccountId;

#[derive(clap::Subcommand, Debug)]
pub enum AccountCommand {
    /// Create an account; its owner can sign in once `set-password` has set a password
    Create {
        /// Login of the account, for example an email address; not case-sensitive
        login: String,
    },
    /// List all accounts
    List,
    /// Show an account and its keys
    Show {
        /// Login of the account
        login: String,
    },
    /// Let an account manage all accounts in the dashboard, or only its own keys
    SetRole {
        /// Login of the account
        login: String,
        /// The role
        #[arg(value_enum)]
        role: Role,
    },
    /// Suspend an account: its keys get 403, and its owner can sign in but change nothing
    Suspend {
        /// Login of the account
        login: String,
        /// Reason, which the owner sees
        #[arg(long)]
        reason: String,
    },
    /// End the suspension of an account: each key returns to its previous state
    Restore {
        /// Login of the account
        login: String,
    },
    /// Sign an account's owner out everywhere, and revoke links to set the password
    EndSessions {
        /// Login of the account
        login: String,
    },
    /// Show what admins and the operator did with an account
    Events {
        /// Login of the account
        login: String,
    },
    /// Delete an account and all its keys permanently
    Delete {
        /// Login of the account, or its ID
        login: String,
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
}

pub(super) async fn run(command: AccountCommand, context: &CliContext) -> anyhow::Result<()> {
    match command {
        AccountCommand::Create { login } => create(login, context).await,
        AccountCommand::List => listing::accounts(context).await,
        AccountCommand::Show { login } => show(&login, context).await,
        AccountCommand::SetRole { login, role } => {
            let action = match role {
                Role::Admin => AccountAction::MakeAdmin,
                Role::Owner => AccountAction::MakeOwner,
            };
            change(&login, AccountChange::new(action), context).await
        }
        AccountCommand::Suspend { login, reason } => {
            let change_to = AccountChange { action: AccountAction::Suspend, reason: Some(reason) };
            change(&login, change_to, context).await
        }
        AccountCommand::Restore { login } => {
            change(&login, AccountChange::new(AccountAction::Restore), context).await
        }
        AccountCommand::EndSessions { login } => {
            change(&login, AccountChange::new(AccountAction::EndSessions), context).await
        }
        AccountCommand::Events { login } => {
            let account = context.account(&login).await?;
            let events = context.client.account_events(&account.id).await;
            let events = events.map_err(context.explain(ErrorContext::Account(&login)))?;
            context.show(&events, || key_view::events(&events.events))
        }
        AccountCommand::Delete { login, confirm } => delete(&login, confirm, context).await,
    }
}

/// Changes an account. Prints it, and whether it has changed.
async fn change(login: &str, change: AccountChange, context: &CliContext) -> anyhow::Result<()> {
    let before = context.account(login).await?;
    let changed = context.client.change_account(&before.id, &change).await;
    let account = changed.map_err(context.explain(ErrorContext::Account(login)))?;
    let changed = account != before || change.action == AccountAction::EndSessions;
    let mut object = json!(account);
    object["changed"] = json!(changed);
    context.show(&object, || {
        let note =
            if changed { "" } else { "Nothing has changed: the account was already as requested.\n\n" };
        format!("{note}{}", key_view::account_details(&account))
    })
}

async fn create(login: String, context: &CliContext) -> anyhow::Result<()> {
    let new = NewAccount { login, credential: None };
    let created = context.client.create_account(&new).await;
    let account = created.map_err(context.explain(ErrorContext::Account(&new.login)))?;
    context.show(&account, || {
        let (login, program) = (&account.login, &context.program);
        format!(
            "Created account {login}.\nTo create a key: {program} key create --account {login} --name NAME --scope full"
        )
    })
}

async fn show(login: &str, context: &CliContext) -> anyhow::Result<()> {
    let account = context.account(login).await?;
    let keys = context.client.keys(&account.id).await;
    let keys = keys.map_err(context.explain(ErrorContext::Account(login)))?;
    let mut object = json!(account);
    object["keys"] = json!(keys.keys);
    if !keys.unreadable.is_empty() {
        object["unreadable"] = json!(keys.unreadable);
    }
    context.show(&object, || key_view::account(&account, &keys, &context.program))
}

async fn delete(login: &str, confirm: ConfirmArgs, context: &CliContext) -> anyhow::Result<()> {
    confirm.check_possible()?;
    let explain = context.explain(ErrorContext::Account(login));
    let (id, account) = find(login, context).await?;
    let Some(account) = account else {
        confirm.prompt(&format!(
            "Delete account {login}, which can't be read, with all its keys permanently?"
        ))?;
        context.client.delete_account(&id, None).await.map_err(explain)?;
        let deleted = json!({ "deleted": true, "id": id });
        return context.show(&deleted, || format!("Deleted account {login} with all its keys."));
    };
    let listed = context.client.keys(&id).await.map_err(explain)?;
    let keys = (listed.keys.len() + listed.unreadable.len()) as u64;
    let (login, count) = (&account.login, counted(keys, "key"));
    confirm.prompt(&format!("Delete account {login} with {count} permanently?"))?;
    context.client.delete_account(&id, None).await.map_err(explain)?;
    let deleted = json!({ "deleted": true, "account": login, "id": id, "keys": keys });
    context.show(&deleted, || format!("Deleted account {login} with {count}."))
}

/// Finds an account by its login, or by its ID if no account has this login. Returns its ID and, if its stored data can
/// be read, the account.
async fn find(login: &str, context: &CliContext) -> anyhow::Result<(String, Option<Account>)> {
    let (id, found) = match context.client.find_account(login).await {
        Ok(None) if AccountId::from_hex(login).is_ok() => {
            (login.to_owned(), context.client.account(login).await)
        }
        Ok(None) => return Err(context.account_not_found(login)),
        // The server derives the ID from the login in the same way.
        Err(error) if error.code() == Some("unreadable_account") => {
            (Login::parse(login)?.account_id().to_string(), Err(error))
        }
        Err(error) => (login.to_owned(), Err(error)),
        Ok(Some(account)) => (account.id.clone(), Ok(account)),
    };
    match found {
        Ok(account) => Ok((id, Some(account))),
        Err(error) if error.code() == Some("unreadable_account") => Ok((id, None)),
        Err(error) => Err(context.explain(ErrorContext::Account(login))(error)),
    }
}
