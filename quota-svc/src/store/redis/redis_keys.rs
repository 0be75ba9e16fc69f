//! All Redis keys. Those of one shard, thus of an account with all its keys, share a hash tag and a slot of a Cluster.
//!
//! A Redis key is `PREFIX` + `2:` (the version of this schema) + `{TAG}:` + an ID, if there is one, + a letter:
//!
//! | Redis key | type | content |
//! |---|---|---|
//! | `{TAG}:ACCOUNT:a` | hash | an account: its rows (`domain/value.rs`), and its version in the field `v` |
//! | `{TAG}:KEY:k` | string | the record of a key (`domain/record/codec.rs`) |
//! | `{TAG}:KEY:e` | list | events of a key, newest first, at most 100 |
//! | `{TAG}:i` | set | IDs of the shard's accounts |
//! | `{TAG}:x` | sorted set | IDs of keys that expire, by the time of the next notice about it |
//! | `{TAG}:q` | sorted set | IDs of accounts with notices, by when one is due |
//! | `{TAG}:n` | list | announcements, newest first; the last entry counts those that were dropped |
//! | `{demo}:d` | string | the demo's day and count; expires after two days |

use std::ops::RangeInclusive;

use data_encoding::HEXLOWER;

use crate::domain::id::{AccountId, KeyId, SHARDS};

/// A Cluster's slots, and those among which a shard has one.
pub const SLOTS: u16 = 16_384;
const SLOTS_PER_SHARD: u16 = SLOTS / SHARDS as u16;

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
    /// What the Redis keys of each shard begin with. The hash tag begins with the shard, and its slot is among the shard's slots.
    /// So shards are spread evenly over the slots, and over up to 16 masters.
    shards: Vec<String>,
}

impl RedisKeys {
    pub fn new(prefix: &str) -> Self {
        let prefix = format!("{prefix}2:");
        let start_of = |shard: u8| {
            let first = u16::from(shard) * SLOTS_PER_SHARD;
            let tag = tag_in(&format!("{shard:02x}"), first..=first + (SLOTS_PER_SHARD - 1));
            format!("{prefix}{{{tag}}}:")
        };
        let shards = (0..SHARDS).map(start_of).collect();
        Self { prefix, shards }
    }

    pub fn account(&self, id: AccountId) -> RedisKey {
        self.of_id(id.shard(), &id.0, ":a")
    }

    pub fn record(&self, id: KeyId) -> RedisKey {
        self.of_id(id.shard(), &id.0, ":k")
    }

    pub fn events(&self, id: KeyId) -> RedisKey {
        self.of_id(id.shard(), &id.0, ":e")
    }

    /// The set of accounts (`i`) of a shard, or its sorted set of expiring keys (`x`) or due accounts (`q`), or its list of announcements (`n`).
    pub fn of_shard(&self, shard: u8, letter: &str) -> RedisKey {
        self.of_id(shard, &[], letter)
    }

    pub fn demo(&self) -> RedisKey {
        RedisKey(format!("{}{{demo}}:d", self.prefix))
    }

    /// Avoids `format!`, which is slower: every charge builds a Redis key.
    fn of_id(&self, shard: u8, id: &[u8], ending: &str) -> RedisKey {
        let start = &self.shards[usize::from(shard)];
        let mut text = String::with_capacity(start.len() + 2 * id.len() + ending.len());
        text.push_str(start);
        HEXLOWER.encode_append(id, &mut text);
        text.push_str(ending);
        RedisKey(text)
    }
}

/// The Redis key of a record in one of these slots. It does not exist: those of records are longer.
pub fn unused_record(prefix: &str, slots: RangeInclusive<u16>) -> RedisKey {
    RedisKey(format!("{prefix}2:{{{}}}:k", tag_in("", slots)))
}

/// A hash tag that begins with `start`, in one of these slots.
fn tag_in(start: &str, slots: RangeInclusive<u16>) -> String {
    let mut tags = (0_u32..).map(|n| format!("{start}{n:x}"));
    tags.find(|tag| slots.contains(&slot_of(tag))).expect("every slot has a tag")
}

/// The slot of a hash tag: CRC-16/XMODEM modulo 16,384.
fn slot_of(tag: &str) -> u16 {
    const CRC: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);
    CRC.checksum(tag.as_bytes()) % SLOTS
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn slots_match_redis() {
        // From CLUSTER KEYSLOT of a real server.
        assert_eq!(slot_of("123456789"), 12_739);
        assert_eq!(slot_of("foo"), 12_182);
    }

    #[test]
    fn redis_keys_of_one_shard_share_a_slot_in_its_range() {
        let redis_keys = RedisKeys::new("ipl:");
        for shard in 0..SHARDS {
            let (account, key) = (AccountId([shard + 64; 16]), KeyId([shard; 16]));
            let first = u16::from(shard) * 256;
            let slot = redis_keys.account(account).slot();
            assert!((first..first + 256).contains(&slot), "shard {shard} in slot {slot}");
            let others = [redis_keys.record(key), redis_keys.events(key), redis_keys.of_shard(shard, "i")];
            assert!(others.iter().all(|redis_key| redis_key.slot() == slot), "{others:?}");
        }
        let record = redis_keys.record(KeyId([1; 16]));
        assert!(record.as_str().starts_with("ipl:2:{01"), "{record:?}");
        assert!(record.as_str().ends_with("}:01010101010101010101010101010101:k"), "{record:?}");
    }

    #[test]
    fn shards_are_spread_evenly_over_masters() {
        let redis_keys = RedisKeys::new("");
        for masters in [3, 6, 16] {
            let mut shards: HashMap<u32, u32> = HashMap::new();
            for shard in 0..SHARDS {
                let slot = u32::from(redis_keys.of_shard(shard, "i").slot());
                *shards.entry(slot * masters / u32::from(SLOTS)).or_default() += 1;
            }
            let most = f64::from(*shards.values().max().unwrap());
            assert!(most <= 1.35 * f64::from(SHARDS) / f64::from(masters), "{masters} masters: {shards:?}");
        }
    }

    #[test]
    fn unused_record_is_in_its_slots() {
        for slots in [0..=0, 1..=1, 16_383..=16_383, 5_461..=8_191] {
            let redis_key = unused_record("ipl:", slots.clone());
            assert!(slots.contains(&redis_key.slot()), "{redis_key:?} in {slots:?}");
        }
    }
}
