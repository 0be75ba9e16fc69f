//! The files in `acme` inside the data directory, readable only by the user who runs ip-lookup.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base::atomic_file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Has the private key, the certificate and its chain. In one file, so that they always belong together.
pub const CERTIFICATE: &str = "certificate.pem";
/// A [`StoredAccount`].
pub const ACCOUNT: &str = "account.json";
/// A [`State`](super::State).
pub const STATE: &str = "state.json";

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

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// Reads a JSON file. `None` if it is missing. One that is damaged is logged and replaced later.
    pub fn read<T: DeserializeOwned>(&self, file: &str) -> Option<T> {
        let path = self.path(file);
        let parsed = serde_json::from_slice(&fs::read(&path).ok()?);
        parsed
            .inspect_err(|error| tracing::warn!(file = %path.display(), %error, "file is damaged; ignored"))
            .ok()
    }

    pub fn write_json(&self, file: &str, value: &impl Serialize) -> anyhow::Result<()> {
        self.write(file, &serde_json::to_vec_pretty(value)?)
    }

    pub fn write(&self, file: &str, content: &[u8]) -> anyhow::Result<()> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        let written = created.and_then(|()| atomic_file::replace(&self.path(file), content));
        written.context("can't write to the data directory")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::State;
    use super::*;

    #[test]
    fn files_are_private_and_damaged_ones_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let files = AcmeFiles::new(dir.path());
        let read = || files.read::<State>(STATE);
        assert_eq!(read(), None);
        assert!(!dir.path().join("acme").exists(), "reading creates nothing");
        let state = State { issued_by: Some("https://ca.example".to_owned()), failures: None };
        files.write_json(STATE, &state).unwrap();
        files.write(CERTIFICATE, b"certificate").unwrap();
        assert_eq!(read(), Some(state));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir.path().join("acme")), 0o700);
        assert_eq!(
            (mode(&files.path(CERTIFICATE)), mode(&dir.path().join("acme/state.json"))),
            (0o600, 0o600)
        );
        fs::write(dir.path().join("acme/state.json"), "{").unwrap();
        assert_eq!(read(), None);
    }
}
