//! The key that encrypts cookies and tokens. dashboard-api reads it from a file that all replicas share; standalone creates
//! the file if it is missing.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use base::atomic_file;
use data_encoding::BASE64URL_NOPAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use secrecy::{ExposeSecret, SecretSlice};

const MIN_BYTES: usize = 32;
/// A longer file is probably not a session key, so it is rejected.
const MAX_BYTES: usize = 4096;

/// 32 or more random bytes. `Debug` redacts them.
#[derive(Debug, Clone)]
pub struct SessionKey(SecretSlice<u8>);

impl SessionKey {
    pub fn from_bytes(bytes: Vec<u8>) -> anyhow::Result<Self> {
        match bytes.len() {
            MIN_BYTES..=MAX_BYTES => Ok(Self(bytes.into())),
            length => bail!(
                "the session key must have {MIN_BYTES} to {MAX_BYTES} bytes; this one has {} bytes",
                if length > MAX_BYTES { "more".to_owned() } else { length.to_string() }
            ),
        }
    }

    pub fn generate() -> anyhow::Result<Self> {
        let mut bytes = vec![0; MIN_BYTES];
        getrandom::fill(&mut bytes).context("can't get random bytes from the operating system")?;
        Self::from_bytes(bytes)
    }

    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("--session-key-file {}", path.display());
        let file = File::open(path).with_context(context)?;
        let mode = file.metadata().with_context(context)?.permissions().mode();
        // Only the permissions of "others" are checked, not the group's: Kubernetes makes mounted secrets readable for
        // the pod's group.
        if mode & 0o007 != 0 {
            let mode = format!("{:o}", mode & 0o777);
            tracing::warn!(file = %path.display(), mode, "other users can read the session key; run chmod 600 on it");
        }
        let mut bytes = Vec::new();
        // Not more than a valid key can have, and one byte: the path may name a device or a huge file by mistake.
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).with_context(context)?;
        Self::from_bytes(bytes).with_context(context)
    }

    /// Reads the key from a file, or creates the file with a new key.
    pub fn load_or_create(path: &Path) -> anyhow::Result<Self> {
        if path.exists() {
            return Self::load(path);
        }
        let key = Self::generate()?;
        match atomic_file::create(path, key.0.expose_secret()) {
            Ok(()) => Ok(key),
            // Another process has just created it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            Err(error) => {
                Err(error).with_context(|| format!("can't write the session key {}", path.display()))
            }
        }
    }

    /// Derives the key of one purpose by HKDF, so one file gives independent keys.
    pub fn sealer(&self, purpose: &str) -> Sealer {
        let (secret, purpose) = (self.0.expose_secret(), [purpose.as_bytes()]);
        let derived = Salt::new(HKDF_SHA256, b"ip-lookup dashboard").extract(secret);
        let derived = derived.expand(&purpose, &CHACHA20_POLY1305);
        let derived = derived.expect("HKDF can produce output of the length of this key");
        Sealer(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

/// Encrypts and authenticates what a client keeps until it expires.
pub struct Sealer(LessSafeKey);

impl Sealer {
    /// `expires` is in Unix time, in seconds. The result can be opened with the same context only.
    pub fn seal(&self, content: &str, context: &str, expires: u64) -> Result<String, getrandom::Error> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce)?;
        let mut sealed = [&expires.to_be_bytes(), content.as_bytes()].concat();
        // Random nonces are safe here: one key seals far fewer than 2^32 texts.
        let unique = Nonce::assume_unique_for_key(nonce);
        let result = self.0.seal_in_place_append_tag(unique, Aad::from(context), &mut sealed);
        result.expect("the content is far shorter than the cipher's limit");
        Ok(BASE64URL_NOPAD.encode(&[nonce.as_slice(), &sealed].concat()))
    }

    /// `None` if the text is malformed, was changed, has another context or has expired.
    pub fn open(&self, text: &str, context: &str, now: u64) -> Option<String> {
        let mut bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk_mut::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, Aad::from(context), sealed).ok()?;
        let (expires, content) = opened.split_first_chunk()?;
        let content = String::from_utf8(content.to_vec()).ok()?;
        (u64::from_be_bytes(*expires) > now).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn key_file_is_created_once_with_mode_600() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("session.key");
        let created = SessionKey::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let loaded = SessionKey::load_or_create(&path).unwrap();
        assert_eq!(created.0.expose_secret(), loaded.0.expose_secret());
        assert_eq!(format!("{created:?}"), "SessionKey(SecretBox<[u8]>([REDACTED]))");
    }

    #[test]
    fn short_key_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("short.key");
        fs::write(&path, [7; 31]).unwrap();
        let error = format!("{:#}", SessionKey::load(&path).unwrap_err());
        assert!(error.contains("short.key") && error.contains("31 bytes"), "{error}");
    }

    #[test]
    fn endless_file_is_not_read_to_its_end() {
        let error = format!("{:#}", SessionKey::load(Path::new("/dev/zero")).unwrap_err());
        assert!(error.contains("/dev/zero") && error.contains("more bytes"), "{error}");
    }
}
