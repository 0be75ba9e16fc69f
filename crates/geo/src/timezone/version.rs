//! The version of a directory of timezone files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The files that may contain the version: `tzdata.zi`, whose first line is "# version 2026e", or else `+VERSION`.
pub(super) const FILES: [&str; 2] = ["tzdata.zi", "+VERSION"];

/// Both files start with the version.
const MAX_READ: u64 = 128;

/// Reads the version of a directory. `None` if it has none, or an invalid one.
pub(super) fn of_directory(directory: &Path) -> Option<String> {
    let [tzdata_zi, version_file] = FILES.map(|name| directory.join(name));
    let from_tzdata_zi = || first_line(&tzdata_zi)?.strip_prefix("# version ").map(str::to_owned);
    let version = from_tzdata_zi().or_else(|| first_line(&version_file))?;
    parse(&version).is_some().then_some(version)
}

/// Whether `version` is newer than `than`. An unknown `version` is never newer; a known one is newer than an unknown one.
pub(super) fn is_newer(version: Option<&str>, than: Option<&str>) -> bool {
    let version = version.and_then(parse);
    version.is_some() && version > than.and_then(parse)
}

fn first_line(path: &Path) -> Option<String> {
    // Opening a pipe would block.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut start = Vec::new();
    File::open(path).ok()?.take(MAX_READ).read_to_end(&mut start).ok()?;
    let line = start.split(|byte| *byte == b'\n').next()?;
    Some(std::str::from_utf8(line).ok()?.trim().to_owned())
}

/// Year, number of letters and letters of "2026e"; "2026za" follows "2026z". The suffix of a version between releases
/// ("2026e-1-g0a1b2c3") is ignored.
fn parse(version: &str) -> Option<(u32, usize, &str)> {
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
    use super::*;

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
        assert_eq!(of_directory(dir.path()), None);
        write("+VERSION", "2026d\n");
        assert_eq!(of_directory(dir.path()).as_deref(), Some("2026d"));
        write("tzdata.zi", "# version 2026e\n# This zic input file is in the public domain.\n");
        assert_eq!(of_directory(dir.path()).as_deref(), Some("2026e"));
        write("tzdata.zi", "# redo posix_only\n");
        assert_eq!(of_directory(dir.path()).as_deref(), Some("2026d"));
        write("+VERSION", "unknown");
        assert_eq!(of_directory(dir.path()), None);
    }
}
