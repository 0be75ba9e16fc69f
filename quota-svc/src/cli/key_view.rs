//! Formats keys for the command line, as JSON or tables, with the login of their account.

use std::time::UNIX_EPOCH;

use quota_api::{Account, DayUsage, Event, Key, KeyState, UnreadableKey};
use serde::Serialize;

use super::output::{attributes, table, time, with_commas, without_control_characters};

/// Width of the bar for the day with the most requests.
const BAR_WIDTH: u64 = 40;

/// The headings of [`KeyView::row`] in a list of all keys.
pub(super) const HEADINGS: [&str; 8] = ["id", "key", "scope", "state", "since", "today", "account", "name"];

/// A key with its account. Also the JSON output: times are Unix milliseconds, as in the internal API.
#[derive(Serialize)]
pub(super) struct KeyView {
    #[serde(flatten)]
    pub key: Key,
    pub account_id: String,
    /// The account's login, if it is known.
    pub account: Option<String>,
}

impl KeyView {
    pub fn new(key: Key, account: &Account) -> Self {
        Self { key, account_id: account.id.clone(), account: Some(account.login.clone()) }
    }

    /// For messages: `laptop (ipl_abcd…wxyz) of ada`.
    pub fn label(&self) -> String {
        let Key { settings, hint, .. } = &self.key;
        without_control_characters(format!("{} ({hint}) of {}", settings.name, self.owner()))
    }

    /// The account's login or, if it is not known, its ID.
    pub fn owner(&self) -> &str {
        self.account.as_ref().unwrap_or(&self.account_id)
    }

    pub fn details(&self, program: &str) -> String {
        let (key, settings) = (&self.key, &self.key.settings);
        let mut rows = vec![
            ("id", key.id.clone()),
            ("account", self.owner().to_owned()),
            ("name", settings.name.clone()),
            ("key", key.hint.clone()),
            ("scope", settings.scope.as_str().to_owned()),
            ("state", format!("{} since {}", state(key), time(key.state_since))),
            ("today", usage_today(key)),
            ("burst limit", format!("{} per minute; one more pauses the key", with_commas(key.burst_limit))),
            ("created", time(key.created_at)),
            ("expires", expiry(key)),
        ];
        rows.extend(key.successor.clone().map(|successor| ("replaced by", successor)));
        if !settings.allowed_origins.is_empty() {
            rows.push(("origins", settings.allowed_origins.join(", ")));
        }
        let next = match key.state {
            KeyState::Active => String::new(),
            KeyState::Paused => {
                format!("\n\nThe key exceeded the burst limit. To resume it: {program} key resume {}", key.id)
            }
            KeyState::Inactive => format!("\n\nTo reactivate it: {program} key reactivate {}", key.id),
        };
        attributes(rows) + &next
    }

    /// A row of a list, with this text before the name. All columns before it have a fixed width, so that pages align.
    pub fn row(&self, text: &str) -> [String; 8] {
        let key = &self.key;
        [
            key.id.clone(),
            key.hint.clone(),
            format!("{:5}", key.settings.scope.as_str()),
            format!("{:9}", state(key)),
            time(key.state_since),
            format!("{:>17}", usage_today(key)),
            text.to_owned(),
            key.settings.name.clone(),
        ]
    }
}

/// The keys of one or more accounts.
#[derive(Default, Serialize)]
pub(super) struct KeyViews {
    pub keys: Vec<KeyView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableKey>,
}

impl KeyViews {
    /// The text for the keys of one account.
    pub fn text(&self, program: &str) -> String {
        let mut parts = Vec::new();
        if !self.keys.is_empty() {
            let headings = HEADINGS.map(|heading| if heading == "account" { "expires" } else { heading });
            parts.push(table(&headings, self.keys.iter().map(|view| view.row(&expiry(&view.key)))));
        }
        if !self.unreadable.is_empty() {
            parts.push(unreadable_text(&self.unreadable, program));
        }
        if parts.is_empty() {
            let create = "key create --account LOGIN --name NAME --scope full";
            parts.push(format!("No keys. To create one: {program} {create}"));
        }
        parts.join("\n\n")
    }
}

pub(super) fn unreadable_text(keys: &[UnreadableKey], program: &str) -> String {
    let row = |UnreadableKey { id, name, hint, reason }: &UnreadableKey| {
        let [name, hint] = [name, hint].map(|text| text.clone().unwrap_or("?".to_owned()));
        [id.clone(), name, hint, reason.clone()]
    };
    let keys = table(&["unreadable id", "name", "key", "reason"], keys.iter().map(row));
    format!(
        "{keys}\n\nThese keys can't be read, and requests with them fail. To delete one: {program} key delete ID"
    )
}

/// A table with the requests of each day and a bar chart.
pub(super) fn usage_table(key: &Key, days: &[DayUsage]) -> String {
    let most = days.iter().map(|day| day.requests).max().unwrap_or(0).max(1);
    let row = |DayUsage { day, requests }: &DayUsage| {
        // Rounded up, so that a day with few requests still has a bar.
        let length = (u64::from(*requests) * BAR_WIDTH).div_ceil(u64::from(most));
        [day.clone(), format!("{:>8}", with_commas(*requests)), "▇".repeat(length as usize)]
    };
    let days = table(&["day", "requests", ""], days.iter().map(row));
    format!("{days}\n\ntoday: {}", usage_today(key))
}

/// The events of a key or an account.
pub(super) fn event_table(events: &[Event]) -> String {
    if events.is_empty() {
        return "No events in the last 31 days.".to_owned();
    }
    let row = |event: &Event| [time(event.at), event.kind.as_str().replace('_', " "), event.reason.clone()];
    table(&["time", "event", "reason"], events.iter().map(row))
}

/// When a key expires, and whether that was in the past.
fn expiry(key: &Key) -> String {
    let Some(at) = key.settings.expires_at else { return "never".to_owned() };
    let is_over = UNIX_EPOCH.elapsed().is_ok_and(|now| now.as_secs() >= u64::from(at));
    time(i64::from(at) * 1000) + if is_over { " (expired)" } else { "" }
}

fn usage_today(key: &Key) -> String {
    format!("{} of {}", with_commas(key.used_today), with_commas(key.daily_limit))
}

fn state(key: &Key) -> &'static str {
    if key.suspended { "suspended" } else { key.state.as_str() }
}
