//! The format of API keys: generates, parses and hashes them.
//!
//! A key is `ipl_`, 32 random base62 characters (190 bits) and a 6-character base62 checksum: the CRC-32 of everything
//! before it. With the checksum a service can reject a mistyped key without a store call, and a secret scanner can
//! tell a real key from a lookalike.

#![warn(missing_docs)]

use std::fmt;

use crc::{CRC_32_ISO_HDLC, Crc};
use data_encoding::HEXLOWER;
pub use getrandom::Error as RandomError;
use sha2::{Digest, Sha256};

/// The prefix of every key.
pub const PREFIX: &str = "ipl_";

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
    pub fn generate() -> Result<Self, RandomError> {
        let mut key = [0; KEY_LEN];
        key[..PREFIX.len()].copy_from_slice(PREFIX.as_bytes());
        fill_random(&mut key[PREFIX.len()..CHECKSUM_START])?;
        let checksum = checksum(&key[..CHECKSUM_START]);
        key[CHECKSUM_START..].copy_from_slice(&checksum);
        Ok(Self(key))
    }

    /// Generates keys until the digest of one has a property. That of a digest in one of 64 shards takes 64 keys on average,
    /// some 20 µs, and leaves 184 random bits.
    pub fn generate_where(mut accepts: impl FnMut(&KeyDigest) -> bool) -> Result<Self, RandomError> {
        loop {
            let key = Self::generate()?;
            if accepts(&key.digest()) {
                return Ok(key);
            }
        }
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

    /// SHA-256 of the key. Stored and charged in place of the key.
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
    encode_u32(CRC.checksum(bytes))
}

/// SHA-256 of an API key: what is stored and charged. Only the response that creates a key contains the key itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest(pub [u8; 32]);

/// The string is not 64 lowercase hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 digest must be 64 lowercase hexadecimal digits")]
pub struct DigestError;

impl KeyDigest {
    /// Parses 64 lowercase hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, DigestError> {
        let mut bytes = [0; 32];
        if text.len() != 64 {
            return Err(DigestError);
        }
        HEXLOWER.decode_mut(text.as_bytes(), &mut bytes).map_err(|_| DigestError)?;
        Ok(Self(bytes))
    }

    /// Formats the digest as 64 lowercase hexadecimal digits.
    pub fn to_hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

// Redacted: a digest identifies a key, so it must not appear in logs either.
impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(redacted)")
    }
}

/// The digits of base62.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The largest multiple of 62 that fits in a byte. Random bytes from this value up are discarded: their remainders
/// would favor the first eight characters.
const UNBIASED: u8 = 248;

/// Fills `out` with random base62 characters, each equally likely.
fn fill_random(out: &mut [u8]) -> Result<(), RandomError> {
    let mut filled = 0;
    while filled < out.len() {
        let mut pool = [0; 64];
        getrandom::fill(&mut pool)?;
        let unbiased = pool.iter().filter(|byte| **byte < UNBIASED);
        for (slot, byte) in out[filled..].iter_mut().zip(unbiased) {
            *slot = ALPHABET[usize::from(byte % 62)];
            filled += 1;
        }
    }
    Ok(())
}

/// Encodes a number as six base62 digits, most significant first.
fn encode_u32(mut number: u32) -> [u8; 6] {
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(number % 62) as usize];
        number /= 62;
    }
    digits
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
        let key = format!("{KNOWN_WITHOUT_CHECKSUM}{}", std::str::from_utf8(&encode_u32(crc)).unwrap());
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

    #[test]
    fn hex_round_trips_and_invalid_hex_is_rejected() {
        let digest = KeyDigest([0xab; 32]);
        assert_eq!(KeyDigest::from_hex(&digest.to_hex()), Ok(digest));
        let upper = "AB".repeat(32);
        for wrong in ["", "ab", &upper, &"g".repeat(64), &"a".repeat(66)] {
            assert_eq!(KeyDigest::from_hex(wrong), Err(DigestError), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_padded_to_six_digits() {
        assert_eq!(&encode_u32(0), b"000000");
        assert_eq!(&encode_u32(61), b"00000z");
        assert_eq!(&encode_u32(62), b"000010");
        assert_eq!(&encode_u32(u32::MAX), b"4gfFC3");
    }

    #[test]
    fn random_characters_cover_the_alphabet() {
        let mut many = vec![0; 20_000];
        fill_random(&mut many).unwrap();
        for character in ALPHABET {
            let count = many.iter().filter(|byte| *byte == character).count();
            // 323 are expected; 200 is more than six standard deviations below that.
            assert!(count > 200, "{} occurs {count} times", char::from(*character));
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
