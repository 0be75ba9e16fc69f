//! The files in `acme` inside the data directory, readable only by the user who runs ip-lookup.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base::atomic_file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::schedule::State;

/// Paths of the files. The directory is created with the first file.
#[derive(Debug, Clone)]
pub struct AcmeFiles {
    dir: PathBuf,
}

/// The account at a CA.
#[derive(Serialize, Deserialize)]
pub struct StoredAccount {
    pub directory: String,
    pub email: String,
    /// Key ID of the external account binding.
    pub eab_kid: Option<String>,
    /// The account's URL and private key, in the format of instant-acme.
    pub credentials: serde_json::Value,
}

impl AcmeFiles {
    pub fn new(data_dir: &Path) -> Self {
        Self { dir: data_dir.join("acme") }
    }

    /// Has the private key, the certificate and its chain. In one file, so that they always belong together.
    pub fn certificate(&self) -> PathBuf {
        self.dir.join("certificate.pem")
    }

    pub fn read_certificate(&self) -> Option<Vec<u8>> {
        fs::read(self.certificate()).ok()
    }

    pub fn write_certificate(&self, pem: &str) -> anyhow::Result<()> {
        self.write(&self.certificate(), pem.as_bytes())
    }

    pub fn account(&self) -> Option<StoredAccount> {
        self.read(&self.account_file())
    }

    pub fn write_account(&self, account: &StoredAccount) -> anyhow::Result<()> {
        self.write(&self.account_file(), &serde_json::to_vec_pretty(account)?)
    }

    pub fn remove_account(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.account_file())?)
    }

    /// The default if there is no usable file.
    pub fn state(&self) -> State {
        self.read(&self.dir.join("state.json")).unwrap_or_default()
    }

    pub fn write_state(&self, state: &State) -> anyhow::Result<()> {
        self.write(&self.dir.join("state.json"), &serde_json::to_vec_pretty(state)?)
    }

    fn account_file(&self) -> PathBuf {
        self.dir.join("account.json")
    }

    /// `None` if the file is missing. One that is damaged is logged and replaced later.
    fn read<T: DeserializeOwned>(&self, path: &Path) -> Option<T> {
        let content = fs::read(path).ok()?;
        let parsed = serde_json::from_slice(&content);
        parsed
            .inspect_err(|error| tracing::warn!(file = %path.display(), %error, "file is damaged; ignored"))
            .ok()
    }

    fn write(&self, path: &Path, content: &[u8]) -> anyhow::Result<()> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        let written = created.and_then(|()| atomic_file::replace(path, content));
        written.context("can't write to the data directory")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_private_and_damaged_ones_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let files = AcmeFiles::new(dir.path());
        assert!(files.account().is_none() && files.state() == State::default());
        assert!(!dir.path().join("acme").exists(), "reading creates nothing");
        let state = State { issued_by: Some("https://ca.example".to_owned()), failures: None };
        files.write_state(&state).unwrap();
        files.write_certificate("certificate").unwrap();
        assert_eq!(files.state(), state);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir.path().join("acme")), 0o700);
        assert_eq!((mode(&files.certificate()), mode(&dir.path().join("acme/state.json"))), (0o600, 0o600));
        fs::write(dir.path().join("acme/state.json"), "{").unwrap();
        assert_eq!(files.state(), State::default());
    }
}
