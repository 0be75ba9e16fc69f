//! The target directory: its lock, temporary files, installed databases and their info files.

use std::fs::{File, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base::atomic_file;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::UpdateError;
use super::download::Version;

const TEMP_PREFIX: &str = ".geo-update-";
const LOCK_FILE: &str = ".geo-update.lock";

/// The directory that databases are installed in.
pub(super) struct TargetDir {
    path: PathBuf,
    /// The lock file, locked until drop. A process that holds the lock may delete all existing temporary files: their
    /// processes are gone.
    _lock: File,
}

/// Metadata of an installed file, stored next to it in a hidden file. Contains no URL and no secret.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InstallInfo {
    /// SHA-256 of the URL: a file from another URL is never treated as unchanged.
    #[serde(rename = "address")]
    pub url_sha256: String,
    /// SHA-256 of the download, which may be an archive.
    #[serde(rename = "download")]
    pub download_sha256: String,
    /// SHA-256 of the installed file.
    #[serde(rename = "installed")]
    pub installed_sha256: String,
    #[serde(flatten)]
    pub version: Version,
}

impl TargetDir {
    /// Creates the directory if needed, takes the lock and deletes the temporary files of a killed process.
    pub(super) fn open(path: &Path) -> Result<Self, UpdateError> {
        std::fs::create_dir_all(path)?;
        let lock = File::create(path.join(LOCK_FILE))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(UpdateError::Locked),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let target_dir = TargetDir { path: path.to_owned(), _lock: lock };
        target_dir.delete_stale_files()?;
        Ok(target_dir)
    }

    fn delete_stale_files(&self) -> Result<(), UpdateError> {
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes()) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Creates a temporary file on the same file system. It is deleted on drop unless installed.
    pub(super) fn temp_file(&self) -> Result<NamedTempFile, UpdateError> {
        Ok(tempfile::Builder::new().prefix(TEMP_PREFIX).suffix(".part").tempfile_in(&self.path)?)
    }

    pub(super) fn file_path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Installs a complete file by rename: readers see either the old or the new file.
    pub(super) fn install(&self, file: NamedTempFile, name: &str) -> Result<PathBuf, UpdateError> {
        let target = self.file_path(name);
        // The service that reads the file often runs as another user.
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        atomic_file::commit(file, &target)?;
        Ok(target)
    }

    fn info_file(name: &str) -> String {
        format!(".{name}.json")
    }

    /// Reads the info of an installed file. `None` if it is missing, or if the file has changed since the installation.
    pub(super) fn install_info(&self, name: &str) -> Option<InstallInfo> {
        let text = std::fs::read(self.file_path(&Self::info_file(name))).ok()?;
        let info: InstallInfo = serde_json::from_slice(&text).ok()?;
        let installed = file_sha256(&self.file_path(name)).ok()?;
        (installed == info.installed_sha256).then_some(info)
    }

    pub(super) fn write_install_info(&self, name: &str, info: &InstallInfo) -> Result<(), UpdateError> {
        let mut file = self.temp_file()?;
        file.write_all(&serde_json::to_vec(info).map_err(io::Error::other)?)?;
        self.install(file, &Self::info_file(name))?;
        Ok(())
    }
}

/// SHA-256 of a file, in hex.
pub(super) fn file_sha256(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(HEXLOWER.encode(&hasher.finalize())),
            count => hasher.update(&buffer[..count]),
        }
    }
}
