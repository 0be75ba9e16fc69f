//! UTC offsets of IANA timezones at a point in time, including daylight saving time, and the timezone of a location whose
//! database has none.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

use base::watched_files;
use flate2::read::GzDecoder;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tzf_rs::EmbeddedFinder;

use crate::GeoError;
use crate::country::{self, Point};

/// In seconds.
const YEAR: i64 = 366 * 86_400;

/// Maximum size of a file in a directory. The largest one of a timezone has 4 KiB.
const FILE_LIMIT: u64 = 64 << 10;

/// How much is read of a file that starts with the version.
const VERSION_LIMIT: u64 = 128;

/// The only country with two of its own timezones in the same place (Xinjiang).
const OVERLAPPING: &str = "CN";

/// A TZif file for each timezone. `timezones.py` updates it.
const ARCHIVE: &[u8] = include_bytes!("../data/timezones.tar.gz");

/// The built-in data: its version, and the file of each timezone.
struct BuiltIn {
    version: Option<String>,
    files: HashMap<String, Vec<u8>>,
}

static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(|| {
    let mut files = unpack(ARCHIVE).expect("the built-in timezone data can be unpacked (tested)");
    let version = files.remove("+VERSION").and_then(|bytes| String::from_utf8(bytes).ok());
    BuiltIn { version, files }
});

fn unpack(archive: &[u8]) -> io::Result<HashMap<String, Vec<u8>>> {
    let mut files = HashMap::new();
    for entry in tar::Archive::new(GzDecoder::new(archive)).entries()? {
        let mut entry = entry?;
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        files.insert(entry.path()?.display().to_string(), bytes);
    }
    Ok(files)
}

/// The timezones of a directory, completed by the built-in ones, or only the built-in ones. A lookup reads no file.
pub(crate) struct Timezones {
    /// Those of a directory are parsed when it is loaded, the built-in ones on first use.
    parsed: HashMap<String, OnceLock<Option<TimeZone>>>,
    pub(crate) info: TimezoneInfo,
}

/// Version and origin of the timezone data, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimezoneInfo {
    /// The tzdata version ("2026e"). `None` if the directory does not tell it.
    pub version: Option<String>,
    /// `None` for the built-in data.
    pub directory: Option<PathBuf>,
}

/// Formats as "2026e (built-in)".
impl fmt::Display for TimezoneInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version.as_deref().unwrap_or("version unknown");
        match &self.directory {
            Some(directory) => write!(f, "{version} ({})", directory.display()),
            None => write!(f, "{version} (built-in)"),
        }
    }
}

impl Timezones {
    /// The data in the binary or, if there is a directory, its data, which must be usable.
    pub(crate) fn open(directory: Option<&Path>) -> Result<Self, GeoError> {
        let mut timezones = Self::built_in();
        if let Some(path) = directory {
            timezones.add_directory(path).map_err(|error| error.at(path))?;
        }
        Ok(timezones)
    }

    /// The data in the binary.
    pub(crate) fn built_in() -> Self {
        let parsed = BUILT_IN.files.keys().map(|name| (name.clone(), OnceLock::new())).collect();
        let info = TimezoneInfo { version: BUILT_IN.version.clone(), directory: None };
        Timezones { parsed, info }
    }

    /// Reads and parses the timezones of a directory with a TZif file for each, as in /usr/share/zoneinfo. Its files need not
    /// be trusted: their size is limited, and their names are those of the built-in data and of its own `zone.tab`, which
    /// has those that are newer.
    fn add_directory(&mut self, directory: &Path) -> Result<(), GeoError> {
        fs::metadata(directory)?;
        let read = |name: &str| watched_files::read(watched_files::open(&directory.join(name))?, FILE_LIMIT);
        let table = String::from_utf8(read("zone.tab").unwrap_or_default()).unwrap_or_default();
        let listed = table.lines().filter_map(|line| line.split('\t').nth(2));
        let newer = listed.filter(|name| looks_like_area_and_city(name) && !is_built_in(name));
        let mut found = false;
        for name in BUILT_IN.files.keys().map(String::as_str).chain(newer) {
            let parsed = match read(name) {
                Ok(bytes) => TimeZone::tzif(name, &bytes).ok(),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(_) => None,
            };
            // A file that is not a timezone was probably truncated.
            let parsed = parsed.ok_or_else(|| GeoError::InvalidTimezone { name: name.to_owned() })?;
            found = true;
            self.parsed.insert(name.to_owned(), OnceLock::from(Some(parsed)));
        }
        self.info = TimezoneInfo { version: version(directory), directory: Some(directory.to_owned()) };
        found.then_some(()).ok_or(GeoError::NoTimezones)
    }

    /// The UTC offset of `timezone` in seconds at `now` (Unix seconds).
    pub(crate) fn offset(&self, timezone: &str, now: i64) -> Option<i32> {
        let timestamp = Timestamp::from_second(now).ok()?;
        Some(self.parsed(timezone)?.to_offset(timestamp).seconds())
    }

    /// The first second after `now` at which the offset of `timezone` may change; `i64::MAX` if it never does.
    pub(crate) fn next_change(&self, timezone: &str, now: i64) -> i64 {
        let change = || {
            let timestamp = Timestamp::from_second(now).ok()?;
            Some(self.parsed(timezone)?.following(timestamp).next()?.timestamp().as_second())
        };
        change().unwrap_or(i64::MAX)
    }

    /// The first of these timezones, if all have the same offset from `now` on for a year.
    pub(crate) fn common<'z>(&self, zones: &[&'z str], now: i64) -> Option<&'z str> {
        let (first, others) = zones.split_first()?;
        // From the last, which usually differs, so that a large country needs few comparisons.
        others.iter().rev().all(|zone| self.agree(first, zone, now)).then_some(first)
    }

    fn agree(&self, a: &str, b: &str, now: i64) -> bool {
        let mut at = now;
        while at < now.saturating_add(YEAR) {
            let offset = self.offset(a, at);
            if offset.is_none() || offset != self.offset(b, at) {
                return false;
            }
            at = self.next_change(a, at).min(self.next_change(b, at));
        }
        true
    }

    pub(crate) fn contains(&self, timezone: &str) -> bool {
        self.parsed.contains_key(timezone)
    }

    fn parsed(&self, timezone: &str) -> Option<&TimeZone> {
        let built_in = || TimeZone::tzif(timezone, BUILT_IN.files.get(timezone)?).ok();
        self.parsed.get(timezone)?.get_or_init(built_in).as_ref()
    }
}

/// Whether this looks like an IANA identifier. Some databases store "+02:00" instead.
pub(crate) fn is_identifier(timezone: &str) -> bool {
    // The first check accepts nearly all names; the second searches the list of all timezones.
    looks_like_area_and_city(timezone) || is_built_in(timezone)
}

fn is_built_in(timezone: &str) -> bool {
    BUILT_IN.files.contains_key(timezone)
}

/// Accepts timezones that are newer than the built-in data.
fn looks_like_area_and_city(timezone: &str) -> bool {
    let capitalized = |part: &str| part.starts_with(|c: char| c.is_ascii_uppercase());
    timezone.len() <= 64
        && timezone.split_once('/').is_some_and(|(area, city)| capitalized(area) && capitalized(city))
        && timezone.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_-+".contains(&b))
}

/// The version of a directory: the first line of `tzdata.zi`, which is "# version 2026e", or else of `+VERSION`. `None` if
/// it has none, or an invalid one.
fn version(directory: &Path) -> Option<String> {
    let first_line = |name: &str| {
        let mut line = String::new();
        let file = watched_files::open(&directory.join(name)).ok()?.take(VERSION_LIMIT);
        BufReader::new(file).read_line(&mut line).ok()?;
        Some(line.trim().to_owned())
    };
    let in_table = || Some(first_line("tzdata.zi")?.strip_prefix("# version ")?.to_owned());
    in_table().or_else(|| first_line("+VERSION")).filter(|version| {
        let is_printable = version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        is_printable && version.starts_with(|first: char| first.is_ascii_digit()) && version.len() <= 40
    })
}

/// Reads the boundaries in place, from the binary, instead of expanding them in memory.
pub(crate) static FINDER: LazyLock<EmbeddedFinder> = LazyLock::new(EmbeddedFinder::new);

/// The timezone of a country that has only one; otherwise the one at the coordinates of a city. `None` if it is not
/// certain: coordinates outside the country contradict it, and Xinjiang uses Beijing's time and its own side by side.
pub(crate) fn find(country: &str, city: Option<Point>) -> Option<&'static str> {
    match country::timezones(country) {
        [only] => Some(only),
        candidates => {
            let (latitude, longitude) = city?;
            let found = FINDER.get_tz_name(longitude, latitude);
            let zone = candidates.iter().find(|zone| **zone == found)?;
            // `get_tz_names` returns all overlapping timezones, but takes ten times as long as `get_tz_name`.
            let is_shared = country == OVERLAPPING && FINDER.get_tz_names(longitude, latitude).len() > 1;
            (!is_shared).then_some(zone)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JANUARY: i64 = 1_768_478_400; // 2026-01-15T12:00:00Z
    const JULY: i64 = 1_784_116_800; // 2026-07-15T12:00:00Z

    #[test]
    fn offsets_follow_daylight_saving() {
        let timezones = Timezones::built_in();
        for (timezone, winter, summer) in [
            ("Europe/Berlin", 3600, 7200),
            ("America/New_York", -18000, -14400),
            ("Australia/Sydney", 39600, 36000),
            ("Asia/Kolkata", 19800, 19800),
            ("Asia/Kathmandu", 20700, 20700),
            ("Australia/Lord_Howe", 39600, 37800),
            ("Europe/Dublin", 0, 3600),
            ("Etc/UTC", 0, 0),
        ] {
            assert_eq!(timezones.offset(timezone, JANUARY), Some(winter), "{timezone}");
            assert_eq!(timezones.offset(timezone, JULY), Some(summer), "{timezone}");
        }
    }

    #[test]
    fn country_has_an_offset_if_all_its_timezones_have_the_same_all_year() {
        let timezones = Timezones::built_in();
        let codes = ('A'..='Z').flat_map(|first| ('A'..='Z').map(move |second| format!("{first}{second}")));
        let common = |code: &str, now| {
            let zones = country::timezones(code);
            timezones.common(zones, now).filter(|_| zones.len() > 1)
        };
        for now in [JANUARY, JULY] {
            let found: Vec<_> = codes.clone().filter(|code| common(code, now).is_some()).collect();
            assert_eq!(found, ["AR", "CY", "KZ", "MH", "MY", "PS", "UZ"]);
        }
        let offset = |code, now| timezones.offset(common(code, now)?, now);
        for (code, winter, summer) in [("AR", -10_800, -10_800), ("CY", 7200, 10_800), ("PS", 7200, 10_800)] {
            assert_eq!((offset(code, JANUARY), offset(code, JULY)), (Some(winter), Some(summer)), "{code}");
        }
    }

    #[test]
    fn built_in_data_has_the_version_of_its_rules() {
        let timezones = Timezones::built_in();
        assert!(timezones.info.version.as_deref() >= Some("2026f"), "{}", timezones.info);
        // According to 2026f, Cuba keeps daylight saving time in this winter.
        let november = 1_794_900_000; // 2026-11-17T07:20:00Z
        assert_eq!(timezones.offset("America/Havana", november), Some(-4 * 3600));
    }

    #[test]
    fn offset_changes_at_exact_second() {
        let timezones = Timezones::built_in();
        let change = 1_774_746_000; // 2026-03-29T01:00:00Z
        assert_eq!(timezones.offset("Europe/Berlin", change - 1), Some(3600));
        assert_eq!(timezones.offset("Europe/Berlin", change), Some(7200));
        assert_eq!(timezones.next_change("Europe/Berlin", change - 86_400), change);
        assert_eq!(timezones.next_change("Europe/Berlin", change - 1), change);
        assert!(timezones.next_change("Europe/Berlin", change) > change);
        assert_eq!(timezones.next_change("Etc/UTC", change), i64::MAX);
        assert_eq!(timezones.next_change("Mars/Olympus_Mons", change), i64::MAX);
    }

    #[test]
    fn only_names_like_iana_identifiers_are_accepted() {
        for timezone in ["Europe/Berlin", "UTC", "America/Argentina/Buenos_Aires", "Mars/Olympus_Mons"] {
            assert!(is_identifier(timezone), "{timezone}");
        }
        for timezone in ["+02:00", "", "UTC+2", "europe", "utc", "Europe/", "<b>/X"] {
            assert!(!is_identifier(timezone), "{timezone}");
        }
        let timezones = Timezones::built_in();
        assert_eq!(timezones.offset("Mars/Olympus_Mons", JULY), None);
        assert_eq!(timezones.offset("Europe/Berlin", i64::MAX), None);
    }

    #[test]
    fn all_built_in_timezones_have_an_offset() {
        let timezones = Timezones::built_in();
        assert!(timezones.parsed.len() > 500, "{}", timezones.parsed.len());
        for timezone in timezones.parsed.keys() {
            assert!(timezones.offset(timezone, JULY).is_some(), "{timezone}");
        }
    }

    #[test]
    fn altered_timezone_files_cause_no_panic() {
        let original = &BUILT_IN.files["Europe/Berlin"];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let (mut accepted, mut rejected) = (0, 0);
        for _ in 0..4_000 {
            let mut bytes = original.to_vec();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            if random(4) == 0 {
                bytes.truncate(random(bytes.len()));
            }
            match TimeZone::tzif("Europe/Berlin", &bytes) {
                Ok(parsed) => {
                    accepted += 1;
                    let parsed = [("X".to_owned(), OnceLock::from(Some(parsed)))].into();
                    let timezones = Timezones { parsed, ..Timezones::built_in() };
                    for now in [JANUARY, JULY, 0, -1 << 40, 1 << 37] {
                        timezones.offset("X", now);
                        timezones.next_change("X", now);
                    }
                }
                Err(_) => rejected += 1,
            }
        }
        assert!(accepted > 200 && rejected > 200, "{accepted} accepted, {rejected} rejected");
    }

    #[test]
    fn version_is_read_from_either_file() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("write");
        assert_eq!(version(dir.path()), None);
        write("+VERSION", "2026d\n");
        assert_eq!(version(dir.path()).as_deref(), Some("2026d"));
        write("tzdata.zi", "# version 2026e\n# This zic input file is in the public domain.\n");
        assert_eq!(version(dir.path()).as_deref(), Some("2026e"));
        write("tzdata.zi", "# redo posix_only\n");
        assert_eq!(version(dir.path()).as_deref(), Some("2026d"));
        for invalid in ["unknown", "2026e<b>", "2026e-\u{1b}[0m", ""] {
            write("+VERSION", invalid);
            assert_eq!(version(dir.path()), None, "{invalid}");
        }
    }

    #[test]
    fn country_with_one_timezone_needs_no_coordinates() {
        for (country, zone) in [
            ("FR", "Europe/Paris"),
            ("DE", "Europe/Berlin"),
            ("JP", "Asia/Tokyo"),
            ("XK", "Europe/Belgrade"),
            ("IN", "Asia/Kolkata"),
        ] {
            assert_eq!(find(country, None), Some(zone));
            assert_eq!(find(country, Some((0.0, 0.0))), Some(zone));
        }
    }

    #[test]
    fn coordinates_of_a_city_decide_between_timezones() {
        for (country, city, point, zone) in [
            ("US", "New York", (40.7128, -74.006), "America/New_York"),
            ("US", "Mountain View", (37.422, -122.085), "America/Los_Angeles"),
            ("US", "Phoenix", (33.4484, -112.074), "America/Phoenix"),
            ("ES", "Las Palmas", (28.1235, -15.4363), "Atlantic/Canary"),
            ("BR", "Manaus", (-3.119, -60.0217), "America/Manaus"),
            ("AU", "Broken Hill", (-31.95, 141.4333), "Australia/Broken_Hill"),
        ] {
            assert_eq!(find(country, Some(point)), Some(zone), "{city}");
        }
    }

    #[test]
    fn uncertain_timezone_is_none() {
        assert_eq!(find("US", Some((37.751, -97.822))), Some("America/Chicago"));
        assert_eq!(find("US", None), None, "no coordinates of a city");
        assert_eq!(find("US", Some((52.52, 13.405))), None, "in another country");
        assert_eq!(find("US", Some((30.0, -45.0))), None, "in the ocean");
        assert_eq!(find("CN", Some((43.8, 87.6))), None, "two timezones are in use");
        assert_eq!(find("BV", Some((-54.4, 3.4))), None, "no timezones");
        assert_eq!(find("US", Some((f64::NAN, 400.0))), None);
    }
}
