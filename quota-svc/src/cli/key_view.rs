//! Formats keys for the command line, as JSON or tables, with the login of their account.

use comfy_table::{Cell, Color};
use quota_api::{DayUsage, Event, Key, KeyState, UnreadableKey};
use serde::Serialize;
use serde_json::{Value, json};

use super::table::{cell, number, table, time, with_commas};

/// Width of the bar for the day with the most requests.
const BAR_WIDTH: u64 = 40;

/// A key with the login of its account, if that is known.
#[derive(Clone, Copy)]
pub(super) struct KeyView<'a> {
    pub key: &'a Key,
    pub login: Option<&'a str>,
}

impl<'a> KeyView<'a> {
    /// The JSON output. Times are Unix milliseconds, as in the internal API.
    pub fn json(self) -> Value {
        let mut object = json!(self.key);
        object["account_id"] = object["account"].take();
        object["account"] = json!(self.login);
        object
    }

    /// For messages: `laptop (ipl_abcd…wxyz) of ada`.
    pub fn label(self) -> String {
        let Key { name, hint, .. } = self.key;
        cell(format!("{name} ({hint}) of {}", self.owner())).content()
    }

    fn owner(self) -> &'a str {
        self.login.unwrap_or(&self.key.account)
    }
}

fn usage_today(key: &Key) -> String {
    format!("{} of {}", with_commas(key.used_today), with_commas(key.daily_limit))
}

/// All fields of a key.
pub(super) fn details(view: KeyView<'_>) -> String {
    let key = view.key;
    let mut rows = table(&[]);
    let mut row = |name: &str, value: Cell| {
        rows.add_row([Cell::new(name), value]);
    };
    row("id", cell(&key.id));
    row("account", cell(view.owner()));
    row("name", cell(&key.name));
    row("key", cell(&key.hint));
    row("scope", Cell::new(json_name(&key.scope)));
    row("state", state(key.state, &format!(" since {}", time(key.state_since))));
    row("today", Cell::new(usage_today(key)));
    row(
        "burst limit",
        Cell::new(format!("{} per minute; one more pauses the key", with_commas(key.burst_limit))),
    );
    row("created", Cell::new(time(key.created_at)));
    let id = &key.id;
    let next = match key.state {
        KeyState::Active => String::new(),
        KeyState::Paused => {
            format!("\n\nThe key exceeded the burst limit. To resume it: quota-svc key resume {id}")
        }
        KeyState::Inactive => format!("\n\nTo reactivate it: quota-svc key reactivate {id}"),
    };
    rows.trim_fmt() + &next
}

pub(super) fn created(view: KeyView<'_>, secret: &str) -> String {
    let note = "Save this key now. It can't be shown again.";
    format!("Created a key:\n\n    {secret}\n\n{note}\n\n{}", details(view))
}

pub(super) fn list(keys: &[Key], unreadable: &[UnreadableKey]) -> String {
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
    format!("{}\n\n{note}", rows.trim_fmt())
}

fn readable_list(keys: &[Key]) -> String {
    if keys.is_empty() {
        return "No keys. To create one: quota-svc key create --account LOGIN --name NAME --scope full"
            .to_owned();
    }
    let mut rows = table(&["id", "name", "key", "scope", "state", "since", "today"]);
    for key in keys {
        rows.add_row([
            cell(&key.id),
            cell(&key.name),
            cell(&key.hint),
            Cell::new(json_name(&key.scope)),
            state(key.state, ""),
            Cell::new(time(key.state_since)),
            Cell::new(usage_today(key)),
        ]);
    }
    rows.trim_fmt()
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
    format!("{}\n\ntoday: {}", rows.trim_fmt(), usage_today(key))
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
    rows.trim_fmt()
}

fn state(state: KeyState, since: &str) -> Cell {
    let color = match state {
        KeyState::Active => Color::Green,
        KeyState::Paused => Color::Yellow,
        KeyState::Inactive => Color::DarkGrey,
    };
    Cell::new(json_name(&state) + since).fg(color)
}

/// The value as in JSON, so that text and JSON output use the same words.
fn json_name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
    }
}
