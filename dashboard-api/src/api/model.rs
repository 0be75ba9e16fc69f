//! What the API shows and takes, where quota-svc's own vocabulary shows too much or too little.

use poem_openapi::Object;
use quota_client::wire::{self, EventKind, KeyState, Scope};
use serde::{Deserialize, Serialize};

/// A login with its password.
#[derive(Object, Deserialize)]
#[oai(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// 1 to 254 characters without white space, such as an e-mail address; upper and lower case are the same.
    pub login: String,
    /// 8 to 1,024 characters.
    pub password: String,
}

/// A change of the password.
#[derive(Object, Deserialize)]
#[oai(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// The password until now.
    pub current_password: String,
    /// 8 to 1,024 characters.
    pub new_password: String,
}

/// The password once more, for what can't be undone.
#[derive(Object, Deserialize)]
#[oai(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// The account's password.
    pub password: String,
}

/// The account that is signed in.
#[derive(Object, Serialize)]
pub struct Account {
    /// What its owner signs in with.
    pub login: String,
    /// Unix time in milliseconds.
    pub created_at: i64,
}

impl From<wire::Account> for Account {
    fn from(account: wire::Account) -> Self {
        Self { login: account.login, created_at: account.created_at }
    }
}

/// What the page must know before anybody signs in.
#[derive(Object, Serialize)]
pub struct Settings {
    /// Whether visitors may create accounts.
    pub signup: bool,
    /// The lookup API's public address.
    pub lookup_url: String,
    /// The documentation.
    pub docs_url: String,
    /// How many keys an account may hold.
    pub keys_per_account: u32,
    /// What the licences of the geo data ask to be shown.
    pub attribution: Vec<Link>,
}

/// A text that leads somewhere.
#[derive(Object, Serialize)]
pub struct Link {
    /// What is shown.
    pub text: String,
    /// Where it leads.
    pub url: String,
}

/// A key to create.
#[derive(Object, Deserialize)]
#[oai(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// What you call it: 1 to 64 characters, need not be unique.
    pub name: String,
    /// What it may see.
    pub scope: Scope,
}

/// A key.
#[derive(Object, Serialize)]
#[oai(skip_serializing_if_is_none)]
pub struct Key {
    /// 32 hexadecimal digits.
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// The key's first and last characters, as in `ipl_abcd…wxyz`.
    pub hint: String,
    /// What it may see.
    pub scope: Scope,
    /// Where it is in its life.
    pub state: KeyState,
    /// Since when: Unix time in milliseconds.
    pub state_since: i64,
    /// When and why it was paused; only while it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Unix time in milliseconds.
    pub created_at: i64,
    /// Requests a day.
    pub daily_limit: u32,
    /// Requests a minute; one more pauses the key.
    pub burst_limit: u32,
    /// Requests charged today (UTC).
    pub used_today: u32,
}

/// A pause.
#[derive(Object, Serialize)]
pub struct Pause {
    /// Unix time in milliseconds.
    pub at: i64,
    /// Why, for people.
    pub reason: String,
}

impl Key {
    /// A key with the reason of its pause, which is in its events.
    pub fn new(key: wire::Key, events: &[wire::Event]) -> Self {
        let pause = (key.state == KeyState::Paused).then(|| {
            let event = events.iter().find(|event| event.kind == EventKind::Paused);
            // Events are kept for 31 days, a pause for as long as it lasts.
            let known = || format!("more than {} requests within 60 seconds", key.burst_limit);
            Pause { at: key.state_since, reason: event.map_or_else(known, |event| event.reason.clone()) }
        });
        Self {
            id: key.id,
            name: key.name,
            hint: key.hint,
            scope: key.scope,
            state: key.state,
            state_since: key.state_since,
            pause,
            created_at: key.created_at,
            daily_limit: key.daily_limit,
            burst_limit: key.burst_limit,
            used_today: key.used_today,
        }
    }
}

/// The keys of the account.
#[derive(Object, Serialize)]
pub struct KeyList {
    /// Oldest first.
    pub keys: Vec<Key>,
}

/// A key just created: the only time the key itself is shown.
#[derive(Object, Serialize)]
pub struct CreatedKey {
    /// The API key. It is not stored and can't be shown again.
    pub secret: String,
    /// A command that tries it.
    pub curl: String,
    /// As it is listed from now on.
    pub key: Key,
}
