//! All Redis keys. Those of one API key, or of one account, share a hash tag and thus a slot of a Cluster.
//!
//! A Redis key is `PREFIX` + `1:` (the version of this schema) + `{TAG}:` + a letter:
//!
//! | Redis key | type | content |
//! |---|---|---|
//! | `{key id}:k` | string | the record (`domain/record/codec.rs`) |
//! | `{key id}:m` | string | metadata as JSON (`KeyMeta` in `domain/key.rs`) |
//! | `{key id}:e` | list | events, newest first, at most 100 |
//! | `{account id}:a` | hash | login, created, credential, version, contact, `delivery:CHANNEL`; `deleting` during a deletion |
//! | `{account id}:p` | hash | reservations: key ID → time of the reservation |
//! | `{account id}:s` | hash | sessions: SHA-256 of the session ID → expiry; the hash expires with the last session |
//! | `{00}:i` … `{3f}:i` | set | IDs of all accounts, in 64 shards |
//! | `{demo}:d` | string | the demo's day and count; expires after two days |
//! | `{outbox}:l:ACCOUNT:CHANNEL` | list | an account's notices that wait for their delivery, oldest first, at most 100 |
//! | `{outbox}:n` | sorted set | announcements, by their time: notices whose accounts are not known yet |
//! | `{outbox}:x` | sorted set | IDs of keys that expire, by the time of the next notice about it |
//! | `{outbox}:q` | sorted set | `ACCOUNT:CHANNEL` → when its oldest notice is due |
//! | `{outbox}:c` | hash | `ACCOUNT:CHANNEL` → claim of its oldest notice and failed attempts; an empty field counts the claims |

use std::ops::RangeInclusive;

use data_encoding::HEXLOWER;

use crate::domain::id::{AccountId, KeyId};
use crate::domain::notice::Queue;

/// Number of sets that the index of accounts is spread over.
pub const INDEX_SHARDS: u8 = 64;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RedisKey(String);

impl RedisKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hash slot. Computed on demand, because only a Cluster needs it.
    pub fn slot(&self) -> u16 {
        let tag = self.0.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        slot_of(tag.map_or(&*self.0, |(tag, _)| tag))
    }
}

#[derive(Debug, Clone)]
pub struct RedisKeys {
    prefix: String,
}

impl RedisKeys {
    pub fn new(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}1:") }
    }

    /// Record, metadata and events of an API key.
    pub fn key(&self, id: KeyId) -> [RedisKey; 3] {
        ['k', 'm', 'e'].map(|letter| self.of_id(&id.0, letter))
    }

    pub fn record(&self, id: KeyId) -> RedisKey {
        self.of_id(&id.0, 'k')
    }

    /// An account, its reservations and its sessions.
    pub fn account(&self, id: AccountId) -> [RedisKey; 3] {
        ['a', 'p', 's'].map(|letter| self.of_id(&id.0, letter))
    }

    pub fn index_of(&self, id: AccountId) -> RedisKey {
        self.index(id.0[0] % INDEX_SHARDS)
    }

    pub fn index(&self, shard: u8) -> RedisKey {
        self.of_id(&[shard], 'i')
    }

    pub fn demo(&self) -> RedisKey {
        RedisKey(format!("{}{{demo}}:d", self.prefix))
    }

    /// The outbox: announcements, when notices are due, and the claims.
    pub fn outbox(&self) -> [RedisKey; 3] {
        ['n', 'q', 'c'].map(|letter| RedisKey(format!("{}{{outbox}}:{letter}", self.prefix)))
    }

    /// The keys that expire, by the time of the next notice about it.
    pub fn expiring(&self) -> RedisKey {
        RedisKey(format!("{}{{outbox}}:x", self.prefix))
    }

    pub fn notices(&self, queue: Queue) -> RedisKey {
        RedisKey(format!("{}{{outbox}}:l:{queue}", self.prefix))
    }

    /// The Redis key of a record in one of these slots. It does not exist: the IDs of keys are longer.
    pub fn unused_record(&self, slots: RangeInclusive<u16>) -> RedisKey {
        let mut tags = (0_u32..).map(|n| n.to_string());
        let tag = tags.find(|tag| slots.contains(&slot_of(tag))).expect("every slot has a tag");
        RedisKey(format!("{}{{{tag}}}:k", self.prefix))
    }

    /// Avoids `format!`, which is slower: every charge builds a Redis key.
    fn of_id(&self, id: &[u8], letter: char) -> RedisKey {
        let mut text = String::with_capacity(self.prefix.len() + 2 * id.len() + "{}:k".len());
        text.push_str(&self.prefix);
        text.push('{');
        HEXLOWER.encode_append(id, &mut text);
        text.push_str("}:");
        text.push(letter);
        RedisKey(text)
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
    fn slots_match_redis() {
        // From CLUSTER KEYSLOT of a real server.
        assert_eq!(slot_of("123456789"), 12_739);
        assert_eq!(slot_of("foo"), 12_182);
    }

    #[test]
    fn redis_keys_of_one_api_key_share_a_slot() {
        let redis_keys = RedisKeys::new("ipl:").key(KeyId([1; 16]));
        assert_eq!(redis_keys[0].as_str(), "ipl:1:{01010101010101010101010101010101}:k");
        let slot = slot_of("01010101010101010101010101010101");
        assert!(redis_keys.iter().all(|redis_key| redis_key.slot() == slot));
    }

    #[test]
    fn unused_record_is_in_its_slots() {
        let redis_keys = RedisKeys::new("ipl:");
        for slots in [0..=0, 1..=1, 16_383..=16_383, 5_461..=8_191] {
            let redis_key = redis_keys.unused_record(slots.clone());
            assert!(slots.contains(&redis_key.slot()), "{redis_key:?} in {slots:?}");
        }
    }
}
