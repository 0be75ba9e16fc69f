//! Reads a zoneinfo directory: one TZif file per timezone, as in /usr/share/zoneinfo. The files need not be trusted:
//! their number and size are limited, and every file is parsed before any of them is used.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::OnceLock;

use jiff::tz::TimeZone;

use super::{Timezone, TimezoneInfo, Timezones, is_built_in};
use crate::GeoError;

/// Maximum size of a file. The largest one of tzdata has 4 KiB.
const FILE_LIMIT: u64 = 64 << 10;
/// Maximum number of entries that are visited. Distributions have about 600 timezones.
const ENTRY_LIMIT: usize = 8_192;
/// Maximum number of parts of a name, as in America/Argentina/Ushuaia.
const MAX_DEPTH: usize = 3;
/// How a TZif file starts.
const MAGIC: &[u8] = b"TZif";
/// How much is read of a file that starts with the version.
const VERSION_LIMIT: u64 = 128;

/// Reads and parses all timezones. Those that the directory lacks come from the built-in data.
pub(super) fn load(directory: &Path) -> Result<Timezones, GeoError> {
    let mut names = Vec::new();
    list(directory, "", 1, &mut 0, &mut names)?;
    let mut timezones = Timezones::built_in();
    timezones.info = TimezoneInfo { version: version(directory), directory: Some(directory.to_owned()) };
    // Many names are links to the same file.
    let mut by_content: HashMap<Vec<u8>, TimeZone> = HashMap::new();
    for name in names {
        let Some(bytes) = read_timezone(directory, &name)? else { continue };
        let parsed = match by_content.get(&bytes) {
            Some(parsed) => parsed.clone(),
            None => {
                TimeZone::tzif(&name, &bytes).map_err(|_| GeoError::InvalidTimezone { name: name.clone() })?
            }
        };
        by_content.entry(bytes).or_insert_with(|| parsed.clone());
        timezones.timezones.insert(name, Timezone { built_in: &[], parsed: OnceLock::from(Some(parsed)) });
    }
    if by_content.is_empty() {
        return Err(GeoError::NoTimezones);
    }
    Ok(timezones)
}

/// Adds the names of the files that may be timezones. Follows symbolic links; the limits end loops.
fn list(
    directory: &Path,
    prefix: &str,
    depth: usize,
    seen: &mut usize,
    names: &mut Vec<String>,
) -> Result<(), GeoError> {
    for entry in fs::read_dir(directory)? {
        *seen += 1;
        if *seen > ENTRY_LIMIT {
            return Err(GeoError::TooManyFiles { limit: ENTRY_LIMIT });
        }
        let entry = entry?;
        let file_name = entry.file_name();
        let Some(part) = file_name.to_str().filter(|part| is_name_part(part)) else { continue };
        let name = format!("{prefix}{part}");
        match fs::metadata(entry.path()) {
            Ok(metadata) if metadata.is_dir() && depth < MAX_DEPTH => {
                list(&entry.path(), &format!("{name}/"), depth + 1, seen, names)?;
            }
            Ok(metadata) if metadata.is_file() => names.push(name),
            Ok(_) => {}
            // A file that disappears during the listing, or a dangling link, is skipped.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The content of a timezone file. `None` if it is another kind of file, such as a table. A file named like a timezone
/// that is not one is an error: it was probably truncated.
fn read_timezone(directory: &Path, name: &str) -> Result<Option<Vec<u8>>, GeoError> {
    let mut bytes = Vec::new();
    File::open(directory.join(name))?.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.starts_with(MAGIC) && bytes.len() as u64 <= FILE_LIMIT {
        return Ok(Some(bytes));
    }
    if is_built_in(name) { Err(GeoError::InvalidTimezone { name: name.to_owned() }) } else { Ok(None) }
}

/// Whether this can be a part of a timezone's name. Excludes "posix" and "right", which have variants of all timezones,
/// and "localtime".
fn is_name_part(part: &str) -> bool {
    part.len() <= 32
        && part.starts_with(|first: char| first.is_ascii_uppercase())
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-+".contains(&byte))
}

/// The version of a directory: the first line of `tzdata.zi`, which is "# version 2026e", or else of `+VERSION`. `None` if
/// it has none, or an invalid one.
pub(super) fn version(directory: &Path) -> Option<String> {
    let from_tzdata_zi =
        || first_line(&directory.join("tzdata.zi"))?.strip_prefix("# version ").map(str::to_owned);
    let version = from_tzdata_zi().or_else(|| first_line(&directory.join("+VERSION")))?;
    parse_version(&version).is_some().then_some(version)
}

/// Whether `version` is newer than `than`. An unknown `version` is never newer; a known one is newer than an unknown one.
pub(super) fn is_newer(version: Option<&str>, than: Option<&str>) -> bool {
    let version = version.and_then(parse_version);
    version.is_some() && version > than.and_then(parse_version)
}

fn first_line(path: &Path) -> Option<String> {
    // Opening a pipe would block.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut start = Vec::new();
    File::open(path).ok()?.take(VERSION_LIMIT).read_to_end(&mut start).ok()?;
    let line = start.split(|byte| *byte == b'\n').next()?;
    Some(std::str::from_utf8(line).ok()?.trim().to_owned())
}

/// Year, number of letters and letters of "2026e"; "2026za" follows "2026z". The suffix of a version between releases
/// ("2026e-1-g0a1b2c3") is ignored.
fn parse_version(version: &str) -> Option<(u32, usize, &str)> {
    let (release, suffix) = version.split_once('-').unwrap_or((version, ""));
    let (year, letters) = release.split_at_checked(4)?;
    let is_valid = (1..=2).contains(&letters.len())
        && letters.bytes().all(|byte| byte.is_ascii_lowercase())
        && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        && version.len() <= 40;
    is_valid.then_some((year.parse().ok()?, letters.len(), letters))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn dangling_link_is_skipped_but_other_errors_are_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let names = || {
            let mut names = Vec::new();
            list(dir.path(), "", 1, &mut 0, &mut names).map(|()| names)
        };
        symlink("missing", dir.path().join("Dangling")).expect("link");
        assert!(names().expect("listing").is_empty());
        symlink("Itself", dir.path().join("Itself")).expect("link");
        assert!(names().is_err());
    }

    #[test]
    fn versions_are_ordered_by_year_and_letter() {
        for (newer, older) in
            [("2026f", "2026e"), ("2027a", "2026z"), ("2026za", "2026z"), ("2026f-1-g0a1b2c3", "2026e")]
        {
            assert!(is_newer(Some(newer), Some(older)), "{newer} {older}");
            assert!(!is_newer(Some(older), Some(newer)), "{older} {newer}");
        }
        assert!(!is_newer(Some("2026e"), Some("2026e")));
        assert!(is_newer(Some("2026e"), None) && !is_newer(None, None) && !is_newer(None, Some("2026e")));
        assert!(!is_newer(Some("2026e-2-g0a1b2c3"), Some("2026e")));
        for invalid in ["", "2026", "e2026", "2026E", "2026e<b>", "20é6e", "2026e-\u{1b}[0m"] {
            assert!(!is_newer(Some(invalid), Some("2020a")), "{invalid}");
        }
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
        write("+VERSION", "unknown");
        assert_eq!(version(dir.path()), None);
    }
}
