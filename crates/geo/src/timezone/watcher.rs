//! Decides which timezone data is in use, and follows a directory while the service runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{Listing, Loaded};
use super::{BUILT_IN, Timezones, version};
use crate::{GeoError, zone_tab};

/// Where most systems have their timezone data. Package updates replace it.
const SYSTEM_DIRECTORY: &str = "/usr/share/zoneinfo";

/// The timezone data in use and the state of its directory.
pub(crate) struct TimezoneWatcher {
    directory: PathBuf,
    /// Whether the directory was given with `--tzdata`. Otherwise it is the system's, which is used only if its version is
    /// newer than that of the built-in data.
    is_explicit: bool,
    current: Arc<Timezones>,
    /// Names that the directory had when it was last loaded.
    names: Vec<String>,
    fingerprint: Option<u64>,
    content_hash: Option<u64>,
    /// Whether files were fresh at the last check, so that the next one reads them even if the fingerprint is the same.
    recheck: bool,
}

impl TimezoneWatcher {
    /// Loads the data. An explicit directory must be usable; any other problem leaves the built-in data in use.
    pub(crate) fn new(explicit: Option<&Path>) -> Result<Self, GeoError> {
        Self::with_system_directory(explicit, Path::new(SYSTEM_DIRECTORY))
    }

    fn with_system_directory(explicit: Option<&Path>, system: &Path) -> Result<Self, GeoError> {
        let mut watcher = TimezoneWatcher {
            directory: explicit.unwrap_or(system).to_owned(),
            is_explicit: explicit.is_some(),
            current: Arc::new(Timezones::built_in()),
            names: Vec::new(),
            fingerprint: None,
            content_hash: None,
            recheck: false,
        };
        match watcher.load_if_changed() {
            Err(reason) if watcher.is_explicit => {
                Err(GeoError::NothingLoaded { path: watcher.directory, reason: Box::new(reason) })
            }
            Err(error) => {
                watcher.log_rejected(&error);
                Ok(watcher)
            }
            Ok(_) => Ok(watcher),
        }
    }

    pub(crate) fn current(&self) -> Arc<Timezones> {
        self.current.clone()
    }

    /// Loads the directory if it has changed. Returns whether the data was replaced. A directory that is missing,
    /// broken or incomplete leaves the previous data in use.
    pub(crate) fn check(&mut self) -> bool {
        let before = self.fingerprint;
        match self.load_if_changed() {
            Ok(replaced) => replaced,
            Err(error) => {
                if self.fingerprint != before {
                    self.log_rejected(&error);
                }
                false
            }
        }
    }

    /// Returns whether the data was replaced.
    fn load_if_changed(&mut self) -> Result<bool, GeoError> {
        if !self.is_explicit && !self.is_newer_than_built_in() {
            return Ok(false);
        }
        let listing = match Listing::new(&self.directory) {
            Ok(listing) => listing,
            Err(error) => {
                self.fingerprint = None;
                return Err(error);
            }
        };
        let fingerprint = Some(listing.fingerprint());
        if self.fingerprint == fingerprint && !self.recheck {
            return Ok(false);
        }
        self.recheck = listing.is_fresh();
        self.fingerprint = fingerprint;
        let Loaded { timezones, content_hash, names } = listing.load(&self.directory)?;
        if self.content_hash == Some(content_hash) {
            return Ok(false);
        }
        // A missing timezone of a country means that the directory is incomplete. Older names such as US/Eastern may
        // disappear: some systems don't install them, and the built-in data has them.
        let is_missing = |name: &&String| !names.contains(name) && zone_tab::contains(name);
        if let Some(name) = self.names.iter().find(is_missing) {
            return Err(GeoError::MissingTimezone { name: name.clone() });
        }
        let version = timezones.info.version.as_deref().unwrap_or("unknown");
        tracing::info!(directory = %self.directory.display(), version, "timezone data loaded");
        self.current = Arc::new(timezones);
        self.content_hash = Some(content_hash);
        self.names = names;
        Ok(true)
    }

    fn is_newer_than_built_in(&self) -> bool {
        let version = version::of_directory(&self.directory);
        version::is_newer(version.as_deref(), BUILT_IN.version.as_deref())
    }

    fn log_rejected(&self, error: &GeoError) {
        let directory = self.directory.display();
        tracing::warn!(%directory, %error, in_use = %self.current.info, "timezone data rejected");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use testkit::tzif::fixed_offset;

    use super::*;

    fn write(directory: &Path, version: &str, hours: i8) {
        fs::create_dir_all(directory.join("Europe")).expect("create directory");
        fs::write(directory.join("Europe/Berlin"), fixed_offset(hours)).expect("write");
        fs::write(directory.join("tzdata.zi"), version).expect("write");
    }

    fn watch(system: &Path) -> TimezoneWatcher {
        TimezoneWatcher::with_system_directory(None, system).expect("never fails")
    }

    #[test]
    fn system_directory_is_used_only_if_newer_than_built_in() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let built_in = Timezones::built_in().info;
        for version in ["# version 2000a\n", "no version", ""] {
            write(dir.path(), version, 5);
            assert_eq!(watch(dir.path()).current().info, built_in, "{version}");
        }
        assert_eq!(watch(&dir.path().join("missing")).current().info, built_in);
        write(dir.path(), "# version 2999a\n", 5);
        let current = watch(dir.path()).current();
        assert_eq!(current.info.version.as_deref(), Some("2999a"));
        assert_eq!(current.offset("Europe/Berlin", 0), Some(5 * 3600));
    }

    #[test]
    fn system_directory_is_used_once_it_is_newer_and_valid() {
        let dir = tempfile::tempdir().expect("temporary directory");
        write(dir.path(), "# version 2000a\n", 5);
        let mut watcher = watch(dir.path());
        assert!(!watcher.check());
        write(dir.path(), "# version 2999a\n", 5);
        fs::write(dir.path().join("Europe/Berlin"), "truncated").expect("write");
        assert!(!watcher.check());
        assert_eq!(watcher.current().info.directory, None);
        write(dir.path(), "# version 2999a\n", 6);
        assert!(watcher.check());
        assert_eq!(watcher.current().offset("Europe/Berlin", 0), Some(6 * 3600));
    }
}
