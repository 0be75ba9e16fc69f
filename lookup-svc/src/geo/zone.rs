//! UTC offsets of IANA time zones at a moment, daylight saving included.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Every zone by name, each parsed when it is first asked for: a look-up then takes no lock and reads no file, and the
/// answer does not depend on what the host or a distroless image has under /usr/share/zoneinfo.
static ZONES: LazyLock<HashMap<String, OnceLock<Option<TimeZone>>>> = LazyLock::new(|| {
    TimeZoneDatabase::bundled().available().map(|name| (name.as_str().to_owned(), OnceLock::new())).collect()
});

/// Lists the zones now, so that the first request need not.
pub(super) fn prepare() {
    LazyLock::force(&ZONES);
}

/// The offset from UTC in seconds that holds in `zone` at `now` (Unix seconds).
pub(super) fn offset(zone: &str, now: i64) -> Option<i32> {
    let moment = Timestamp::from_second(now).ok()?;
    Some(parsed(zone)?.to_offset(moment).seconds())
}

/// The first second after `now` in which another offset may hold in `zone`.
pub(super) fn next_change(zone: &str, now: i64) -> i64 {
    let change = || {
        let moment = Timestamp::from_second(now).ok()?;
        Some(parsed(zone)?.following(moment).next()?.timestamp().as_second())
    };
    change().unwrap_or(i64::MAX)
}

fn parsed(zone: &str) -> Option<&'static TimeZone> {
    let (name, parsed) = ZONES.get_key_value(zone)?;
    parsed.get_or_init(|| TimeZoneDatabase::bundled().get(name).ok()).as_ref()
}

/// Whether this may be shown as an IANA identifier: some databases write "+02:00" instead.
pub(super) fn is_identifier(zone: &str) -> bool {
    ZONES.contains_key(zone) || looks_like_area_and_city(zone)
}

/// A zone younger than our copy of the database is still a name worth showing.
fn looks_like_area_and_city(zone: &str) -> bool {
    let named = |part: &str| part.starts_with(|c: char| c.is_ascii_uppercase());
    zone.len() <= 64
        && zone.split_once('/').is_some_and(|(area, city)| named(area) && named(city))
        && zone.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_-+".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JANUARY: i64 = 1_768_478_400; // 2026-01-15T12:00:00Z
    const JULY: i64 = 1_784_116_800; // 2026-07-15T12:00:00Z

    #[test]
    fn offsets_follow_daylight_saving() {
        for (zone, winter, summer) in [
            ("Europe/Berlin", 3600, 7200),
            ("America/New_York", -18000, -14400),
            ("Australia/Sydney", 39600, 36000),
            ("Asia/Kolkata", 19800, 19800),
            ("Asia/Kathmandu", 20700, 20700),
            ("Australia/Lord_Howe", 39600, 37800),
            ("Europe/Dublin", 0, 3600),
            ("Etc/UTC", 0, 0),
        ] {
            assert_eq!(offset(zone, JANUARY), Some(winter), "{zone}");
            assert_eq!(offset(zone, JULY), Some(summer), "{zone}");
        }
    }

    #[test]
    fn the_change_happens_at_its_second() {
        let change = 1_774_746_000; // 2026-03-29T01:00:00Z
        assert_eq!(offset("Europe/Berlin", change - 1), Some(3600));
        assert_eq!(offset("Europe/Berlin", change), Some(7200));
        assert_eq!(next_change("Europe/Berlin", change - 86_400), change);
        assert_eq!(next_change("Europe/Berlin", change - 1), change);
        assert!(next_change("Europe/Berlin", change) > change);
        assert_eq!(next_change("Etc/UTC", change), i64::MAX);
        assert_eq!(next_change("Mars/Olympus_Mons", change), i64::MAX);
    }

    #[test]
    fn only_identifiers_pass() {
        for zone in ["Europe/Berlin", "UTC", "America/Argentina/Buenos_Aires", "Mars/Olympus_Mons"] {
            assert!(is_identifier(zone), "{zone}");
        }
        for zone in ["+02:00", "", "UTC+2", "europe", "Europe/", "<b>/X"] {
            assert!(!is_identifier(zone), "{zone}");
        }
        assert_eq!(offset("Mars/Olympus_Mons", JULY), None);
        assert_eq!(offset("Europe/Berlin", i64::MAX), None);
    }

    #[test]
    fn the_whole_database_is_there() {
        assert!(ZONES.len() > 500, "{}", ZONES.len());
        for zone in ZONES.keys() {
            assert!(offset(zone, JULY).is_some(), "{zone}");
        }
    }
}
