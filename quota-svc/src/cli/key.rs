//! The `key` commands: create, list, find, change, delete, usage and events.

use std::io::{self, IsTerminal, Read};

use anyhow::{Context as _, bail};
use api_key::ApiKey;
use quota_api::{
    KeyList, KeySettings, KeyState, NewKey, OwnedKey, Scope, SetDailyLimit, SettingsChange, StateChange,
};
use quota_client::ClientError;
use serde_json::json;
use service_kit::command_line::Output;

use super::confirm::ConfirmArgs;
use super::context::{CliContext, ErrorContext};
use super::key_view::{self, KeyView};
use super::listing;
use crate::domain::id::KeyId;

/// Maximum input of `key find` in bytes. A key has 42.
const MAX_INPUT: u64 = 4096;

#[derive(clap::Subcommand, Debug)]
pub enum KeyCommand {
    /// Create a key and print it; it can't be shown again later
    Create {
        /// Login of the account
        #[arg(long, value_name = "LOGIN")]
        account: String,
        /// Name of the key
        #[arg(long)]
        name: String,
        /// Which response fields the key may see
        #[arg(long, value_enum)]
        scope: Scope,
        /// Requests per day, if other than the default
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        daily_limit: Option<u32>,
    },
    /// Print a new key that no account has yet, for the first account of the Helm chart
    Generate,
    /// List all keys, or those of an account
    List {
        /// Login of the account
        #[arg(long, value_name = "LOGIN")]
        account: Option<String>,
        /// Only keys in this state
        #[arg(long, value_enum)]
        state: Option<KeyState>,
    },
    /// Find a key by its secret, read from standard input: for reports of leaked keys
    // Never an argument: other users of the machine see those, and shells store them.
    Find,
    /// Show a key
    Show(KeyArg),
    /// Resume a paused key
    Resume(KeyArg),
    /// Deactivate a key
    Deactivate(KeyArg),
    /// Reactivate a key
    Reactivate(KeyArg),
    /// Rename a key
    Rename {
        #[command(flatten)]
        key: KeyArg,
        /// New name
        #[arg(long)]
        name: String,
    },
    /// Set a key's daily limit
    SetLimit {
        #[command(flatten)]
        key: KeyArg,
        /// Requests per day, or `default`
        #[arg(long, value_name = "N|default", value_parser = parse_daily_limit)]
        daily_limit: SetDailyLimit,
    },
    /// Delete a key permanently
    Delete {
        #[command(flatten)]
        key: KeyArg,
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
    /// Show a key's requests per day, for the last 31 days
    Usage(KeyArg),
    /// Show a key's events and their reasons
    Events(KeyArg),
}

#[derive(clap::Args, Debug)]
pub struct KeyArg {
    /// ID of the key, as shown by `key list` (not the key itself)
    id: String,
}

impl KeyArg {
    /// An error never repeats the argument: it may be the secret key itself.
    fn id(&self, program: &str) -> anyhow::Result<&str> {
        match KeyId::from_hex(&self.id) {
            Ok(_) => Ok(&self.id),
            Err(_) if self.id.starts_with(api_key::PREFIX) => {
                bail!(
                    "this is an API key, not its ID. To find the ID, run: {program} key find, and enter the key there"
                )
            }
            Err(error) => bail!("{error}. To see the IDs, run: {program} key list"),
        }
    }
}

fn parse_daily_limit(text: &str) -> Result<SetDailyLimit, &'static str> {
    match text.parse() {
        _ if text == "default" => Ok(SetDailyLimit { daily_limit: None }),
        Ok(limit) if limit > 0 => Ok(SetDailyLimit { daily_limit: Some(limit) }),
        _ => Err("must be a number of requests, at least 1, or `default`"),
    }
}

/// Prints a new key, without quota-svc.
pub(super) fn generate(output: Output) -> anyhow::Result<()> {
    let key = ApiKey::generate()?;
    output.show(&json!({ "key": key.expose() }), || key.expose().to_owned())
}

pub(super) async fn run(command: KeyCommand, context: &CliContext) -> anyhow::Result<()> {
    let client = &context.client;
    let change_state = async |key: &KeyArg, change| {
        show_key(key, async |id| client.change_state(id, None, change).await, context).await
    };
    match command {
        KeyCommand::Create { account, name, scope, daily_limit } => {
            create(&account, NewKey { settings: KeySettings::new(&name, scope), daily_limit }, context).await
        }
        KeyCommand::Generate => generate(context.output),
        KeyCommand::List { account: Some(login), state } => list(&login, state, context).await,
        KeyCommand::List { account: None, state } => listing::keys(state, context).await,
        KeyCommand::Find => find(context).await,
        KeyCommand::Show(key) => show_key(&key, async |id| client.key(id, None).await, context).await,
        KeyCommand::Resume(key) => change_state(&key, StateChange::Resume).await,
        KeyCommand::Deactivate(key) => change_state(&key, StateChange::Deactivate).await,
        KeyCommand::Reactivate(key) => change_state(&key, StateChange::Reactivate).await,
        KeyCommand::Rename { key, name } => {
            let change = SettingsChange::rename(&name);
            show_key(&key, async |id| client.change_key(id, None, &change).await, context).await
        }
        KeyCommand::SetLimit { key, daily_limit } => {
            show_key(&key, async |id| client.set_daily_limit(id, &daily_limit).await, context).await
        }
        KeyCommand::Delete { key, confirm } => delete(&key, confirm, context).await,
        KeyCommand::Usage(key) => usage(&key, context).await,
        KeyCommand::Events(key) => events(&key, context).await,
    }
}

async fn create(login: &str, new: NewKey, context: &CliContext) -> anyhow::Result<()> {
    let account = context.account(login).await?;
    let created = context.client.create_key(&account.id, &new).await;
    let created = created.map_err(context.explain(ErrorContext::Account(login)))?;
    let view = KeyView { key: &created.key, account_id: &account.id, account: Some(&account.login) };
    let mut object = json!(view);
    object["key"] = json!(created.secret);
    context.show(&object, || key_view::created(view, &created.secret, &context.program))
}

async fn list(login: &str, state: Option<KeyState>, context: &CliContext) -> anyhow::Result<()> {
    let account = context.account(login).await?;
    let listed = context.client.keys(&account.id).await;
    let listed = listed.map_err(context.explain(ErrorContext::Account(login)))?;
    let KeyList { keys, unreadable } = listing::in_state(listed, state);
    let view = |key| KeyView { key, account_id: &account.id, account: Some(&account.login) };
    let mut object = json!({ "keys": keys.iter().map(view).collect::<Vec<_>>() });
    if !unreadable.is_empty() {
        object["unreadable"] = json!(unreadable);
    }
    context.show(&object, || key_view::list(&keys, &unreadable, &context.program))
}

/// Reads a key from standard input and shows its metadata. No message repeats the input.
async fn find(context: &CliContext) -> anyhow::Result<()> {
    let input = tokio::task::spawn_blocking(read_key).await??;
    let key = ApiKey::parse(input.trim()).context("standard input has no API key")?;
    let id = KeyId::of(&key.digest()).to_string();
    show_key(&KeyArg { id }, async |id| context.client.key(id, None).await, context).await
}

/// Reads standard input to its end; from a terminal, one line.
fn read_key() -> anyhow::Result<String> {
    let mut input = String::new();
    let stdin = io::stdin();
    if stdin.is_terminal() {
        eprint!("API key: ");
        stdin.read_line(&mut input)?;
    } else {
        stdin.lock().take(MAX_INPUT).read_to_string(&mut input).context("can't read standard input")?;
    }
    Ok(input)
}

/// Makes a call and prints the key that it returns.
async fn show_key(
    key: &KeyArg,
    call: impl AsyncFnOnce(&str) -> Result<OwnedKey, ClientError>,
    context: &CliContext,
) -> anyhow::Result<()> {
    let id = key.id(&context.program)?;
    let key = call(id).await.map_err(context.explain(ErrorContext::Key(id)))?;
    let login = login_of(&key, context).await;
    let view = KeyView::of(&key, login.as_deref());
    context.show(&view, || key_view::details(view, &context.program))
}

/// The login of the key's account. An error yields `None`: a change of the key may already have been made, and an error
/// would suggest that it failed.
async fn login_of(key: &OwnedKey, context: &CliContext) -> Option<String> {
    context.client.account(&key.account).await.ok().map(|account| account.login)
}

async fn delete(key: &KeyArg, confirm: ConfirmArgs, context: &CliContext) -> anyhow::Result<()> {
    let id = key.id(&context.program)?;
    confirm.check_possible()?;
    let explain = context.explain(ErrorContext::Key(id));
    let key = match context.client.key(id, None).await {
        Err(error) if error.code() == Some("unreadable_key") => {
            confirm.prompt(&format!("Delete key {id}, which can't be read, permanently?"))?;
            context.client.delete_key(id, None).await.map_err(explain)?;
            return context.show(&json!({ "deleted": true, "id": id }), || format!("Deleted key {id}."));
        }
        result => result.map_err(explain)?,
    };
    let login = login_of(&key, context).await;
    let view = KeyView::of(&key, login.as_deref());
    confirm.prompt(&format!("Delete key {} permanently?", view.label()))?;
    context.client.delete_key(id, None).await.map_err(explain)?;
    let deleted = json!({ "deleted": true, "id": id, "account": login, "name": key.key.settings.name });
    context.show(&deleted, || format!("Deleted key {}.", view.label()))
}

async fn usage(key: &KeyArg, context: &CliContext) -> anyhow::Result<()> {
    let id = key.id(&context.program)?;
    let explain = context.explain(ErrorContext::Key(id));
    let key = context.client.key(id, None).await.map_err(explain)?.key;
    let usage = context.client.usage(id, None).await.map_err(explain)?;
    let object = json!({ "id": id, "daily_limit": key.daily_limit, "days": usage.days });
    context.show(&object, || key_view::usage(&key, &usage.days))
}

async fn events(key: &KeyArg, context: &CliContext) -> anyhow::Result<()> {
    let id = key.id(&context.program)?;
    let events = context.client.events(id, None).await;
    let events = events.map_err(context.explain(ErrorContext::Key(id)))?.events;
    context.show(&json!({ "id": id, "events": events }), || key_view::events(&events))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daily_limit_is_a_number_or_default() {
        assert_eq!(parse_daily_limit("default").unwrap().daily_limit, None);
        assert_eq!(parse_daily_limit("50000").unwrap().daily_limit, Some(50_000));
        for invalid in ["0", "-1", "", "none", "4294967296"] {
            assert!(parse_daily_limit(invalid).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn invalid_id_is_rejected_and_not_repeated() {
        let error = |id: &str| KeyArg { id: id.to_owned() }.id("quota-svc").unwrap_err().to_string();
        assert!(error("ipl_hush").contains("not its ID") && error("ipl_hush").contains("quota-svc key find"));
        for invalid in ["hush", "0123", "0123456789ABCDEF0123456789ABCDEF", "../hush"] {
            assert!(
                !error(invalid).contains("hush") && error(invalid).contains("quota-svc key list"),
                "{invalid}"
            );
        }
        assert!(KeyArg { id: "0123456789abcdef0123456789abcdef".to_owned() }.id("quota-svc").is_ok());
    }
}
