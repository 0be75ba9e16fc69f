//! UTC offsets of IANA timezones at a point in time, including daylight saving time.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// All timezones by name, each parsed on first use. A lookup takes no lock and reads no file, and its result does not
/// depend on the host's /usr/share/zoneinfo, which a distroless image may lack.
static ZONES: LazyLock<HashMap<String, OnceLock<Option<TimeZone>>>> = LazyLock::new(|| {
    TimeZoneDatabase::bundled().available().map(|name| (name.as_str().to_owned(), OnceLock::new())).collect()
});

/// Loads the timezone names now instead of during the first request.
pub(super) fn load_timezone_names() {
    LazyLock::force(&ZONES);
}

/// The UTC offset of `zone` in seconds at `now` (Unix seconds).
pub(super) fn offset(zone: &str, now: i64) -> Option<i32> {
    let timestamp = Timestamp::from_second(now).ok()?;
    Some(parsed(zone)?.to_offset(timestamp).seconds())
}

/// The first second after `now` at which the offset of `zone` may change; `i64::MAX` if it never does.
pub(super) fn next_change(zone: &str, now: i64) -> i64 {
    let change = || {
        let timestamp = Timestamp::from_second(now).ok()?;
        Some(parsed(zone)?.following(timestamp).next()?.timestamp().as_second())
    };
    change().unwrap_or(i64::MAX)
}

fn parsed(zone: &str) -> Option<&'static TimeZone> {
    let (name, parsed) = ZONES.get_key_value(zone)?;
    parsed.get_or_init(|| TimeZoneDatabase::bundled().get(name).ok()).as_ref()
}

/// Whether this looks like an IANA identifier. Some databases store "+02:00" instead.
pub(super) fn is_identifier(zone: &str) -> bool {
    ZONES.contains_key(zone) || looks_like_area_and_city(zone)
}

/// Accepts timezones that are newer than the bundled database.
fn looks_like_area_and_city(zone: &str) -> bool {
    let capitalized = |part: &str| part.starts_with(|c: char| c.is_ascii_uppercase());
    zone.len() <= 64
        && zone.split_once('/').is_some_and(|(area, city)| capitalized(area) && capitalized(city))
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
    fn offset_changes_at_exact_second() {
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
    fn only_names_like_iana_identifiers_are_accepted() {
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
    fn all_bundled_timezones_have_an_offset() {
        assert!(ZONES.len() > 500, "{}", ZONES.len());
        for zone in ZONES.keys() {
            assert!(offset(zone, JULY).is_some(), "{zone}");
        }
    }
}
