//! The names in Redis, all of them. What one API key or one account has shares a hash tag, so a slot in a Cluster.
//!
//! `PREFIX` + `1:` (the version of this schema) + `{TAG}` + a letter:
//!
//! | name | type | what |
//! |---|---|---|
//! | `{key id}:k` | string | the record (`domain/record/codec.rs`) |
//! | `{key id}:m` | hash | description: account, name, hint, digest, created |
//! | `{key id}:e` | list | events, newest first, at most 100 |
//! | `{account id}:a` | hash | login, created, credential, version |
//! | `{account id}:p` | hash | places: key id → when it was reserved |
//! | `{account id}:s` | hash | sessions: SHA-256 of the id → when it ends; expires with the last |
//! | `{00}:i` … `{3f}:i` | set | the ids of all accounts, in 64 parts |
//! | `{demo}:d` | string | the demo's day and count; expires after two days |

use data_encoding::HEXLOWER;

use crate::domain::id::{AccountId, KeyId};

/// How many sets the index of accounts is spread over.
pub const INDEX_PARTS: u8 = 64;

/// A name with its tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

impl Name {
    /// As it is sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The slot of a Cluster it lives in; only a Cluster asks for it, so that it is not worked out before.
    pub fn slot(&self) -> u16 {
        let tag = self.0.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        slot_of(tag.map_or(&*self.0, |(tag, _)| tag))
    }
}

/// Makes names under one prefix.
#[derive(Debug, Clone)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// Names that start with `prefix`.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}1:") }
    }

    /// Record, description and events of a key.
    pub fn key(&self, id: KeyId) -> [Name; 3] {
        ['k', 'm', 'e'].map(|letter| self.of_id(&id.0, letter))
    }

    /// The record of a key.
    pub fn record(&self, id: KeyId) -> Name {
        self.of_id(&id.0, 'k')
    }

    /// An account, its places and its sessions.
    pub fn account(&self, id: AccountId) -> [Name; 3] {
        ['a', 'p', 's'].map(|letter| self.of_id(&id.0, letter))
    }

    /// The part of the index that an account is in.
    pub fn index_of(&self, id: AccountId) -> Name {
        self.index(id.0[0] % INDEX_PARTS)
    }

    /// One part of the index.
    pub fn index(&self, part: u8) -> Name {
        self.of_id(&[part], 'i')
    }

    /// The demo's counter.
    pub fn demo(&self) -> Name {
        Name(format!("{}{{demo}}:d", self.prefix))
    }

    /// Each charge has one: put together without the machinery of `format!`.
    fn of_id(&self, id: &[u8], letter: char) -> Name {
        let mut text = String::with_capacity(self.prefix.len() + 2 * id.len() + "{}:k".len());
        text.push_str(&self.prefix);
        text.push('{');
        HEXLOWER.encode_append(id, &mut text);
        text.push_str("}:");
        text.push(letter);
        Name(text)
    }
}

/// The slot of a hash tag: CRC-16/XMODEM modulo 16,384.
fn slot_of(tag: &str) -> u16 {
    const CRC: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);
    CRC.checksum(tag.as_bytes()) % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // CLUSTER KEYSLOT of a real server.
        assert_eq!(slot_of("123456789"), 12_739);
        assert_eq!(slot_of("foo"), 12_182);
    }

    #[test]
    fn what_belongs_together_shares_a_tag() {
        let names = Names::new("ipl:").key(KeyId([1; 16]));
        assert_eq!(names[0].as_str(), "ipl:1:{01010101010101010101010101010101}:k");
        assert!(names.iter().all(|name| name.slot() == slot_of("01010101010101010101010101010101")));
    }
}
