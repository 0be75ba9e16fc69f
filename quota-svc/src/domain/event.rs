//! What happened to a key, when and why, and how long that is kept.

use quota_client::wire::EventKind;

use super::time::MS_PER_DAY;

/// The most events kept for a key.
pub const MAX_EVENTS: usize = 100;

/// How long an event is shown.
pub const EVENT_LIFE_MS: i64 = 31 * MS_PER_DAY;

/// One event of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Unix time in milliseconds.
    pub at: i64,
    /// What happened.
    pub kind: EventKind,
    /// Why, for people.
    pub reason: String,
}

impl Event {
    /// `AT KIND REASON`: the line in which both stores keep it.
    pub fn to_line(&self) -> String {
        format!("{} {} {}", self.at, name(self.kind), self.reason)
    }

    /// Reads such a line; what this version does not know is `None`.
    pub fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.splitn(3, ' ');
        let at = parts.next()?.parse().ok()?;
        let kind = parts.next().and_then(kind_named)?;
        Some(Self { at, kind, reason: parts.next().unwrap_or_default().to_owned() })
    }

    /// Whether it is still shown at `now`.
    pub fn is_current(&self, now: i64) -> bool {
        now - self.at < EVENT_LIFE_MS
    }
}

/// The reason of a pause. `lua/charge.lua` writes the same words.
pub fn pause_reason(burst_limit: u32) -> String {
    format!("more than {burst_limit} requests within 60 seconds")
}

const NAMES: [(EventKind, &str); 8] = [
    (EventKind::Created, "created"),
    (EventKind::Imported, "imported"),
    (EventKind::Paused, "paused"),
    (EventKind::Resumed, "resumed"),
    (EventKind::Deactivated, "deactivated"),
    (EventKind::Reactivated, "reactivated"),
    (EventKind::Renamed, "renamed"),
    (EventKind::LimitChanged, "limit_changed"),
];

fn name(kind: EventKind) -> &'static str {
    NAMES.iter().find(|(k, _)| *k == kind).map_or("", |(_, name)| name)
}

fn kind_named(name: &str) -> Option<EventKind> {
    NAMES.iter().find(|(_, n)| *n == name).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_both_ways_for_every_kind() {
        for (kind, _) in NAMES {
            let event = Event { at: 1_700_000_000_000, kind, reason: "because of that".to_owned() };
            assert_eq!(Event::from_line(&event.to_line()), Some(event));
        }
    }

    #[test]
    fn an_unknown_line_is_skipped() {
        for wrong in ["", "x paused y", "5 exploded y", "5"] {
            assert_eq!(Event::from_line(wrong), None, "{wrong}");
        }
    }
}
