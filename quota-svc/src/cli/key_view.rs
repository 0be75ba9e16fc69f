//! Keys as commands show them: with their account's login, in JSON or in tables.

use comfy_table::{Cell, Color};
use quota_client::wire::{DayUsage, Event, Key, KeyState, Scope};
use serde::Serialize;

use super::table::{cell, count, number, table, text, time};

/// The longest bar of a day's usage.
const BAR: u64 = 40;

/// A key as commands print it. Times are Unix milliseconds, as in the internal API.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct KeyView<'a> {
    id: &'a str,
    /// The login: what operators know an account by.
    account: Option<&'a str>,
    account_id: &'a str,
    name: &'a str,
    hint: &'a str,
    scope: Scope,
    state: KeyState,
    state_since: i64,
    created_at: i64,
    daily_limit: u32,
    burst_limit: u32,
    used_today: u32,
}

/// A key just created, with the key itself.
#[derive(Serialize)]
pub(super) struct WithSecret<'a> {
    key: &'a str,
    #[serde(flatten)]
    view: KeyView<'a>,
}

impl<'a> KeyView<'a> {
    pub fn new(key: &'a Key, login: Option<&'a str>) -> Self {
        Self {
            id: &key.id,
            account: login,
            account_id: &key.account,
            name: &key.name,
            hint: &key.hint,
            scope: key.scope,
            state: key.state,
            state_since: key.state_since,
            created_at: key.created_at,
            daily_limit: key.daily_limit,
            burst_limit: key.burst_limit,
            used_today: key.used_today,
        }
    }

    pub fn with_secret(self, secret: &'a str) -> WithSecret<'a> {
        WithSecret { key: secret, view: self }
    }

    /// For a sentence: `laptop (ipl_abcd…wxyz) of ada`.
    pub fn called(&self) -> String {
        let owner = self.account.unwrap_or(self.account_id);
        cell(format!("{} ({}) of {owner}", self.name, self.hint)).content()
    }

    fn use_of_limit(&self) -> String {
        format!("{} of {}", count(self.used_today), count(self.daily_limit))
    }
}

/// All facts of one key.
pub(super) fn details(key: &KeyView<'_>) -> String {
    let mut rows = table(&[]);
    let mut fact = |name: &str, value: Cell| {
        rows.add_row([Cell::new(name), value]);
    };
    fact("id", cell(key.id));
    fact("account", cell(key.account.unwrap_or(key.account_id)));
    fact("name", cell(key.name));
    fact("key", cell(key.hint));
    fact("scope", Cell::new(scope(key.scope)));
    fact("state", state(key.state, &format!(" since {}", time(key.state_since))));
    fact("today", Cell::new(key.use_of_limit()));
    fact("a minute", Cell::new(format!("at most {}; one more pauses the key", count(key.burst_limit))));
    fact("created", Cell::new(time(key.created_at)));
    let id = key.id;
    let next = match key.state {
        KeyState::Active => String::new(),
        KeyState::Paused => {
            format!("\n\nIt exceeded the burst limit. To resume it: quota-svc key resume {id}")
        }
        KeyState::Inactive => format!("\n\nTo bring it back: quota-svc key reactivate {id}"),
    };
    text(&rows) + &next
}

/// A new key, shown this once.
pub(super) fn created(key: &KeyView<'_>, secret: &str) -> String {
    let note =
        "This is the only time the key is shown: quota-svc keeps no copy of it. Put it where it belongs now.";
    format!("Created a key:\n\n    {secret}\n\n{note}\n\n{}", details(key))
}

/// The keys of an account.
pub(super) fn list(keys: &[KeyView<'_>]) -> String {
    if keys.is_empty() {
        return "No keys. To create one: quota-svc key create --account LOGIN --name NAME --scope full"
            .to_owned();
    }
    let mut rows = table(&["id", "name", "key", "scope", "state", "since", "today"]);
    for key in keys {
        rows.add_row([
            cell(key.id),
            cell(key.name),
            cell(key.hint),
            Cell::new(scope(key.scope)),
            state(key.state, ""),
            Cell::new(time(key.state_since)),
            Cell::new(key.use_of_limit()),
        ]);
    }
    text(&rows)
}

/// Requests by day, with a bar for each.
pub(super) fn usage(key: &Key, days: &[DayUsage]) -> String {
    let most = days.iter().map(|day| day.requests).max().unwrap_or(0).max(1);
    let mut rows = table(&["day", "requests", ""]);
    for DayUsage { day, requests } in days {
        // A day with any request shows at least a sliver.
        let length = (u64::from(*requests) * BAR).div_ceil(u64::from(most));
        rows.add_row([cell(day), number(*requests), Cell::new("▇".repeat(length as usize))]);
    }
    format!("{}\n\ntoday: {}", text(&rows), KeyView::new(key, None).use_of_limit())
}

/// What happened to a key.
pub(super) fn events(events: &[Event]) -> String {
    if events.is_empty() {
        return "Nothing in the last 31 days.".to_owned();
    }
    let mut rows = table(&["time", "event", "why"]);
    for event in events {
        rows.add_row([cell(time(event.at)), cell(word(&event.kind).replace('_', " ")), cell(&event.reason)]);
    }
    text(&rows)
}

fn state(state: KeyState, since: &str) -> Cell {
    let colour = match state {
        KeyState::Active => Color::Green,
        KeyState::Paused => Color::Yellow,
        KeyState::Inactive => Color::DarkGrey,
    };
    Cell::new(word(&state) + since).fg(colour)
}

fn scope(scope: Scope) -> String {
    word(&scope)
}

/// The word that a value has on the wire, so that people and programs read the same.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
