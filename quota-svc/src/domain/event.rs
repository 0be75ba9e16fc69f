//! The history of a key or an account: the events, their stored form and how long they are shown.

use quota_api::{Actor, Event, EventKind};

use super::time::MS_PER_DAY;

pub const MAX_EVENTS: usize = 100;

/// Events older than this are not shown.
pub const EVENT_TTL_MS: i64 = 31 * MS_PER_DAY;

/// `AT KIND REASON`: the format in both stores.
pub fn to_line(event: &Event) -> String {
    format!("{} {} {}", event.at, event.kind.as_str(), event.reason)
}

/// Parses a stored line; `None` if it is malformed or of an unknown kind.
fn from_line(line: &str) -> Option<Event> {
    let mut parts = line.splitn(3, ' ');
    let at = parts.next()?.parse().ok()?;
    let kind = parts.next()?;
    let kind = EventKind::ALL.iter().copied().find(|known| known.as_str() == kind)?;
    Some(Event { at, kind, reason: parts.next().unwrap_or_default().to_owned() })
}

/// The events in stored lines that are still shown at `now`.
pub fn current(lines: &[String], now: i64) -> Vec<Event> {
    lines.iter().filter_map(|line| from_line(line)).filter(|event| is_current(event, now)).collect()
}

pub fn is_current(event: &Event, now: i64) -> bool {
    now - event.at < EVENT_TTL_MS
}

/// The reason of a `paused` event. `lua/charge.lua` writes the same text.
pub fn pause_reason(burst_limit: u16) -> String {
    with_actor(&format!("more than {burst_limit} requests within 60 seconds"), &Actor::System)
}

/// Appends who acted to an event's reason. It comes last, so that a key's name can't imitate it.
pub fn with_actor(reason: &str, actor: &Actor) -> String {
    match actor {
        Actor::Admin(login) => format!("{reason} (by admin {login})"),
        other => format!("{reason} (by the {other})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_kind_round_trips() {
        for kind in EventKind::ALL.iter().copied() {
            let event = Event { at: 1_700_000_000_000, kind, reason: "some reason text".to_owned() };
            assert_eq!(from_line(&to_line(&event)), Some(event));
        }
    }

    #[test]
    fn malformed_event_line_is_skipped() {
        for line in ["", "x paused y", "5 exploded y", "5"] {
            assert_eq!(from_line(line), None, "{line}");
        }
    }
}
