//! The binary encoding of a record, identical in Redis and in the embedded store: see "Record format" in `docs/architecture.md`.
//! `lua/charge.lua` uses the same offsets.

use quota_api::{KeyState, Scope};

use super::super::id::AccountId;
use super::super::window::BurstWindow;
use super::KeyRecord;

/// Records of another version are never rewritten.
const VERSION: u8 = 1;
/// Days of usage stored in addition to the current day.
pub const USAGE_DAYS: usize = 31;
/// The first bytes of a record, which changes of a key replace. Of these, charges write only state, announcement and time.
pub const HEAD_BYTES: usize = 20;
const UNANNOUNCED: u8 = 1;
const RESTRICTED: u8 = 2;
const SUSPENDED: u8 = 4;
/// The level's place in the number with the day.
const LEVEL: u32 = 1 << 24;
const USAGE_OFFSET: usize = 60;
const ACCOUNT_OFFSET: usize = USAGE_OFFSET + 4 * USAGE_DAYS;
const ORIGINS_OFFSET: usize = ACCOUNT_OFFSET + 16;
const ORIGIN_BYTES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    #[error("the record is too short ({0} bytes)")]
    Short(usize),
    #[error("the record has format version {0}, which this quota-svc does not support")]
    Version(u8),
    #[error("the record's {0} is invalid")]
    Field(&'static str),
}

pub fn encode(record: &KeyRecord) -> Vec<u8> {
    let window = &record.window;
    let mut out = encode_head(record).to_vec();
    out.extend((record.day % LEVEL + u32::from(record.level) * LEVEL).to_le_bytes());
    out.extend(record.used.to_le_bytes());
    out.extend(window.last.to_le_bytes());
    out.extend(u32::from(window.limit).to_le_bytes());
    let [capacity, origins] =
        [window.ring.len(), record.origins.len()].map(|length| u16::try_from(length).unwrap_or(u16::MAX));
    for field in [capacity, window.len, window.head, origins] {
        out.extend(field.to_le_bytes());
    }
    out.extend(record.paused_at.to_le_bytes());
    out.extend([0; 4]);
    out.extend(record.past.iter().flat_map(|n| n.to_le_bytes()));
    out.extend(record.account.0);
    out.extend(record.origins.iter().flat_map(|hash| hash.to_be_bytes()));
    out.extend(window.ring.iter().flat_map(|n| n.to_le_bytes()));
    out
}

/// The first bytes of a record.
pub fn encode_head(record: &KeyRecord) -> [u8; HEAD_BYTES] {
    let flags = [
        (record.unannounced, UNANNOUNCED),
        (!record.origins.is_empty(), RESTRICTED),
        (record.suspended, SUSPENDED),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
    let mut out = [0; HEAD_BYTES];
    out[..4].copy_from_slice(&[VERSION, record.scope as u8, record.state as u8, flags]);
    out[4..8].copy_from_slice(&record.daily_limit.unwrap_or(0).to_le_bytes());
    out[8..16].copy_from_slice(&record.state_since.to_le_bytes());
    out[16..].copy_from_slice(&record.expires_at.unwrap_or(0).to_le_bytes());
    out
}

/// The account that has the key, even if the record can't be decoded. `None` if the record is too short to name it.
pub fn account_of(record: &[u8]) -> Option<AccountId> {
    (record.len() >= ORIGINS_OFFSET).then(|| AccountId(take(record, ACCOUNT_OFFSET)))
}

/// Never panics, whatever the input.
pub fn decode(bytes: &[u8]) -> Result<KeyRecord, CodecError> {
    match bytes.first() {
        None => return Err(CodecError::Short(0)),
        Some(&version) if version != VERSION => return Err(CodecError::Version(version)),
        Some(_) if bytes.len() < ORIGINS_OFFSET => return Err(CodecError::Short(bytes.len())),
        Some(_) => {}
    }
    let mut past = [0; USAGE_DAYS];
    for (day, count) in past.iter_mut().enumerate() {
        *count = u32_at(bytes, USAGE_OFFSET + 4 * day);
    }
    let ring_offset = ORIGINS_OFFSET + ORIGIN_BYTES * usize::from(u16_at(bytes, 46));
    let origins = bytes.get(ORIGINS_OFFSET..ring_offset).ok_or(CodecError::Short(bytes.len()))?;
    let origins: Vec<u128> =
        origins.as_chunks::<ORIGIN_BYTES>().0.iter().map(|hash| u128::from_be_bytes(*hash)).collect();
    if origins.is_empty() == (bytes[3] & RESTRICTED != 0) {
        return Err(CodecError::Field("number of origins"));
    }
    Ok(KeyRecord {
        scope: *Scope::ALL.get(usize::from(bytes[1])).ok_or(CodecError::Field("scope"))?,
        state: *KeyState::ALL.get(usize::from(bytes[2])).ok_or(CodecError::Field("state"))?,
        state_since: i64_at(bytes, 8),
        unannounced: bytes[3] & UNANNOUNCED != 0,
        origins,
        account: AccountId(take(bytes, ACCOUNT_OFFSET)),
        suspended: bytes[3] & SUSPENDED != 0,
        paused_at: i64_at(bytes, 48),
        daily_limit: Some(u32_at(bytes, 4)).filter(|limit| *limit > 0),
        expires_at: Some(u32_at(bytes, 16)).filter(|at| *at > 0),
        day: u32_at(bytes, 20) % LEVEL,
        level: bytes[23],
        used: u32_at(bytes, 24),
        past,
        window: decode_window(bytes, ring_offset)?,
    })
}

fn decode_window(bytes: &[u8], ring_offset: usize) -> Result<BurstWindow, CodecError> {
    let (capacity, len, head) = (u16_at(bytes, 40), u16_at(bytes, 42), u16_at(bytes, 44));
    let limit = u16::try_from(u32_at(bytes, 36)).map_err(|_| CodecError::Field("burst limit"))?;
    // `lua/charge.lua` appends to the string as the ring fills, so unused entries at the end may be missing.
    let used = head.saturating_add(len).min(capacity);
    let truncated = bytes.len() < ring_offset + 4 * usize::from(used);
    if len > capacity || (head >= capacity && head > 0) || capacity > limit || truncated {
        return Err(CodecError::Field("ring"));
    }
    let offsets = (0..usize::from(capacity)).map(|index| ring_offset + 4 * index);
    let ring = offsets.map(|at| if at + 4 <= bytes.len() { u32_at(bytes, at) } else { 0 }).collect();
    Ok(BurstWindow { last: i64_at(bytes, 28), limit, len, head, ring })
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(take(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(take(bytes, at))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(take(bytes, at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use quota_api::Limits;

    proptest! {
        #[test]
        fn record_round_trips(
            steps in prop::collection::vec((0i64..40_000_000, 1usize..6), 0..60),
            limit in proptest::option::of(1u32..50),
            expires_at in proptest::option::of(1u32..),
            (account, origins) in (any::<[u8; 16]>(), prop::collection::vec(any::<u128>(), 0..10)),
        ) {
            let limits = Limits { daily: 20, burst: 30, demo: 1 };
            let mut record = KeyRecord::new(Scope::Geo, limit, 1_700_000_000_000);
            (record.expires_at, record.account, record.origins) = (expires_at, AccountId(account), origins);
            let mut now = 1_700_000_000_000;
            for (step, times) in steps {
                now += step;
                for _ in 0..times {
                    record.charge(now, &limits);
                }
            }
            prop_assert_eq!(decode(&encode(&record)), Ok(record));
        }

        #[test]
        fn decode_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = decode(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn unknown_version_and_short_record_are_rejected() {
        assert_eq!(decode(&[]), Err(CodecError::Short(0)));
        assert_eq!(decode(&[2; 300]), Err(CodecError::Version(2)));
        assert_eq!(decode(&[VERSION; 100]), Err(CodecError::Short(100)));
    }

    #[test]
    fn truncated_ring_is_rejected() {
        let mut record = KeyRecord::new(Scope::Geo, None, 0);
        for _ in 0..5 {
            record.charge(0, &Limits { daily: 20, burst: 30, demo: 1 });
        }
        let bytes = encode(&record);
        assert!(decode(&bytes[..ORIGINS_OFFSET + 4 * 5]).is_ok(), "unused entries may be missing");
        assert_eq!(decode(&bytes[..ORIGINS_OFFSET + 4 * 5 - 1]), Err(CodecError::Field("ring")));
    }
}
