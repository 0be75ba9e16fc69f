//! Reads a zoneinfo directory: one TZif file per timezone, as in /usr/share/zoneinfo. The files need not be trusted:
//! their number and size are limited, and every file is parsed before any of them is used.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use jiff::tz::TimeZone;

use super::{TimezoneInfo, Timezones, Zone, is_built_in, version};
use crate::GeoError;
use crate::watched_file::{self, Stamp};

/// Maximum size of a file. The largest one of tzdata has 4 KiB.
const FILE_LIMIT: u64 = 64 << 10;
/// Maximum number of entries that are visited. Distributions have about 600 timezones.
const ENTRY_LIMIT: usize = 8_192;
/// Maximum number of parts of a name, as in America/Argentina/Ushuaia.
const MAX_DEPTH: usize = 3;
/// How a TZif file starts.
const MAGIC: &[u8] = b"TZif";

/// The files below a directory that may be timezones, without their contents.
pub(super) struct Listing {
    files: Vec<(String, Stamp)>,
    /// State of the files that contain the version; `None` if there is no such file.
    version_files: [Option<Stamp>; 2],
}

/// Data of a directory, with a hash of the contents to detect changes.
pub(super) struct Loaded {
    pub(super) timezones: Timezones,
    pub(super) content_hash: u64,
    /// Names of the timezones in the directory, without those that only the built-in data has.
    pub(super) names: Vec<String>,
}

impl Listing {
    /// Lists the files. Follows symbolic links; the limits end loops.
    pub(super) fn new(directory: &Path) -> Result<Self, GeoError> {
        let version_files = version::FILES.map(|name| Stamp::of(&directory.join(name)).ok());
        let mut listing = Listing { files: Vec::new(), version_files };
        let mut seen = 0;
        listing.add(directory, "", 1, &mut seen)?;
        listing.files.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(listing)
    }

    fn add(
        &mut self,
        directory: &Path,
        prefix: &str,
        depth: usize,
        seen: &mut usize,
    ) -> Result<(), GeoError> {
        for entry in std::fs::read_dir(directory)? {
            *seen += 1;
            if *seen > ENTRY_LIMIT {
                return Err(GeoError::TooManyFiles { limit: ENTRY_LIMIT });
            }
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().filter(|name| is_name_part(name)).map(str::to_owned)
            else {
                continue;
            };
            let name = format!("{prefix}{name}");
            let metadata = match std::fs::metadata(entry.path()) {
                Ok(metadata) => metadata,
                // A file that disappears during the listing, or a dangling link, is skipped.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            if metadata.is_dir() && depth < MAX_DEPTH {
                self.add(&entry.path(), &format!("{name}/"), depth + 1, seen)?;
            } else if metadata.is_file() {
                self.files.push((name, Stamp::from(&metadata)));
            }
        }
        Ok(())
    }

    /// Identifies the state of all files.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.files, &self.version_files).hash(&mut hasher);
        hasher.finish()
    }

    /// Whether a file was changed so recently that another change could leave the same fingerprint.
    pub(super) fn is_fresh(&self) -> bool {
        let now = SystemTime::now();
        let mut stamps = self.files.iter().map(|(_, stamp)| stamp).chain(self.version_files.iter().flatten());
        stamps.any(|stamp| stamp.is_fresh(now))
    }

    /// Reads and parses all timezones. Those that the directory lacks come from the built-in data.
    pub(super) fn load(&self, directory: &Path) -> Result<Loaded, GeoError> {
        let mut hasher = DefaultHasher::new();
        let mut timezones = Timezones::built_in();
        timezones.info =
            TimezoneInfo { version: version::of_directory(directory), directory: Some(directory.to_owned()) };
        timezones.info.version.hash(&mut hasher);
        // Many names are links to the same file.
        let mut by_content: HashMap<Vec<u8>, TimeZone> = HashMap::new();
        let mut names = Vec::new();
        for (name, _) in &self.files {
            let Some(bytes) = read_timezone(directory, name)? else {
                continue;
            };
            (name, &bytes).hash(&mut hasher);
            let parsed = match by_content.get(&bytes) {
                Some(parsed) => parsed.clone(),
                None => TimeZone::tzif(name, &bytes)
                    .map_err(|_| GeoError::InvalidTimezone { name: name.clone() })?,
            };
            by_content.entry(bytes).or_insert_with(|| parsed.clone());
            let zone = Zone { built_in: &[], parsed: OnceLock::from(Some(parsed)) };
            timezones.zones.insert(name.clone(), zone);
            names.push(name.clone());
        }
        if names.is_empty() {
            return Err(GeoError::NoTimezones);
        }
        Ok(Loaded { timezones, content_hash: hasher.finish(), names })
    }
}

/// The content of a timezone file. `None` if it is another kind of file, such as a table. A file named like a timezone
/// that is not one is an error: it was probably truncated.
fn read_timezone(directory: &Path, name: &str) -> Result<Option<Vec<u8>>, GeoError> {
    let path: PathBuf = directory.join(name);
    let invalid = || GeoError::InvalidTimezone { name: name.to_owned() };
    match watched_file::open(&path).and_then(|file| watched_file::read(file, FILE_LIMIT)) {
        Ok((bytes, _)) if bytes.starts_with(MAGIC) => Ok(Some(bytes)),
        Ok(_) | Err(GeoError::TooLarge { .. }) if !is_built_in(name) => Ok(None),
        Ok(_) | Err(GeoError::TooLarge { .. }) => Err(invalid()),
        Err(error) => Err(error),
    }
}

/// Whether this can be a part of a timezone's name. Excludes "posix" and "right", which have variants of all timezones,
/// and "localtime".
fn is_name_part(part: &str) -> bool {
    part.len() <= 32
        && part.starts_with(|first: char| first.is_ascii_uppercase())
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-+".contains(&byte))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn dangling_link_is_skipped_but_other_errors_are_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        symlink("missing", dir.path().join("Dangling")).expect("link");
        assert!(Listing::new(dir.path()).expect("listing").files.is_empty());
        symlink("Itself", dir.path().join("Itself")).expect("link");
        assert!(Listing::new(dir.path()).is_err());
    }

    #[test]
    fn fingerprint_changes_with_each_file_of_the_version() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let fingerprint = || Listing::new(dir.path()).expect("listing").fingerprint();
        for name in version::FILES {
            let before = fingerprint();
            std::fs::write(dir.path().join(name), "2026e").expect("write");
            let written = fingerprint();
            assert_ne!(written, before, "{name}");
            std::fs::write(dir.path().join(name), "2026e-1").expect("write");
            assert_ne!(fingerprint(), written, "{name}");
        }
    }
}
