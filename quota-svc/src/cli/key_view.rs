//! Formats keys for the command line, as JSON or tables, with the login of their account.

use comfy_table::{Cell, Color};
use quota_api::{DayUsage, Event, Key, KeyState, Scope, UnreadableKey};
use serde::Serialize;

use super::table::{cell, number, table, text, time, with_commas};

/// Width of the bar for the day with the most requests.
const BAR_WIDTH: u64 = 40;

/// The JSON output for a key. Times are Unix milliseconds, as in the internal API.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct KeyView<'a> {
    id: &'a str,
    /// The account's login.
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

/// The JSON output for a new key, with its secret.
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

    /// For messages: `laptop (ipl_abcd…wxyz) of ada`.
    pub fn label(&self) -> String {
        let owner = self.account.unwrap_or(self.account_id);
        cell(format!("{} ({}) of {owner}", self.name, self.hint)).content()
    }

    fn usage_today(&self) -> String {
        format!("{} of {}", with_commas(self.used_today), with_commas(self.daily_limit))
    }
}

/// All fields of a key.
pub(super) fn details(key: &KeyView<'_>) -> String {
    let mut rows = table(&[]);
    let mut row = |name: &str, value: Cell| {
        rows.add_row([Cell::new(name), value]);
    };
    row("id", cell(key.id));
    row("account", cell(key.account.unwrap_or(key.account_id)));
    row("name", cell(key.name));
    row("key", cell(key.hint));
    row("scope", Cell::new(scope(key.scope)));
    row("state", state(key.state, &format!(" since {}", time(key.state_since))));
    row("today", Cell::new(key.usage_today()));
    row(
        "burst limit",
        Cell::new(format!("{} per minute; one more pauses the key", with_commas(key.burst_limit))),
    );
    row("created", Cell::new(time(key.created_at)));
    let id = key.id;
    let next = match key.state {
        KeyState::Active => String::new(),
        KeyState::Paused => {
            format!("\n\nThe key exceeded the burst limit. To resume it: quota-svc key resume {id}")
        }
        KeyState::Inactive => format!("\n\nTo reactivate it: quota-svc key reactivate {id}"),
    };
    text(&rows) + &next
}

pub(super) fn created(key: &KeyView<'_>, secret: &str) -> String {
    let note = "Save this key now. It can't be shown again.";
    format!("Created a key:\n\n    {secret}\n\n{note}\n\n{}", details(key))
}

pub(super) fn list(keys: &[KeyView<'_>], unreadable: &[UnreadableKey]) -> String {
    match (keys, unreadable) {
        (keys, []) => readable_list(keys),
        ([], unreadable) => unreadable_list(unreadable),
        (keys, unreadable) => format!("{}\n\n{}", readable_list(keys), unreadable_list(unreadable)),
    }
}

fn unreadable_list(keys: &[UnreadableKey]) -> String {
    let mut rows = table(&["unreadable id", "name", "key", "reason"]);
    for key in keys {
        let [name, hint] = [&key.name, &key.hint].map(|value| cell(value.as_deref().unwrap_or("?")));
        rows.add_row([cell(&key.id), name, hint, cell(&key.reason)]);
    }
    let note =
        "These keys can't be read, and requests with them fail. To delete one: quota-svc key delete ID";
    format!("{}\n\n{note}", text(&rows))
}

fn readable_list(keys: &[KeyView<'_>]) -> String {
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
            Cell::new(key.usage_today()),
        ]);
    }
    text(&rows)
}

/// A table with the requests of each day and a bar chart.
pub(super) fn usage(key: &Key, days: &[DayUsage]) -> String {
    let most = days.iter().map(|day| day.requests).max().unwrap_or(0).max(1);
    let mut rows = table(&["day", "requests", ""]);
    for DayUsage { day, requests } in days {
        // Rounded up, so that a day with few requests still has a bar.
        let length = (u64::from(*requests) * BAR_WIDTH).div_ceil(u64::from(most));
        rows.add_row([cell(day), number(*requests), Cell::new("▇".repeat(length as usize))]);
    }
    format!("{}\n\ntoday: {}", text(&rows), KeyView::new(key, None).usage_today())
}

pub(super) fn events(events: &[Event]) -> String {
    if events.is_empty() {
        return "No events in the last 31 days.".to_owned();
    }
    let mut rows = table(&["time", "event", "reason"]);
    for event in events {
        rows.add_row([
            cell(time(event.at)),
            cell(json_name(&event.kind).replace('_', " ")),
            cell(&event.reason),
        ]);
    }
    text(&rows)
}

fn state(state: KeyState, since: &str) -> Cell {
    let color = match state {
        KeyState::Active => Color::Green,
        KeyState::Paused => Color::Yellow,
        KeyState::Inactive => Color::DarkGrey,
    };
    Cell::new(json_name(&state) + since).fg(color)
}

fn scope(scope: Scope) -> String {
    json_name(&scope)
}

/// The value as in JSON, so that text and JSON output use the same words.
fn json_name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}
