//! SHA-256 of an API key, the only form in which a key is stored and sent between services.

use std::fmt;

use data_encoding::HEXLOWER;

/// SHA-256 of an API key.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_invalid_hex_is_rejected() {
        let digest = KeyDigest([0xab; 32]);
        assert_eq!(KeyDigest::from_hex(&digest.to_hex()), Ok(digest));
        let upper = "AB".repeat(32);
        for wrong in ["", "ab", &upper, &"g".repeat(64), &"a".repeat(66)] {
            assert_eq!(KeyDigest::from_hex(wrong), Err(DigestError), "{wrong}");
        }
    }
}
