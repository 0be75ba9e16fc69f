//! The format of API keys: generates, parses and hashes them.
//!
//! A key is `ipl_`, 32 random base62 characters (190 bits) and a 6-character base62 checksum: the CRC-32 of everything
//! before it. With the checksum a service can reject a mistyped key without a store call, and a secret scanner can
//! tell a real key from a lookalike: [`PATTERN`] finds candidates, [`ApiKey::parse`] confirms them.

#![warn(missing_docs)]

mod base62;
mod digest;

use std::fmt;

use crc::{CRC_32_ISO_HDLC, Crc};
pub use digest::{DigestError, KeyDigest};
use sha2::{Digest, Sha256};

/// The prefix of every key.
pub const PREFIX: &str = "ipl_";

/// Regular expression for secret scanners. A match is a key only if its checksum is valid too.
pub const PATTERN: &str = r"\bipl_[0-9A-Za-z]{38}\b";

const RANDOM_LEN: usize = 32;
const CHECKSUM_LEN: usize = 6;
const CHECKSUM_START: usize = PREFIX.len() + RANDOM_LEN;
const KEY_LEN: usize = CHECKSUM_START + CHECKSUM_LEN;
const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// An API key with a valid format and checksum. `Debug` output is redacted.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey([u8; KEY_LEN]);

/// Why a string is not an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not `ipl_` followed by 38 letters and digits.
    #[error("an API key is `ipl_` followed by 38 letters and digits")]
    Format,
    /// Valid format but wrong checksum: the key was mistyped.
    #[error("the API key's checksum does not match: the key was mistyped")]
    Checksum,
}

impl ApiKey {
    /// Generates a key from the operating system's random source.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut key = [0; KEY_LEN];
        key[..PREFIX.len()].copy_from_slice(PREFIX.as_bytes());
        base62::fill_random(&mut key[PREFIX.len()..CHECKSUM_START])?;
        let checksum = checksum(&key[..CHECKSUM_START]);
        key[CHECKSUM_START..].copy_from_slice(&checksum);
        Ok(Self(key))
    }

    /// Parses a key, without allocating.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let key: [u8; KEY_LEN] = text.as_bytes().try_into().map_err(|_| ParseError::Format)?;
        let body = key.strip_prefix(PREFIX.as_bytes()).ok_or(ParseError::Format)?;
        if !body.iter().all(u8::is_ascii_alphanumeric) {
            return Err(ParseError::Format);
        }
        if key[CHECKSUM_START..] != checksum(&key[..CHECKSUM_START]) {
            return Err(ParseError::Checksum);
        }
        Ok(Self(key))
    }

    /// SHA-256 of the key. Stored and sent between services in place of the key.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest(Sha256::digest(self.0).into())
    }

    /// A short form such as `ipl_abcd…wxyz`, to tell keys apart in a list.
    pub fn hint(&self) -> String {
        let key = self.expose();
        format!("{}…{}", &key[..PREFIX.len() + 4], &key[KEY_LEN - 4..])
    }

    /// The key in plain text, to be shown to its owner once.
    pub fn expose(&self) -> &str {
        std::str::from_utf8(&self.0).expect("an API key is ASCII")
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(redacted)")
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    base62::encode_u32(CRC.checksum(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A key without its checksum. The checksum must never change, so that existing keys stay valid.
    const KNOWN_WITHOUT_CHECKSUM: &str = "ipl_0123456789ABCDEFGHIJKLMNOPQRSTUV";

    #[test]
    fn generated_key_parses() {
        let key = ApiKey::generate().unwrap();
        assert_eq!(key.expose().len(), KEY_LEN);
        assert!(key.expose().starts_with(PREFIX));
        assert_eq!(ApiKey::parse(key.expose()), Ok(key));
    }

    #[test]
    fn known_key_has_its_known_checksum() {
        // CRC-32 of the 36 bytes is 0x803e6820, checked against zlib.
        let crc = CRC.checksum(KNOWN_WITHOUT_CHECKSUM.as_bytes());
        let key =
            format!("{KNOWN_WITHOUT_CHECKSUM}{}", std::str::from_utf8(&base62::encode_u32(crc)).unwrap());
        assert_eq!(key, "ipl_0123456789ABCDEFGHIJKLMNOPQRSTUV2LbmYy");
    }

    #[test]
    fn generated_keys_differ() {
        assert_ne!(ApiKey::generate().unwrap(), ApiKey::generate().unwrap());
    }

    #[test]
    fn hint_shows_both_ends_and_debug_shows_nothing() {
        let key = ApiKey::generate().unwrap();
        let text = key.expose();
        assert_eq!(key.hint(), format!("{}…{}", &text[..8], &text[38..]));
        assert_eq!(format!("{key:?}"), "ApiKey(redacted)");
    }

    #[test]
    fn malformed_keys_are_rejected() {
        let key = ApiKey::generate().unwrap();
        let text = key.expose();
        let truncated = &text[..KEY_LEN - 1];
        let long = format!("{text}0");
        let other_prefix = text.replacen("ipl_", "iql_", 1);
        let with_dash = format!("{}-{}", &text[..10], &text[11..]);
        for wrong in ["", "ipl_", truncated, &long, &other_prefix, &with_dash, "ipl_ä"] {
            assert_eq!(ApiKey::parse(wrong), Err(ParseError::Format), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn one_changed_character_fails_the_checksum(at in PREFIX.len()..KEY_LEN, to in "[0-9A-Za-z]") {
            let key = ApiKey::generate().unwrap();
            let mut text = key.expose().to_owned();
            prop_assume!(text[at..=at] != to);
            text.replace_range(at..=at, &to);
            prop_assert_eq!(ApiKey::parse(&text), Err(ParseError::Checksum));
        }

        #[test]
        fn parse_never_panics(text in ".*") {
            let _ = ApiKey::parse(&text);
        }
    }
}
