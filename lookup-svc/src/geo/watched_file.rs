//! One watched file: detects changes and holds the last valid content.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::GeoError;
use super::file::{self, Stamp};

/// A file with its last valid content, which stays in use if the file is removed or becomes invalid.
pub(super) struct WatchedFile<T> {
    pub(super) path: PathBuf,
    /// The last content that loaded without an error.
    pub(super) last_good: Option<T>,
    /// Whether the file existed at the last check.
    pub(super) present: bool,
    last_stamp: Option<Stamp>,
    /// Whether the file was fresh when it was read (see `Stamp::is_fresh`). If so, the next check reads it again even
    /// if its stamp is the same.
    recheck: bool,
    /// Hash of the bytes that `last_good` was loaded from.
    content_hash: Option<u64>,
}

/// The result of checking one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileCheck {
    Unchanged,
    Loaded,
    Rejected,
}

impl<T> WatchedFile<T> {
    pub(super) fn new(path: PathBuf) -> Self {
        WatchedFile {
            path,
            last_good: None,
            present: true,
            last_stamp: None,
            recheck: false,
            content_hash: None,
        }
    }

    /// Checks the file once. Calls `load` to parse the content only if it has changed.
    pub(super) fn check(
        &mut self,
        limit: u64,
        load: impl FnOnce(&Path, Vec<u8>) -> Result<T, GeoError>,
    ) -> FileCheck {
        let Ok(stamp) = Stamp::of(&self.path) else {
            return self.removed();
        };
        self.present = true;
        if self.last_stamp == Some(stamp) && !self.recheck {
            return FileCheck::Unchanged;
        }
        let same_stamp = self.last_stamp == Some(stamp);
        self.recheck = stamp.is_fresh(SystemTime::now());
        self.last_stamp = Some(stamp);
        match self.read(limit, load) {
            Ok(result) => result,
            Err(error) => self.rejected(&error, same_stamp),
        }
    }

    fn read(
        &mut self,
        limit: u64,
        load: impl FnOnce(&Path, Vec<u8>) -> Result<T, GeoError>,
    ) -> Result<FileCheck, GeoError> {
        let (bytes, stamp) = file::read(&self.path, limit)?;
        self.last_stamp = Some(stamp);
        let hash = content_hash(&bytes);
        if self.content_hash == Some(hash) {
            return Ok(FileCheck::Unchanged);
        }
        self.last_good = Some(load(&self.path, bytes)?);
        self.content_hash = Some(hash);
        tracing::info!(file = %self.path.display(), "geo file loaded");
        Ok(FileCheck::Loaded)
    }

    /// Logs and counts a rejection once per change of the file, not when a file with the same stamp is read again.
    fn rejected(&mut self, error: &GeoError, same_stamp: bool) -> FileCheck {
        if matches!(error, GeoError::ChangedDuringRead) {
            // The file is still being written. That is not an error; the next check reads it again.
            self.last_stamp = None;
            return FileCheck::Unchanged;
        }
        if same_stamp {
            return FileCheck::Unchanged;
        }
        let keeps_previous = self.last_good.is_some();
        tracing::warn!(file = %self.path.display(), %error, keeps_previous, "geo file rejected");
        FileCheck::Rejected
    }

    fn removed(&mut self) -> FileCheck {
        if self.present {
            let keeps_previous = self.last_good.is_some();
            tracing::warn!(file = %self.path.display(), keeps_previous, "geo file removed");
        }
        self.present = false;
        self.last_stamp = None;
        FileCheck::Unchanged
    }
}

/// Detects changed content. Not cryptographic.
fn content_hash(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
