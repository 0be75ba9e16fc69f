//! Keys: create, list, change, delete, and what happened to them.

use anyhow::bail;
use quota_client::ClientError;
use quota_client::wire::{Key, NewKey, Rename, Scope, SetDailyLimit};
use serde_json::json;

use super::confirm::Yes;
use super::key_view::{self, KeyView};
use super::operator::{About, Operator};
use crate::domain::id::KeyId;

/// Create, list, change and delete API keys.
#[derive(clap::Subcommand, Debug)]
pub enum KeyCommand {
    /// Create a key and show it, this once
    Create {
        /// The login of the account that will hold it
        #[arg(long, value_name = "LOGIN")]
        account: String,
        /// What its owner calls it
        #[arg(long)]
        name: String,
        /// What it may see
        #[arg(long, value_enum)]
        scope: ScopeArg,
        /// Requests a day, other than the service's default
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        daily_limit: Option<u32>,
    },
    /// List the keys of an account
    List {
        /// The account's login
        #[arg(long, value_name = "LOGIN")]
        account: String,
    },
    /// Show a key
    Show(KeyArg),
    /// Let a paused key work again
    Resume(KeyArg),
    /// Take a key out of use until it is reactivated
    Deactivate(KeyArg),
    /// Bring a deactivated key back
    Reactivate(KeyArg),
    /// Give a key another name
    Rename {
        /// Which key
        #[command(flatten)]
        key: KeyArg,
        /// The new name
        #[arg(long)]
        name: String,
    },
    /// Set how many requests a day a key has
    SetLimit {
        /// Which key
        #[command(flatten)]
        key: KeyArg,
        /// Requests a day, or `default` for the service's default
        #[arg(long, value_name = "N|default")]
        daily: DailyLimit,
    },
    /// Delete a key, for good
    Delete {
        /// Which key
        #[command(flatten)]
        key: KeyArg,
        /// Agreement
        #[command(flatten)]
        yes: Yes,
    },
    /// Show a key's requests by day, for 31 days
    Usage(KeyArg),
    /// Show what happened to a key, and why
    Events(KeyArg),
}

/// Which key.
#[derive(clap::Args, Debug)]
pub struct KeyArg {
    /// The key's id, as `key list` shows it (not the key itself)
    id: String,
}

impl KeyArg {
    /// Somebody may have given the key itself, so what is no id is not repeated.
    fn id(&self) -> anyhow::Result<&str> {
        match KeyId::from_hex(&self.id) {
            Ok(_) => Ok(&self.id),
            Err(_) if self.id.starts_with(api_key::PREFIX) => {
                bail!("that is an API key, not its id. `quota-svc key list --account LOGIN` shows the ids")
            }
            Err(error) => bail!("{error}. `quota-svc key list --account LOGIN` shows the ids"),
        }
    }
}

/// What a key may see.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum ScopeArg {
    /// Addresses only
    Ip,
    /// Addresses, place and network operator
    Geo,
    /// Everything, with the facts of the connection
    Full,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Ip => Self::Ip,
            ScopeArg::Geo => Self::Geo,
            ScopeArg::Full => Self::Full,
        }
    }
}

/// `--daily`: a number of requests, or the service's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DailyLimit(Option<u32>);

impl std::str::FromStr for DailyLimit {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            _ if text == "default" => Ok(Self(None)),
            Ok(limit) if limit > 0 => Ok(Self(Some(limit))),
            _ => Err("give a number of requests from 1 on, or `default`"),
        }
    }
}

pub(super) async fn run(command: KeyCommand, operator: &Operator) -> anyhow::Result<()> {
    let client = &operator.client;
    match command {
        KeyCommand::Create { account, name, scope, daily_limit } => {
            create(&account, NewKey { name, scope: scope.into(), daily_limit }, operator).await
        }
        KeyCommand::List { account } => list(&account, operator).await,
        KeyCommand::Show(key) => changed(&key, async |id| client.key(id, None).await, operator).await,
        KeyCommand::Resume(key) => {
            changed(&key, async |id| client.resume_key(id, None).await, operator).await
        }
        KeyCommand::Deactivate(key) => {
            changed(&key, async |id| client.deactivate_key(id, None).await, operator).await
        }
        KeyCommand::Reactivate(key) => {
            changed(&key, async |id| client.reactivate_key(id, None).await, operator).await
        }
        KeyCommand::Rename { key, name } => {
            let name = Rename { name };
            changed(&key, async |id| client.rename_key(id, None, &name).await, operator).await
        }
        KeyCommand::SetLimit { key, daily } => {
            let limit = SetDailyLimit { daily_limit: daily.0 };
            changed(&key, async |id| client.set_daily_limit(id, &limit).await, operator).await
        }
        KeyCommand::Delete { key, yes } => delete(&key, yes, operator).await,
        KeyCommand::Usage(key) => usage(&key, operator).await,
        KeyCommand::Events(key) => events(&key, operator).await,
    }
}

async fn create(login: &str, new: NewKey, operator: &Operator) -> anyhow::Result<()> {
    let account = operator.account(login).await?;
    let created = operator.client.create_key(&account.id, &new).await;
    let created = created.map_err(|error| operator.explain(error, About::Account(login)))?;
    let view = KeyView::new(&created.key, Some(&account.login));
    operator.show(&view.with_secret(&created.secret), || key_view::created(&view, &created.secret))
}

async fn list(login: &str, operator: &Operator) -> anyhow::Result<()> {
    let account = operator.account(login).await?;
    let listed = operator.client.keys(&account.id).await;
    let keys = listed.map_err(|error| operator.explain(error, About::Account(login)))?.keys;
    let views: Vec<_> = keys.iter().map(|key| KeyView::new(key, Some(&account.login))).collect();
    operator.show(&json!({ "keys": views }), || key_view::list(&views))
}

/// Makes a change, if it is one, and shows the key as it is then.
async fn changed(
    key: &KeyArg,
    change: impl AsyncFnOnce(&str) -> Result<Key, ClientError>,
    operator: &Operator,
) -> anyhow::Result<()> {
    let id = key.id()?;
    let key = change(id).await.map_err(|error| operator.explain(error, About::Key(id)))?;
    let login = login_of(&key, operator).await;
    let view = KeyView::new(&key, login.as_deref());
    operator.show(&view, || key_view::details(&view))
}

/// The change is made by now: that the login can't be found must not look as if it were not.
async fn login_of(key: &Key, operator: &Operator) -> Option<String> {
    operator.client.account(&key.account).await.ok().map(|account| account.login)
}

async fn delete(key: &KeyArg, yes: Yes, operator: &Operator) -> anyhow::Result<()> {
    let id = key.id()?;
    yes.check()?;
    let explain = |error| operator.explain(error, About::Key(id));
    let key = operator.client.key(id, None).await.map_err(explain)?;
    let login = login_of(&key, operator).await;
    let view = KeyView::new(&key, login.as_deref());
    yes.ask(&format!("Delete the key {}, for good?", view.called()))?;
    operator.client.delete_key(id, None).await.map_err(explain)?;
    let deleted = json!({ "deleted": true, "id": id, "account": login, "name": key.name });
    operator.show(&deleted, || format!("Deleted the key {}.", view.called()))
}

async fn usage(key: &KeyArg, operator: &Operator) -> anyhow::Result<()> {
    let id = key.id()?;
    let explain = |error| operator.explain(error, About::Key(id));
    let key = operator.client.key(id, None).await.map_err(explain)?;
    let usage = operator.client.usage(id, None).await.map_err(explain)?;
    let object = json!({ "id": id, "daily_limit": key.daily_limit, "days": usage.days });
    operator.show(&object, || key_view::usage(&key, &usage.days))
}

async fn events(key: &KeyArg, operator: &Operator) -> anyhow::Result<()> {
    let id = key.id()?;
    let events = operator.client.events(id, None).await;
    let events = events.map_err(|error| operator.explain(error, About::Key(id)))?.events;
    operator.show(&json!({ "id": id, "events": events }), || key_view::events(&events))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daily_limit_is_a_number_or_the_default() {
        assert_eq!("default".parse(), Ok(DailyLimit(None)));
        assert_eq!("50000".parse(), Ok(DailyLimit(Some(50_000))));
        for wrong in ["0", "-1", "", "none", "4294967296"] {
            assert!(wrong.parse::<DailyLimit>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_key_in_place_of_its_id_is_refused_and_not_repeated() {
        let said = |id: &str| KeyArg { id: id.to_owned() }.id().unwrap_err().to_string();
        assert!(said("ipl_hush").contains("not its id"));
        for wrong in ["ipl_hush", "hush", "0123", "0123456789ABCDEF0123456789ABCDEF", "../hush"] {
            assert!(!said(wrong).contains("hush") && said(wrong).contains("key list"), "{wrong}");
        }
        assert!(KeyArg { id: "0123456789abcdef0123456789abcdef".to_owned() }.id().is_ok());
    }
}
