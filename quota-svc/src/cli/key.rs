//! The `key` commands: create, list, find, change, delete, usage and events.

use std::io::{self, IsTerminal, Read};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use api_key::ApiKey;
use base::flags::parse_duration;
use quota_api::{
    KeyList, KeySettings, KeyState, MaybeUndefined, NewKey, OwnedKey, Rotation, Scope, SetDailyLimit,
    SettingsChange, StateChange,
};
use quota_client::ClientError;
use serde_json::json;
use service_kit::command_line::Output;

use super::confirm::ConfirmArgs;
use super::context::{CliContext, ErrorContext, command_error};
use super::key_view::{self, KeyView};
use super::listing;
use super::table::time;
use crate::domain::account::Login;
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

/// The code of the error about an argument that identifies no single key.
const INVALID_ID: &str = "invalid_id";

/// Fewest digits of an ID that may stand for it.
const MIN_DIGITS: usize = 4;

impl KeyArg {
    /// Finds the ID. An error does not repeat the argument, which may be the secret key itself, except for a login.
    async fn id(&self, context: &CliContext) -> anyhow::Result<String> {
        let (text, program) = (self.key.as_str(), &context.program);
        if KeyId::from_hex(text).is_ok() {
            return Ok(text.to_owned());
        }
        let is_hint = text.contains('…') || text.contains("...");
        if text.starts_with(api_key::PREFIX) && !is_hint {
            return Err(command_error(
                INVALID_ID,
                format!(
                    "this is an API key, not its ID. To find the ID, run: {program} key find, and enter the key there"
                ),
            ));
        }
        let found = match text.split_once('/') {
            Some((login, name)) => {
                let account = context.account(login).await?;
                let keys = context.client.keys(&account.id).await;
                let keys = keys.map_err(context.explain(ErrorContext::Account(login)))?.keys;
                keys.into_iter().filter(|key| key.settings.name == name).map(|key| key.id).collect()
            }
            None => self.find(context).await?,
        };
        match &found[..] {
            [id] => Ok(id.clone()),
            [] => Err(command_error(
                "key_not_found",
                format!("no such key. To see the keys, run: {program} key list"),
            )),
            _ => Err(command_error(
                INVALID_ID,
                format!("there are several such keys: give the ID. To see the IDs, run: {program} key list"),
            )),
        }
    }

    /// Searches all keys for the hint or the first digits of an ID.
    async fn find(&self, context: &CliContext) -> anyhow::Result<Vec<String>> {
        let (text, mut found) = (self.key.replace("...", "…"), Vec::new());
        let is_prefix = text.len() >= MIN_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_prefix && !text.contains('…') {
            return Err(command_error(
                INVALID_ID,
                format!(
                    "expected an ID, its first {MIN_DIGITS} or more digits, a hint such as ipl_abcd…wxyz, or LOGIN/NAME. \
                     To see the keys, run: {} key list",
                    context.program
                ),
            ));
        }
        listing::for_each_key(context, |key| {
            if key.hint == text || (is_prefix && key.id.starts_with(&text.to_lowercase())) {
                found.push(key.id.clone());
            }
        })
        .await?;
        Ok(found)
    }
}

/// A point in time: a duration from now on, a date, or a date with a time, in UTC.
fn parse_time(text: &str) -> Result<u32, String> {
    let midnight = format!("{text}T00:00:00Z");
    let date = || humantime::parse_rfc3339_weak(text).or_else(|_| humantime::parse_rfc3339(&midnight));
    let time = match humantime::parse_duration(text) {
        Ok(duration) => SystemTime::now().checked_add(duration).ok_or("is too far in the future")?,
        Err(_) => date().map_err(|_| "must be a time such as 30d or a date such as 2027-01-31".to_owned())?,
    };
    let seconds = time.duration_since(UNIX_EPOCH).ok().and_then(|time| u32::try_from(time.as_secs()).ok());
    seconds.ok_or_else(|| "must be a time between 1970 and 2106".to_owned())
}

fn parse_expiry(text: &str) -> Result<MaybeUndefined<u32>, String> {
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

pub(super) async fn run(command: KeyCommand, context: &CliContext) -> anyhow::Result<()> {
    let client = &context.client;
    let change_state = async |key: &KeyArg, change| {
        show_change(key, async |id| client.change_state(id, None, change).await, context).await
    };
    let change_settings = async |key: &KeyArg, change: SettingsChange| {
        show_change(key, async |id| client.change_key(id, None, &change).await, context).await
    };
    match command {
        KeyCommand::Create { account, name, scope, daily_limit, expires, origin } => {
            let settings = KeySettings { name, scope, expires_at: expires, allowed_origins: origin };
            create(&account, NewKey { settings, daily_limit }, context).await
        }
        KeyCommand::Generate { login } => generate(&login, context.output),
        KeyCommand::List { account: Some(login), state } => list(&login, state, context).await,
        KeyCommand::List { account: None, state } => listing::keys(state, context).await,
        KeyCommand::Find => find(context).await,
        KeyCommand::Show(key) => show_key(&key.id(context).await?, context).await,
        KeyCommand::Resume(key) => change_state(&key, StateChange::Resume).await,
        KeyCommand::Deactivate(key) => change_state(&key, StateChange::Deactivate).await,
        KeyCommand::Reactivate(key) => change_state(&key, StateChange::Reactivate).await,
        KeyCommand::Rename { key, name } => change_settings(&key, SettingsChange::rename(&name)).await,
        KeyCommand::SetExpiry { key, expires } => {
            change_settings(&key, SettingsChange { expires_at: expires, ..SettingsChange::default() }).await
        }
        KeyCommand::SetOrigins { key, origin } => {
            let origins = if origin == ["any"] { Vec::new() } else { origin };
            let change = SettingsChange { allowed_origins: Some(origins), ..SettingsChange::default() };
            change_settings(&key, change).await
        }
        KeyCommand::Rotate { key, overlap } => rotate(&key, overlap, context).await,
        KeyCommand::SetLimit { key, daily_limit } => {
            show_change(&key, async |id| client.set_daily_limit(id, &daily_limit).await, context).await
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

async fn rotate(key: &KeyArg, overlap: Duration, context: &CliContext) -> anyhow::Result<()> {
    let id = key.id(context).await?;
    let explain = context.explain(ErrorContext::Key(&id));
    let old = context.client.key(&id, None).await.map_err(explain)?;
    let rotation = Rotation { overlap: Some(u32::try_from(overlap.as_secs()).unwrap_or(u32::MAX)) };
    let created = context.client.rotate_key(&id, None, &rotation).await.map_err(explain)?;
    let login = login_of(&old, context).await;
    let view = KeyView { key: &created.key, account_id: &old.account, account: login.as_deref() };
    // Not read from quota-svc: an error now would hide the secret of the new key.
    let end = created.key.created_at / 1000 + overlap.as_secs().cast_signed();
    let old_expires_at = old.key.settings.expires_at.map_or(end, |at| end.min(at.into()));
    let mut object = json!(view);
    (object["key"], object["old_key_expires_at"]) = (json!(created.secret), json!(old_expires_at));
    context.show(&object, || {
        let text = key_view::created(view, &created.secret, &context.program);
        format!("{text}\n\nThe old key works until {}.", time(old_expires_at * 1000))
    })
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
    show_key(&KeyId::of(&key.digest()).to_string(), context).await
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

async fn show_key(id: &str, context: &CliContext) -> anyhow::Result<()> {
    let key = context.client.key(id, None).await.map_err(context.explain(ErrorContext::Key(id)))?;
    let login = login_of(&key, context).await;
    let view = KeyView::of(&key, login.as_deref());
    context.show(&view, || key_view::details(view, &context.program))
}

/// Makes a call that changes a key. Prints the key, and whether it has changed.
async fn show_change(
    key: &KeyArg,
    call: impl AsyncFnOnce(&str) -> Result<OwnedKey, ClientError>,
    context: &CliContext,
) -> anyhow::Result<()> {
    let id = &key.id(context).await?;
    let explain = context.explain(ErrorContext::Key(id));
    // Every change adds an event.
    let before = context.client.events(id, None).await.map_err(explain)?;
    let key = call(id).await.map_err(explain)?;
    let changed = context.client.events(id, None).await.map_or(true, |after| after != before);
    let login = login_of(&key, context).await;
    let view = KeyView::of(&key, login.as_deref());
    let mut object = json!(view);
    object["changed"] = json!(changed);
    context.show(&object, || {
        let note = if changed { "" } else { "Nothing has changed: the key was already as requested.\n\n" };
        format!("{note}{}", key_view::details(view, &context.program))
    })
}

/// The login of the key's account. An error yields `None`: a change of the key may already have been made, and an error
/// would suggest that it failed.
async fn login_of(key: &OwnedKey, context: &CliContext) -> Option<String> {
    context.client.account(&key.account).await.ok().map(|account| account.login)
}

async fn delete(key: &KeyArg, confirm: ConfirmArgs, context: &CliContext) -> anyhow::Result<()> {
    let id = &key.id(context).await?;
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
    let id = &key.id(context).await?;
    let explain = context.explain(ErrorContext::Key(id));
    let key = context.client.key(id, None).await.map_err(explain)?.key;
    let usage = context.client.usage(id, None).await.map_err(explain)?;
    let object = json!({ "id": id, "daily_limit": key.daily_limit, "days": usage.days });
    context.show(&object, || key_view::usage(&key, &usage.days))
}

async fn events(key: &KeyArg, context: &CliContext) -> anyhow::Result<()> {
    let id = &key.id(context).await?;
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
