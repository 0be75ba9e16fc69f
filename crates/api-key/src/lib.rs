//! The format of an API key: generate, parse, checksum, SHA-256; nothing else.
//!
//! A key is `ipl_`, 32 base62 characters of OS randomness (190 bits) and 6 base62 characters of CRC-32 over
//! everything before them. The checksum lets a service refuse a mistyped key without asking the store, and lets
//! secret scanners tell a real key from a look-alike: [`PATTERN`] finds candidates, [`ApiKey::parse`] confirms them.

mod base62;
mod digest;

use std::fmt;

use crc::{CRC_32_ISO_HDLC, Crc};
pub use digest::{DigestError, KeyDigest};
use sha2::{Digest, Sha256};

/// What every key starts with.
pub const PREFIX: &str = "ipl_";

/// The regular expression for secret scanners; a match is a key if its checksum holds too.
pub const PATTERN: &str = r"\bipl_[0-9A-Za-z]{38}\b";

const RANDOM_LEN: usize = 32;
const CHECKSUM_LEN: usize = 6;
const CHECKSUM_AT: usize = PREFIX.len() + RANDOM_LEN;
const KEY_LEN: usize = CHECKSUM_AT + CHECKSUM_LEN;
const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// An API key whose form and checksum are right. It never shows itself in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey([u8; KEY_LEN]);

/// Why a text is not an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not `ipl_` and 38 letters or digits.
    #[error("an API key is `ipl_` followed by 38 letters and digits")]
    Form,
    /// The form is right and the checksum is not: mistyped or cut.
    #[error("the API key's checksum does not match: it was mistyped or cut")]
    Checksum,
}

impl ApiKey {
    /// A new key from the operating system's randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut key = [0; KEY_LEN];
        key[..PREFIX.len()].copy_from_slice(PREFIX.as_bytes());
        base62::fill_random(&mut key[PREFIX.len()..CHECKSUM_AT])?;
        let checksum = checksum(&key[..CHECKSUM_AT]);
        key[CHECKSUM_AT..].copy_from_slice(&checksum);
        Ok(Self(key))
    }

    /// Reads a key; costs no allocation and touches no store.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let key: [u8; KEY_LEN] = text.as_bytes().try_into().map_err(|_| ParseError::Form)?;
        let body = key.strip_prefix(PREFIX.as_bytes()).ok_or(ParseError::Form)?;
        if !body.iter().all(u8::is_ascii_alphanumeric) {
            return Err(ParseError::Form);
        }
        if key[CHECKSUM_AT..] != checksum(&key[..CHECKSUM_AT]) {
            return Err(ParseError::Checksum);
        }
        Ok(Self(key))
    }

    /// What is stored and sent between services instead of the key.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest(Sha256::digest(self.0).into())
    }

    /// `ipl_abcd…wxyz`: enough to tell keys apart in a list, too little to guess one.
    pub fn hint(&self) -> String {
        let key = self.expose();
        format!("{}…{}", &key[..PREFIX.len() + 4], &key[KEY_LEN - 4..])
    }

    /// The key itself, to be shown to its owner once.
    pub fn expose(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a key is ASCII")
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(redacted)")
    }
}

fn checksum(of: &[u8]) -> [u8; CHECKSUM_LEN] {
    base62::encode_u32(CRC.checksum(of))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fixed for ever: keys in the field must go on parsing.
    const KNOWN: &str = "ipl_0123456789ABCDEFGHIJKLMNOPQRSTUV";

    #[test]
    fn a_generated_key_parses_and_has_the_published_form() {
        let key = ApiKey::generate().unwrap();
        assert_eq!(key.expose().len(), KEY_LEN);
        assert!(key.expose().starts_with(PREFIX));
        assert_eq!(ApiKey::parse(key.expose()), Ok(key));
    }

    #[test]
    fn the_checksum_of_a_known_key_never_changes() {
        // CRC-32 of the 36 bytes is 0x803e6820, checked against zlib.
        let crc = CRC.checksum(KNOWN.as_bytes());
        let whole = format!("{KNOWN}{}", std::str::from_utf8(&base62::encode_u32(crc)).unwrap());
        assert_eq!(whole, "ipl_0123456789ABCDEFGHIJKLMNOPQRSTUV2LbmYy");
    }

    #[test]
    fn two_keys_differ() {
        assert_ne!(ApiKey::generate().unwrap(), ApiKey::generate().unwrap());
    }

    #[test]
    fn the_hint_shows_eight_characters_and_debug_none() {
        let key = ApiKey::generate().unwrap();
        let text = key.expose();
        assert_eq!(key.hint(), format!("{}…{}", &text[..8], &text[38..]));
        assert_eq!(format!("{key:?}"), "ApiKey(redacted)");
    }

    #[test]
    fn wrong_forms_are_refused() {
        let key = ApiKey::generate().unwrap();
        let text = key.expose();
        let cut = &text[..KEY_LEN - 1];
        let long = format!("{text}0");
        let other_prefix = text.replacen("ipl_", "iql_", 1);
        let dashed = format!("{}-{}", &text[..10], &text[11..]);
        for wrong in ["", "ipl_", cut, &long, &other_prefix, &dashed, "ipl_ä"] {
            assert_eq!(ApiKey::parse(wrong), Err(ParseError::Form), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn one_changed_character_never_passes(at in PREFIX.len()..KEY_LEN, to in "[0-9A-Za-z]") {
            let key = ApiKey::generate().unwrap();
            let mut text = key.expose().to_owned();
            prop_assume!(text[at..=at] != to);
            text.replace_range(at..=at, &to);
            prop_assert_eq!(ApiKey::parse(&text), Err(ParseError::Checksum));
        }

        #[test]
        fn any_text_is_answered_without_a_panic(text in ".*") {
            let _ = ApiKey::parse(&text);
        }
    }
}
