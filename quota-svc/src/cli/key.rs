//! The `key` commands.

use std::io::{self, BufRead, IsTerminal, Read};
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use api_key::ApiKey;
use base::flags::parse_duration;
use futures_util::{StreamExt, TryStreamExt, stream};
use quota_api::{
    Account, CreatedKey, Key, KeyList, KeySettings, KeyState, MaybeUndefined, NewKey, OwnedKey, Rotation,
    Scope, SetDailyLimit, SettingsChange, StateChange,
};
use quota_client::ClientError;
use serde_json::json;
use service_kit::command_line::{Output, command_error};

use super::context::CliContext;
use super::key_view::{HEADINGS, KeyView, KeyViews, event_table, unreadable_text, usage_table};
use super::output::{ConfirmArgs, PagedList, time};
use crate::domain::account::Login;
use crate::domain::id::KeyId;

/// Accounts whose keys are fetched at the same time.
const CONCURRENT_CALLS: usize = 8;

/// Fewest digits of an ID that may stand for it.
const MIN_DIGITS: usize = 4;

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
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
        daily_limit: Option<u32>,
        /// When the key expires: a time such as 30d from now, or a date in UTC such as 2027-01-31
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        expires: Option<u32>,
        /// Origin of a web page that may use the key, such as https://www.example.org; repeat it for others
        #[arg(long, value_name = "ORIGIN")]
        origin: Vec<String>,
    },
    /// Print a new key for an account that may not exist yet, for the first account of the Helm chart
    Generate {
        /// Login of the account that the key is for
        #[arg(value_name = "LOGIN")]
        login: String,
    },
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
        #[arg(long, value_name = "N|default", allow_negative_numbers = true, value_parser = parse_daily_limit)]
        daily_limit: SetDailyLimit,
    },
    /// Set when a key expires
    SetExpiry {
        #[command(flatten)]
        key: KeyArg,
        /// A time such as 30d from now, a date in UTC such as 2027-01-31, or `never`
        #[arg(long, value_name = "TIME|never", value_parser = parse_expiry)]
        expires: MaybeUndefined<u32>,
    },
    /// Set the origins of the web pages that may use a key
    SetOrigins {
        #[command(flatten)]
        key: KeyArg,
        /// An origin, such as https://www.example.org; repeat it for others. `any`: every request may use the key
        #[arg(long, value_name = "ORIGIN|any", required = true)]
        origin: Vec<String>,
    },
    /// Replace a key by a copy with a new secret, and let the old one expire; one that it has itself replaced is deleted
    Rotate {
        #[command(flatten)]
        key: KeyArg,
        /// How long the old key still works, at most 7d
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_duration)]
        overlap: Duration,
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
    /// ID of the key or its first digits, its hint such as ipl_abcd…wxyz, or LOGIN/NAME (not the key itself)
    #[arg(value_name = "KEY")]
    key: String,
}

impl KeyArg {
    /// Finds the ID. An error does not repeat the argument, which may be the secret key itself, except for a login.
    async fn id(&self, context: &CliContext) -> anyhow::Result<String> {
        if KeyId::from_hex(&self.key).is_ok() {
            return Ok(self.key.clone());
        }
        let (start, hint) = (self.key.to_lowercase(), self.key.replace("...", "…"));
        let is_start = start.len() >= MIN_DIGITS && start.bytes().all(|byte| byte.is_ascii_hexdigit());
        let of_login = self.key.split_once('/').filter(|_| !self.key.starts_with(api_key::PREFIX));
        let is_meant = |key: &Key| match of_login {
            Some((_, name)) => key.settings.name == name,
            None => key.hint == hint || (is_start && key.id.starts_with(&start)),
        };
        let mut found = Vec::new();
        let mut search = async |accounts: Vec<Account>| {
            let keys = keys_of(&accounts, None, context).await?.keys.into_iter().map(|view| view.key);
            found.extend(keys.filter(is_meant).map(|key| key.id));
            Ok(())
        };
        let program = &context.program;
        match of_login {
            Some((login, _)) => search(vec![context.account(login).await?]).await?,
            None if is_start || hint.contains('…') => drop(context.for_each_page(search).await?),
            None => {
                return Err(invalid_id(format!(
                    "expected an ID, its first {MIN_DIGITS} or more digits, a hint such as ipl_abcd…wxyz, or LOGIN/NAME; a \
                     key is not its ID. To find the ID of a key, run: {program} key find. To see all, run: {program} key list"
                )));
            }
        }
        match &found[..] {
            [id] => Ok(id.clone()),
            [] => {
                let message = format!("no such key. To see the keys, run: {program} key list");
                Err(command_error("key_not_found", message))
            }
            _ => Err(invalid_id(format!(
                "there are several such keys: give the ID. To see the IDs, run: {program} key list"
            ))),
        }
    }
}

/// The error of an argument that identifies no single key.
fn invalid_id(message: String) -> anyhow::Error {
    command_error("invalid_id", message)
}

/// A point in time: a duration from now on, a date, or a date with a time, in UTC.
fn parse_time(text: &str) -> Result<u32, &'static str> {
    let midnight = format!("{text}T00:00:00Z");
    let date = || humantime::parse_rfc3339_weak(text).or_else(|_| humantime::parse_rfc3339(&midnight));
    let time = match humantime::parse_duration(text) {
        Ok(duration) => SystemTime::now().checked_add(duration).ok_or("is too far in the future")?,
        Err(_) => date().map_err(|_| "must be a time such as 30d or a date such as 2027-01-31")?,
    };
    let seconds = time.duration_since(UNIX_EPOCH).ok().and_then(|time| u32::try_from(time.as_secs()).ok());
    seconds.ok_or("must be a time between 1970 and 2106")
}

fn parse_expiry(text: &str) -> Result<MaybeUndefined<u32>, &'static str> {
    if text == "never" { Ok(MaybeUndefined::Null) } else { parse_time(text).map(MaybeUndefined::Value) }
}

fn parse_daily_limit(text: &str) -> Result<SetDailyLimit, &'static str> {
    match text.parse() {
        _ if text == "default" => Ok(SetDailyLimit { daily_limit: None }),
        Ok(limit) if limit > 0 => Ok(SetDailyLimit { daily_limit: Some(limit) }),
        _ => Err("must be a number of requests, at least 1, or `default`"),
    }
}

/// Prints a new key, without quota-svc.
pub(super) fn generate(login: &str, output: Output) -> anyhow::Result<()> {
    let key = Login::parse(login)?.account_id().generate_key()?;
    output.show(&json!({ "key": key.expose() }), || key.expose().to_owned())
}

impl KeyCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<()> {
        let client = &context.client;
        let set_state = async |key: &KeyArg, to| {
            change(key, context, async |id| client.change_state(id, None, to).await).await
        };
        let set = async |key: &KeyArg, settings: SettingsChange| {
            change(key, context, async |id| client.change_key(id, None, &settings).await).await
        };
        match self {
            Self::Create { account, name, scope, daily_limit, expires, origin } => {
                let settings = KeySettings { name, scope, expires_at: expires, allowed_origins: origin };
                create(&account, NewKey { settings, daily_limit }, context).await
            }
            Self::Generate { login } => generate(&login, context.output),
            Self::List { account: Some(login), state } => list(&login, state, context).await,
            Self::List { account: None, state } => list_all(state, context).await,
            Self::Find => find(context).await,
            Self::Show(key) => show(&key.id(context).await?, context).await,
            Self::Resume(key) => set_state(&key, StateChange::Resume).await,
            Self::Deactivate(key) => set_state(&key, StateChange::Deactivate).await,
            Self::Reactivate(key) => set_state(&key, StateChange::Reactivate).await,
            Self::Rename { key, name } => set(&key, SettingsChange::rename(&name)).await,
            Self::SetExpiry { key, expires } => {
                set(&key, SettingsChange { expires_at: expires, ..SettingsChange::default() }).await
            }
            Self::SetOrigins { key, origin } => {
                let origins = if origin == ["any"] { Vec::new() } else { origin };
                set(&key, SettingsChange { allowed_origins: Some(origins), ..SettingsChange::default() })
                    .await
            }
            Self::SetLimit { key, daily_limit } => {
                change(&key, context, async |id| client.set_daily_limit(id, &daily_limit).await).await
            }
            Self::Rotate { key, overlap } => rotate(&key, overlap, context).await,
            Self::Delete { key, confirm } => delete(&key, confirm, context).await,
            Self::Usage(key) => {
                let id = &key.id(context).await?;
                let key = context.call(id, client.key(id, None)).await?.key;
                let days = context.call(id, client.usage(id, None)).await?.days;
                let object = json!({ "id": id, "daily_limit": key.daily_limit, "days": days });
                context.output.show(&object, || usage_table(&key, &days))
            }
            Self::Events(key) => {
                let id = &key.id(context).await?;
                let events = context.call(id, client.events(id, None)).await?.events;
                context.output.show(&json!({ "id": id, "events": events }), || event_table(&events))
            }
        }
    }
}

async fn create(login: &str, new: NewKey, context: &CliContext) -> anyhow::Result<()> {
    let account = context.account(login).await?;
    let created = context.call(login, context.client.create_key(&account.id, &new)).await?;
    show_created(&KeyView::new(created.key, &account), &created.secret, None, context)
}

async fn rotate(key: &KeyArg, overlap: Duration, context: &CliContext) -> anyhow::Result<()> {
    let (client, id) = (&context.client, &key.id(context).await?);
    let old = context.call(id, client.key(id, None)).await?;
    let rotation = Rotation { overlap: Some(u32::try_from(overlap.as_secs()).unwrap_or(u32::MAX)) };
    let CreatedKey { secret, key } = context.call(id, client.rotate_key(id, None, &rotation)).await?;
    // Not read from quota-svc: an error now would hide the secret of the new key.
    let end = key.created_at / 1000 + overlap.as_secs().cast_signed();
    let old_expires_at = old.key.settings.expires_at.map_or(end, |at| end.min(at.into()));
    show_created(&view(OwnedKey { key, ..old }, context).await, &secret, Some(old_expires_at), context)
}

/// Prints a new key, the only time with its secret.
fn show_created(
    view: &KeyView,
    secret: &str,
    old_expires_at: Option<i64>,
    context: &CliContext,
) -> anyhow::Result<()> {
    let mut object = json!(view);
    object["key"] = json!(secret);
    let note = "Save this key now. It can't be shown again.";
    let mut text = format!("Created a key:\n\n    {secret}\n\n{note}\n\n{}", view.details(&context.program));
    if let Some(at) = old_expires_at {
        object["old_key_expires_at"] = json!(at);
        text += &format!("\n\nThe old key works until {}.", time(at * 1000));
    }
    context.output.show(&object, || text)
}

async fn list(login: &str, state: Option<KeyState>, context: &CliContext) -> anyhow::Result<()> {
    let account = context.account(login).await?;
    let list = keys_of(&[account], state, context).await?;
    context.output.show(&list, || list.text(&context.program))
}

async fn list_all(state: Option<KeyState>, context: &CliContext) -> anyhow::Result<()> {
    let mut pages = PagedList { noun: "key", headings: &HEADINGS, output: context.output, printed: 0 };
    let mut unreadable = Vec::new();
    let print = async |accounts: Vec<Account>| {
        let list = keys_of(&accounts, state, context).await?;
        unreadable.extend(list.unreadable);
        pages.print_page(&list.keys, |view| view.row(view.owner()))
    };
    context.for_each_page(print).await?;
    pages.print_end(&unreadable, || unreadable_text(&unreadable, &context.program))
}

/// The keys of these accounts. With a state, only the keys in it; that of unreadable keys is not known.
pub(super) async fn keys_of(
    accounts: &[Account],
    state: Option<KeyState>,
    context: &CliContext,
) -> anyhow::Result<KeyViews> {
    let calls = accounts.iter().map(async |account| match context.client.keys(&account.id).await {
        // The account was deleted meanwhile.
        Err(error) if error.code() == Some("account_not_found") => Ok((account, KeyList::default())),
        Err(error) => Err(context.explain(error, &account.login)),
        Ok(list) => Ok((account, list)),
    });
    let mut lists = pin!(stream::iter(calls).buffered(CONCURRENT_CALLS));
    let mut views = KeyViews::default();
    while let Some((account, mut list)) = lists.try_next().await? {
        if let Some(state) = state {
            list.keys.retain(|key| key.state == state);
            list.unreadable.clear();
        }
        views.keys.extend(list.keys.into_iter().map(|key| KeyView::new(key, account)));
        views.unreadable.append(&mut list.unreadable);
    }
    Ok(views)
}

/// Reads a key from standard input and shows its metadata. No message repeats the input.
async fn find(context: &CliContext) -> anyhow::Result<()> {
    let read_line = || {
        if io::stdin().is_terminal() {
            eprint!("API key: ");
        }
        let mut line = String::new();
        io::stdin().lock().take(MAX_INPUT).read_line(&mut line).map(|_| line)
    };
    let line = tokio::task::spawn_blocking(read_line).await?.context("can't read standard input")?;
    let key = ApiKey::parse(line.trim()).context("standard input has no API key")?;
    show(&KeyId::of(&key.digest()).to_string(), context).await
}

async fn show(id: &str, context: &CliContext) -> anyhow::Result<()> {
    let key = context.call(id, context.client.key(id, None)).await?;
    let view = view(key, context).await;
    context.output.show(&view, || view.details(&context.program))
}

/// Makes a call that changes a key. Prints the key, and whether it has changed.
async fn change(
    key: &KeyArg,
    context: &CliContext,
    call: impl AsyncFnOnce(&str) -> Result<OwnedKey, ClientError>,
) -> anyhow::Result<()> {
    let (client, id) = (&context.client, &key.id(context).await?);
    // Every change adds an event.
    let before = context.call(id, client.events(id, None)).await?;
    let key = context.call(id, call(id)).await?;
    let changed = client.events(id, None).await.map_or(true, |after| after != before);
    let view = view(key, context).await;
    context.show_change("key", &view, changed, &view.details(&context.program))
}

/// Adds the login of the key's account, unless it can't be found: a change of the key may already have been made, and an
/// error would suggest that it failed.
async fn view(OwnedKey { account: account_id, key }: OwnedKey, context: &CliContext) -> KeyView {
    let account = context.client.account(&account_id).await.ok().map(|account| account.login);
    KeyView { key, account_id, account }
}

async fn delete(key: &KeyArg, confirm: ConfirmArgs, context: &CliContext) -> anyhow::Result<()> {
    let (client, id) = (&context.client, &key.id(context).await?);
    let mut deleted = json!({ "deleted": true, "id": id });
    let what = match context.call_readable(id, client.key(id, None)).await? {
        None => format!("{id} (unreadable)"),
        Some(key) => {
            let view = view(key, context).await;
            (deleted["account"], deleted["name"]) = (json!(view.account), json!(view.key.settings.name));
            view.label()
        }
    };
    confirm.ask(&format!("Delete key {what} permanently?"))?;
    context.call(id, client.delete_key(id, None)).await?;
    context.output.show(&deleted, || format!("Deleted key {what}."))
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
    fn time_is_a_duration_or_a_date() {
        assert_eq!(parse_time("2027-01-15"), Ok(1_799_971_200));
        assert_eq!(parse_time("2027-01-15T08:00:00Z"), Ok(1_800_000_000));
        assert_eq!(parse_time("2027-01-15 08:00:00"), Ok(1_800_000_000));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(u64::from(parse_time("30d").unwrap()).abs_diff(now + 30 * 86_400) < 60);
        for invalid in ["", "tomorrow", "2027-13-01", "1960-01-01", "2200-01-01", "-1d", "never"] {
            assert!(parse_time(invalid).is_err(), "{invalid:?}");
        }
        assert_eq!(parse_expiry("never"), Ok(MaybeUndefined::Null));
    }
}
