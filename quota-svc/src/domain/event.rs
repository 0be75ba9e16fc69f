//! The history of a key or an account: the events, their stored form and how long they are shown.

use std::cmp::Reverse;

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

/// The events of a key that are shown at `now`, newest first: those in its stored lines, which are newest first, too, and that
/// of its `pause`, which is stored only when the pause ends.
pub fn shown(lines: &[String], pause: Option<Event>, now: i64) -> Vec<Event> {
    // The lines may be read after the pause has ended.
    let pause = pause.filter(|event| !lines.contains(&to_line(event)));
    let events = pause.into_iter().chain(lines.iter().filter_map(|line| from_line(line)));
    let mut events: Vec<_> = events.filter(|event| is_current(event, now)).collect();
    events.sort_by_key(|event| Reverse(event.at));
    events.truncate(MAX_EVENTS);
    events
}

pub fn is_current(event: &Event, now: i64) -> bool {
    now - event.at < EVENT_TTL_MS
}

/// The reason of a `paused` event.
pub fn pause_reason(burst_limit: u16) -> String {
    with_actor(&format!("more than {burst_limit} requests within 60 seconds"), &Actor::System)
}

/// Appends who acted to an event's reason. It comes last, so that a key's name can't imitate it.
pub fn with_actor(reason: &str, actor: &Actor) -> String {
    match actor {
        Actor::Owner => format!("{reason} (by the owner)"),
        Actor::Operator => format!("{reason} (by the operator)"),
        Actor::System => format!("{reason} (by the system)"),
        Actor::Admin(login) => format!("{reason} (by admin {login})"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::AccountValue;
    use super::super::value::tests::{NOW, id, pause, with_keys};
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

    #[test]
    fn events_are_shown_by_time_with_the_pause_that_has_not_ended() {
        let mut value = with_keys(1);
        let renamed = |at: i64, name: &str| format!("{at} renamed {name}");
        let lines =
            [renamed(NOW + 7, "d"), renamed(NOW + 3, "c"), renamed(NOW + 5, "b"), renamed(NOW + 5, "a")];
        let shown = |value: &AccountValue, lines: &[String]| {
            let events = shown(lines, value.key(id(1)).unwrap().pause_event(), NOW + 9);
            events.into_iter().map(|event| (event.at - NOW, event.reason)).collect::<Vec<_>>()
        };
        let [a, b, c, d] = [(5, "a"), (5, "b"), (3, "c"), (7, "d")].map(|(at, name)| (at, name.to_owned()));
        assert_eq!(shown(&value, &lines), [d.clone(), b.clone(), a.clone(), c.clone()]);
        pause(&mut value, 1, NOW + 5);
        let reason = "more than 2 requests within 60 seconds (by the system)";
        let paused = (5, reason.to_owned());
        assert_eq!(shown(&value, &lines), [d, paused.clone(), b, a, c]);
        let stored = format!("{} paused {reason}", NOW + 5);
        assert_eq!(shown(&value, &[stored]), [paused], "the key was read before the pause ended");
    }

    #[test]
    fn old_events_and_those_beyond_a_hundred_are_not_shown() {
        let value = with_keys(1);
        let shown = |lines: &[String], now| shown(lines, value.key(id(1)).unwrap().pause_event(), now);
        let lines = [format!("{NOW} renamed x")];
        assert_eq!(shown(&lines, NOW + EVENT_TTL_MS - 1).len(), 1);
        assert_eq!(shown(&lines, NOW + EVENT_TTL_MS), []);
        let mut paused = value.clone();
        pause(&mut paused, 1, NOW);
        assert_eq!(super::shown(&[], paused.key(id(1)).unwrap().pause_event(), NOW + EVENT_TTL_MS), []);
        let lines: Vec<_> = (0..101).map(|n| format!("{} renamed x", NOW - n)).collect();
        let last = shown(&lines, NOW).last().map(|event| event.at);
        assert_eq!((shown(&lines, NOW).len(), last), (MAX_EVENTS, Some(NOW - 99)));
    }
}
