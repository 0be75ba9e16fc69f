//! The target folder: locked while we work, temporary files that never outlive us, the notebook.

use std::fs::{File, Permissions, TryLockError};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::UpdateError;
use super::download::Version;

const TEMPORARY: &str = ".geo-update-";
const LOCK: &str = ".geo-update.lock";

/// The folder that receives the databases.
pub(super) struct Folder {
    path: PathBuf,
    /// Held as long as this value lives: whoever has it may take all temporary files for stale.
    _lock: File,
}

/// What we know of an installed file, kept beside it in a hidden file. No address, no secret.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Notes {
    /// SHA-256 of the address, so that another source is never taken for unchanged.
    pub address: String,
    /// SHA-256 of what was downloaded (perhaps an archive).
    pub download: String,
    /// SHA-256 of the installed file.
    pub installed: String,
    #[serde(flatten)]
    pub version: Version,
}

impl Folder {
    /// Creates the folder if need be, takes the lock and clears what a killed process left.
    pub(super) fn open(path: &Path) -> Result<Self, UpdateError> {
        std::fs::create_dir_all(path)?;
        let lock = File::create(path.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(UpdateError::Busy),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let folder = Folder { path: path.to_owned(), _lock: lock };
        folder.clear_stale()?;
        Ok(folder)
    }

    fn clear_stale(&self) -> Result<(), UpdateError> {
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// A temporary file on the same file system; it vanishes unless it is put in place.
    pub(super) fn temporary(&self) -> Result<NamedTempFile, UpdateError> {
        Ok(tempfile::Builder::new().prefix(TEMPORARY).suffix(".part").tempfile_in(&self.path)?)
    }

    pub(super) fn target(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Renames a complete file into place: readers see the old or the new one, nothing between.
    pub(super) fn put(&self, file: NamedTempFile, name: &str) -> Result<PathBuf, UpdateError> {
        let target = self.target(name);
        // The service that reads it often runs as another user.
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(&target).map_err(|failed| failed.error)?;
        File::open(&self.path)?.sync_all()?;
        Ok(target)
    }

    fn notebook(name: &str) -> String {
        format!(".{name}.json")
    }

    /// The notes of an installed file, if they are still true.
    pub(super) fn notes(&self, name: &str) -> Option<Notes> {
        let text = std::fs::read(self.target(&Self::notebook(name))).ok()?;
        let notes: Notes = serde_json::from_slice(&text).ok()?;
        let installed = super::install::sha256(&self.target(name)).ok()?;
        (installed == notes.installed).then_some(notes)
    }

    pub(super) fn write_notes(&self, name: &str, notes: &Notes) -> Result<(), UpdateError> {
        let mut file = self.temporary()?;
        file.write_all(&serde_json::to_vec(notes).map_err(std::io::Error::other)?)?;
        self.put(file, &Self::notebook(name))?;
        Ok(())
    }
}
