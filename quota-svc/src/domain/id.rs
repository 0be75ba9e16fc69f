//! IDs of accounts and keys: the first 128 bits of a SHA-256, displayed as 32 hexadecimal digits.

use std::fmt;

use api_key::{ApiKey, KeyDigest, RandomError};
use data_encoding::HEXLOWER;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Number of shards. The keys of an account are in its shard.
pub const SHARDS: u8 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an ID must be 32 lowercase hexadecimal digits")]
pub struct IdError;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            pub fn from_hex(text: &str) -> Result<Self, IdError> {
                let mut bytes = [0; 16];
                if text.len() != 32 {
                    return Err(IdError);
                }
                HEXLOWER.decode_mut(text.as_bytes(), &mut bytes).map_err(|_| IdError)?;
                Ok(Self(bytes))
            }

            pub fn shard(self) -> u8 {
                self.0[0] % SHARDS
            }

            /// Generates a key in this shard.
            pub fn generate_key(self) -> Result<ApiKey, RandomError> {
                ApiKey::generate_where(|digest| KeyId::of(digest).shard() == self.shard())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&HEXLOWER.encode(&self.0))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::from_hex(&String::deserialize(deserializer)?).map_err(D::Error::custom)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

id! {
    /// The first 128 bits of the key's SHA-256.
    KeyId
}

id! {
    /// The first 128 bits of the login's SHA-256. A login has only one ID, so it can't be taken twice.
    AccountId
}

impl KeyId {
    pub fn of(digest: &KeyDigest) -> Self {
        Self(digest.0.as_chunks().0[0])
    }
}

impl AccountId {
    /// `login` must be normalized (see [`super::account::Login`]).
    pub fn of(login: &str) -> Self {
        Self(Sha256::digest(login.as_bytes()).as_chunks().0[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_malformed_hex_is_rejected() {
        let id = KeyId([0xa5; 16]);
        assert_eq!(KeyId::from_hex(&id.to_string()), Ok(id));
        for malformed in ["", "a5", &"A5".repeat(16), &"a5".repeat(17)] {
            assert_eq!(KeyId::from_hex(malformed), Err(IdError));
        }
    }

    #[test]
    fn generated_key_is_in_the_shard_of_the_id_after_a_bounded_number_of_tries() {
        for first in [0, 1, 63, 64, 200, 255] {
            let (account, mut tries) = (AccountId([first; 16]), 0);
            assert_eq!(account.shard(), first % 64);
            let key = ApiKey::generate_where(|digest| {
                tries += 1;
                KeyId::of(digest).shard() == account.shard()
            });
            let copy = KeyId::of(&key.unwrap().digest()).generate_key().unwrap();
            for key in [copy, account.generate_key().unwrap()] {
                assert_eq!(key.digest().0[0] % 64, first % 64);
            }
            // More have a probability of e^-31.
            assert!(tries < 2_000, "{tries}");
        }
    }
}
