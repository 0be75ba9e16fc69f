//! Formats keys for the command line, as JSON or tables, with the login of their account.

use std::time::UNIX_EPOCH;

use comfy_table::{Cell, Color};
use quota_api::{Account, DayUsage, Event, Key, KeyList, KeyState, OwnedKey, UnreadableKey};
use serde::Serialize;

use super::table::{cell, number, table, time, with_commas};

/// Width of the bar for the day with the most requests.
const BAR_WIDTH: u64 = 40;

/// A key with its account. Also the JSON output: times are Unix milliseconds, as in the internal API.
#[derive(Clone, Copy, Serialize)]
pub(super) struct KeyView<'a> {
    #[serde(flatten)]
    pub key: &'a Key,
    pub account_id: &'a str,
    /// The account's login, if it is known.
    pub account: Option<&'a str>,
}

impl<'a> KeyView<'a> {
    pub fn of(owned: &'a OwnedKey, login: Option<&'a str>) -> Self {
        Self { key: &owned.key, account_id: &owned.account, account: login }
    }

    /// For messages: `laptop (ipl_abcd…wxyz) of ada`.
    pub fn label(self) -> String {
        let Key { settings, hint, .. } = self.key;
        cell(format!("{} ({hint}) of {}", settings.name, self.owner())).content()
    }

    fn owner(self) -> &'a str {
        self.account.unwrap_or(self.account_id)
    }
}

/// When a key expires, and whether that was in the past.
fn expiry(at: Option<u32>) -> String {
    let Some(at) = at else { return "never".to_owned() };
    let is_over = UNIX_EPOCH.elapsed().is_ok_and(|now| now.as_secs() >= u64::from(at));
    format!("{}{}", time(i64::from(at) * 1000), if is_over { " (expired)" } else { "" })
}

fn usage_today(key: &Key) -> String {
    format!("{} of {}", with_commas(key.used_today), with_commas(key.daily_limit))
}

pub(super) fn details(view: KeyView<'_>, program: &str) -> String {
    let key = view.key;
    let mut rows = table(&[]);
    let mut row = |name: &str, value: Cell| {
        rows.add_row([Cell::new(name), value]);
    };
    row("id", cell(&key.id));
    row("account", cell(view.owner()));
    row("name", cell(&key.settings.name));
    row("key", cell(&key.hint));
    row("scope", Cell::new(key.settings.scope.as_str()));
    row("state", state(key, &format!(" since {}", time(key.state_since))));
    row("today", Cell::new(usage_today(key)));
    row(
        "burst limit",
        Cell::new(format!("{} per minute; one more pauses the key", with_commas(key.burst_limit))),
    );
    row("created", Cell::new(time(key.created_at)));
    row("expires", Cell::new(expiry(key.settings.expires_at)));
    if let Some(successor) = &key.successor {
        row("replaced by", cell(successor));
    }
    if !key.settings.allowed_origins.is_empty() {
        row("origins", cell(key.settings.allowed_origins.join("\n")));
    }
    let id = &key.id;
    let next = match key.state {
        KeyState::Active => String::new(),
        KeyState::Paused => {
            format!("\n\nThe key exceeded the burst limit. To resume it: {program} key resume {id}")
        }
        KeyState::Inactive => format!("\n\nTo reactivate it: {program} key reactivate {id}"),
    };
    rows.trim_fmt() + &next
}

pub(super) fn created(view: KeyView<'_>, secret: &str, program: &str) -> String {
    let note = "Save this key now. It can't be shown again.";
    format!("Created a key:\n\n    {secret}\n\n{note}\n\n{}", details(view, program))
}

pub(super) fn list(keys: &[Key], unreadable: &[UnreadableKey], program: &str) -> String {
    match (keys, unreadable) {
        (keys, []) => readable_list(keys, program),
        ([], unreadable) => unreadable_list(unreadable, program),
        (keys, unreadable) => {
            format!("{}\n\n{}", readable_list(keys, program), unreadable_list(unreadable, program))
        }
    }
}

/// A part of the list of all keys. All columns before the account have a fixed width, so that parts align.
pub(super) fn page(views: &[KeyView<'_>], first: bool) -> String {
    let mut rows = table(if first {
        &["id", "key", "scope", "state", "created", "today", "account", "name"]
    } else {
        &[]
    });
    for view in views {
        let key = view.key;
        rows.add_row([
            cell(&key.id),
            cell(&key.hint),
            // Padded to the width of the heading and of the longest name.
            Cell::new(format!("{:5}", key.settings.scope.as_str())),
            state(key, &" ".repeat("suspended".len().saturating_sub(state_name(key).len()))),
            cell(time(key.created_at)),
            Cell::new(format!("{:>10}", with_commas(key.used_today))),
            cell(view.owner()),
            cell(&key.settings.name),
        ]);
    }
    rows.trim_fmt()
}

pub(super) fn account(account: &Account, keys: &KeyList, program: &str) -> String {
    format!("{}\n\n{}", account_details(account), list(&keys.keys, &keys.unreadable, program))
}

pub(super) fn account_details(account: &Account) -> String {
    let mut rows = table(&[]);
    let sign_in = if account.credential_version > 0 { "yes" } else { "no: the account has no password" };
    rows.add_row([Cell::new("id"), cell(&account.id)]);
    rows.add_row([Cell::new("login"), cell(&account.login)]);
    rows.add_row([Cell::new("created"), cell(time(account.created_at))]);
    rows.add_row([Cell::new("sign-in"), cell(sign_in)]);
    rows.add_row([Cell::new("role"), cell(account.role.as_str())]);
    if let Some(suspension) = &account.suspension {
        let since = format!("since {}: {}", time(suspension.at), suspension.reason);
        rows.add_row([Cell::new("suspended"), cell(since).fg(Color::Red)]);
    }
    rows.trim_fmt()
}

pub(super) fn unreadable_list(keys: &[UnreadableKey], program: &str) -> String {
    let mut rows = table(&["unreadable id", "name", "key", "reason"]);
    for key in keys {
        let [name, hint] = [&key.name, &key.hint].map(|value| cell(value.as_deref().unwrap_or("?")));
        rows.add_row([cell(&key.id), name, hint, cell(&key.reason)]);
    }
    let note = format!(
        "These keys can't be read, and requests with them fail. To delete one: {program} key delete ID"
    );
    format!("{}\n\n{note}", rows.trim_fmt())
}

fn readable_list(keys: &[Key], program: &str) -> String {
    if keys.is_empty() {
        return format!(
            "No keys. To create one: {program} key create --account LOGIN --name NAME --scope full"
        );
    }
    let mut rows = table(&["id", "name", "key", "scope", "state", "since", "today", "expires"]);
    for key in keys {
        rows.add_row([
            cell(&key.id),
            cell(&key.settings.name),
            cell(&key.hint),
            Cell::new(key.settings.scope.as_str()),
            state(key, ""),
            Cell::new(time(key.state_since)),
            Cell::new(usage_today(key)),
            Cell::new(expiry(key.settings.expires_at)),
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
            cell(event.kind.as_str().replace('_', " ")),
            cell(&event.reason),
        ]);
    }
    rows.trim_fmt()
}

fn state_name(key: &Key) -> &'static str {
    if key.suspended { "suspended" } else { key.state.as_str() }
}

fn state(key: &Key, since: &str) -> Cell {
    let color = match key.state {
        _ if key.suspended => Color::Red,
        KeyState::Active => Color::Green,
        KeyState::Paused => Color::Yellow,
        KeyState::Inactive => Color::DarkGrey,
    };
    Cell::new(format!("{}{since}", state_name(key))).fg(color)
}
