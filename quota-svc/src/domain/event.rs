//! The history of a key: its events, their stored form and how long they are shown.

use super::time::MS_PER_DAY;

/// Maximum number of events stored per key.
pub const MAX_EVENTS: usize = 100;

/// Events older than this are not shown.
pub const EVENT_TTL_MS: i64 = 31 * MS_PER_DAY;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Created,
    Imported,
    Paused,
    Resumed,
    Deactivated,
    Reactivated,
    Renamed,
    LimitChanged,
}

/// Who makes a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// The owner of the account, in the dashboard.
    Owner,
    /// The operator of the service, on the command line.
    Operator,
    /// The service itself.
    System,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Unix time in milliseconds.
    pub at: i64,
    pub kind: EventKind,
    /// Human-readable.
    pub reason: String,
}

impl Event {
    /// `AT KIND REASON`: the format in both stores.
    pub fn to_line(&self) -> String {
        format!("{} {} {}", self.at, self.kind.as_str(), self.reason)
    }

    /// Parses a stored line; `None` if it is malformed or of an unknown kind.
    pub fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.splitn(3, ' ');
        let at = parts.next()?.parse().ok()?;
        let kind = parts.next().and_then(EventKind::parse)?;
        Some(Self { at, kind, reason: parts.next().unwrap_or_default().to_owned() })
    }

    /// The events in stored lines that are still shown at `now`.
    pub fn current(lines: &[String], now: i64) -> Vec<Self> {
        let events = lines.iter().filter_map(|line| Self::from_line(line));
        events.filter(|event| now - event.at < EVENT_TTL_MS).collect()
    }
}

/// The reason of a `paused` event. `lua/charge.lua` writes the same text.
pub fn pause_reason(burst_limit: u32) -> String {
    with_actor(&format!("more than {burst_limit} requests within 60 seconds"), Some(Actor::System))
}

/// Appends who acted to an event's reason. Callers of the first version don't name the actor. It comes last, so that a
/// key's name can't imitate it.
pub fn with_actor(reason: &str, actor: Option<Actor>) -> String {
    match actor {
        Some(Actor::Owner) => format!("{reason} (by the owner)"),
        Some(Actor::Operator) => format!("{reason} (by the operator)"),
        Some(Actor::System) => format!("{reason} (by the system)"),
        None => reason.to_owned(),
    }
}

const KIND_NAMES: [(EventKind, &str); 8] = [
    (EventKind::Created, "created"),
    (EventKind::Imported, "imported"),
    (EventKind::Paused, "paused"),
    (EventKind::Resumed, "resumed"),
    (EventKind::Deactivated, "deactivated"),
    (EventKind::Reactivated, "reactivated"),
    (EventKind::Renamed, "renamed"),
    (EventKind::LimitChanged, "limit_changed"),
];

impl EventKind {
    /// The name in a stored line.
    pub fn as_str(self) -> &'static str {
        KIND_NAMES.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    fn parse(text: &str) -> Option<Self> {
        KIND_NAMES.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_kind_round_trips() {
        for (kind, _) in KIND_NAMES {
            let event = Event { at: 1_700_000_000_000, kind, reason: "some reason text".to_owned() };
            assert_eq!(Event::from_line(&event.to_line()), Some(event));
        }
    }

    #[test]
    fn malformed_event_line_is_skipped() {
        for line in ["", "x paused y", "5 exploded y", "5"] {
            assert_eq!(Event::from_line(line), None, "{line}");
        }
    }
}
