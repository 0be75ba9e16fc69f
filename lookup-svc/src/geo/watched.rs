//! One watched file: what was last read from it, and when it must be read again.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::GeoError;
use super::file::{self, Stamp};

/// A file whose last good content is kept, whatever happens to the file.
pub(super) struct Watched<T> {
    pub(super) path: PathBuf,
    /// The last content that passed its checks.
    pub(super) good: Option<T>,
    /// Whether the file was there at the last look.
    pub(super) present: bool,
    tried: Option<Stamp>,
    /// Read while it was fresh: the same stamp may still hide another write.
    unsettled: bool,
    digest: Option<u64>,
}

/// What a look at a file brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Unchanged,
    Loaded,
    Refused,
}

impl<T> Watched<T> {
    pub(super) fn new(path: PathBuf) -> Self {
        Watched { path, good: None, present: true, tried: None, unsettled: false, digest: None }
    }

    /// Looks once; `load` turns bytes into content and is called only if they changed.
    pub(super) fn look(
        &mut self,
        limit: u64,
        load: impl FnOnce(&Path, Vec<u8>) -> Result<T, GeoError>,
    ) -> Outcome {
        let Ok(stamp) = Stamp::of(&self.path) else {
            return self.gone();
        };
        self.present = true;
        if self.tried == Some(stamp) && !self.unsettled {
            return Outcome::Unchanged;
        }
        let known = self.tried == Some(stamp);
        self.unsettled = stamp.is_fresh(SystemTime::now());
        self.tried = Some(stamp);
        match self.read(limit, load) {
            Ok(outcome) => outcome,
            Err(error) => self.refused(&error, known),
        }
    }

    fn read(
        &mut self,
        limit: u64,
        load: impl FnOnce(&Path, Vec<u8>) -> Result<T, GeoError>,
    ) -> Result<Outcome, GeoError> {
        let (bytes, stamp) = file::read(&self.path, limit)?;
        self.tried = Some(stamp);
        let digest = digest(&bytes);
        if self.digest == Some(digest) {
            return Ok(Outcome::Unchanged);
        }
        self.good = Some(load(&self.path, bytes)?);
        self.digest = Some(digest);
        tracing::info!(file = %self.path.display(), "geo data loaded");
        Ok(Outcome::Loaded)
    }

    /// Logged once per change of the file; the next look at the same bytes stays silent.
    fn refused(&mut self, error: &GeoError, known: bool) -> Outcome {
        if matches!(error, GeoError::Changing) {
            // Somebody is writing: no fault, look again at the next tick.
            self.tried = None;
            return Outcome::Unchanged;
        }
        if known {
            return Outcome::Unchanged;
        }
        let kept = self.good.is_some();
        tracing::warn!(file = %self.path.display(), %error, keeps_previous = kept, "geo data refused");
        Outcome::Refused
    }

    fn gone(&mut self) -> Outcome {
        if self.present {
            let kept = self.good.is_some();
            tracing::warn!(file = %self.path.display(), keeps_previous = kept, "geo data file is gone");
        }
        self.present = false;
        self.tried = None;
        Outcome::Unchanged
    }
}

/// Tells equal content apart from new content; not for security.
fn digest(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
