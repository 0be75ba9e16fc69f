//! The key of the session cookies: from a file that all replicas share, or made by standalone.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, bail};
use ring::aead::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use secrecy::{ExposeSecret, SecretSlice};

/// The least that counts as a key.
const MIN_BYTES: usize = 32;
/// More than anybody means to give; a device file has no end.
const MAX_BYTES: usize = 4096;

/// What session cookies are encrypted with. Its `Debug` tells nothing.
#[derive(Debug, Clone)]
pub struct SessionKey(SecretSlice<u8>);

impl SessionKey {
    /// A key of these bytes: 32 or more, random.
    pub fn from_bytes(bytes: Vec<u8>) -> anyhow::Result<Self> {
        match bytes.len() {
            MIN_BYTES..=MAX_BYTES => Ok(Self(bytes.into())),
            length => bail!("the session key has {length} bytes; it needs {MIN_BYTES} to {MAX_BYTES}"),
        }
    }

    /// A key for as long as this process lives.
    pub fn generate() -> anyhow::Result<Self> {
        let mut bytes = vec![0; MIN_BYTES];
        getrandom::fill(&mut bytes).context("the system gives no random numbers")?;
        Self::from_bytes(bytes)
    }

    /// The key in this file.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let about = || format!("--session-key-file {}", path.display());
        let bytes = fs::read(path).with_context(about)?;
        let mode = fs::metadata(path).with_context(about)?.permissions().mode();
        // Kubernetes gives secrets to the pod's group, which is as private as it gets there.
        if mode & 0o007 != 0 {
            let mode = format!("{:o}", mode & 0o777);
            tracing::warn!(file = %path.display(), mode, "others can read the session key: chmod 600 it");
        }
        Self::from_bytes(bytes).with_context(about)
    }

    /// The key in this file, made first where there is none.
    pub fn load_or_create(path: &Path) -> anyhow::Result<Self> {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(mut file) => {
                let key = Self::generate()?;
                file.write_all(key.0.expose_secret())
                    .and_then(|()| file.sync_all())
                    .context("writing the session key")?;
                Ok(key)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            Err(error) => Err(error).with_context(|| format!("the session key {}", path.display())),
        }
    }

    /// The cipher's key, derived so that the file's bytes may serve another purpose one day.
    pub(super) fn cipher(&self) -> LessSafeKey {
        let derived = Salt::new(HKDF_SHA256, b"ip-lookup dashboard").extract(self.0.expose_secret());
        let derived = derived
            .expand(&[b"session cookie v1"], &CHACHA20_POLY1305)
            .expect("the length is the cipher's own");
        LessSafeKey::new(UnboundKey::from(derived))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.key");
        let made = SessionKey::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = SessionKey::load_or_create(&path).unwrap();
        assert_eq!(made.0.expose_secret(), again.0.expose_secret());
        assert_eq!(format!("{made:?}"), "SessionKey(SecretBox<[u8]>([REDACTED]))");
    }

    #[test]
    fn too_short_a_key_is_refused_with_the_files_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("short.key");
        fs::write(&path, [7; 31]).unwrap();
        let error = format!("{:#}", SessionKey::load(&path).unwrap_err());
        assert!(error.contains("short.key") && error.contains("31 bytes"), "{error}");
    }
}
