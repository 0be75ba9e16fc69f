//! The packed form of a record, the same bytes in Redis and in the embedded store.
//!
//! Little endian. `lua/charge.lua` reads and writes these offsets too.
//!
//! | at | size | what |
//! |---|---|---|
//! | 0 | 1 | format version |
//! | 1 | 1 | scope |
//! | 2 | 1 | state |
//! | 4 | 4 | daily limit of its own, 0 for none |
//! | 8 | 8 | state since, ms |
//! | 16 | 4 | day that is being counted |
//! | 20 | 4 | requests charged on it |
//! | 24 | 8 | latest arrival, ms |
//! | 32 | 4 | burst limit under which the ring was laid |
//! | 36 | 2 + 2 + 2 | places in the ring, arrivals in it, where the oldest is |
//! | 44 | 31 × 4 | requests charged on days before, at their day modulo 31 |
//! | 168 | places × 4 | the ring: low 32 bits of arrival times, ms |

use quota_client::wire::{KeyState, Scope};

use super::super::window::Window;
use super::Record;

/// The format this version writes. A newer one is never touched.
const VERSION: u8 = 1;
/// How many days a record remembers besides today.
pub const USAGE_DAYS: usize = 31;
/// Where the days are.
const USAGE_AT: usize = 44;
/// Where the ring is.
const RING_AT: usize = USAGE_AT + 4 * USAGE_DAYS;

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Cut off.
    #[error("the record is too short ({0} bytes)")]
    Short(usize),
    /// Written by a newer version of quota-svc.
    #[error("the record has format version {0}, newer than this quota-svc knows")]
    Version(u8),
    /// A field has a value that no version wrote.
    #[error("the record's {0} is out of range")]
    Field(&'static str),
}

/// A record as bytes, the ring's oldest arrival first.
pub fn encode(record: &Record) -> Vec<u8> {
    let window = &record.window;
    let mut out = Vec::with_capacity(RING_AT + 4 * window.ring.len());
    out.extend([VERSION, scope_byte(record.scope), state_byte(record.state), 0]);
    out.extend(record.daily_limit.unwrap_or(0).to_le_bytes());
    out.extend(record.state_since.to_le_bytes());
    out.extend(record.day.to_le_bytes());
    out.extend(record.used.to_le_bytes());
    out.extend(window.last.to_le_bytes());
    out.extend(u32::from(window.limit).to_le_bytes());
    let places = u16::try_from(window.ring.len()).unwrap_or(u16::MAX);
    for field in [places, window.len, window.head, 0] {
        out.extend(field.to_le_bytes());
    }
    out.extend(record.past.iter().chain(&window.ring).flat_map(|n| n.to_le_bytes()));
    out
}

/// Reads a record; never panics, whatever the bytes.
pub fn decode(bytes: &[u8]) -> Result<Record, CodecError> {
    match bytes.first() {
        None => return Err(CodecError::Short(0)),
        Some(&version) if version != VERSION => return Err(CodecError::Version(version)),
        Some(_) if bytes.len() < RING_AT => return Err(CodecError::Short(bytes.len())),
        Some(_) => {}
    }
    let mut past = [0; USAGE_DAYS];
    for (day, count) in past.iter_mut().enumerate() {
        *count = u32_at(bytes, USAGE_AT + 4 * day);
    }
    Ok(Record {
        scope: scope_from_byte(bytes[1]).ok_or(CodecError::Field("scope"))?,
        state: state_from_byte(bytes[2]).ok_or(CodecError::Field("state"))?,
        state_since: i64_at(bytes, 8),
        daily_limit: Some(u32_at(bytes, 4)).filter(|limit| *limit > 0),
        day: u32_at(bytes, 16),
        used: u32_at(bytes, 20),
        past,
        window: decode_window(bytes)?,
    })
}

fn decode_window(bytes: &[u8]) -> Result<Window, CodecError> {
    let (places, len, head) = (u16_at(bytes, 36), u16_at(bytes, 38), u16_at(bytes, 40));
    let limit = u16::try_from(u32_at(bytes, 32)).map_err(|_| CodecError::Field("burst limit"))?;
    // Redis writes only the places that were used: the others are not there yet.
    let used = head.saturating_add(len).min(places);
    let cut_off = bytes.len() < RING_AT + 4 * usize::from(used);
    if len > places || (head >= places && head > 0) || places > limit || cut_off {
        return Err(CodecError::Field("ring"));
    }
    let ring = (0..usize::from(places)).map(|place| RING_AT + 4 * place);
    let ring = ring.map(|at| if at + 4 <= bytes.len() { u32_at(bytes, at) } else { 0 }).collect();
    Ok(Window { last: i64_at(bytes, 24), limit, len, head, ring })
}

/// A scope's byte.
fn scope_byte(scope: Scope) -> u8 {
    match scope {
        Scope::Ip => 0,
        Scope::Geo => 1,
        Scope::Full => 2,
    }
}

/// The scope of a byte.
pub fn scope_from_byte(byte: u8) -> Option<Scope> {
    [Scope::Ip, Scope::Geo, Scope::Full].get(usize::from(byte)).copied()
}

/// A state's byte.
fn state_byte(state: KeyState) -> u8 {
    match state {
        KeyState::Active => 0,
        KeyState::Paused => 1,
        KeyState::Inactive => 2,
    }
}

fn state_from_byte(byte: u8) -> Option<KeyState> {
    [KeyState::Active, KeyState::Paused, KeyState::Inactive].get(usize::from(byte)).copied()
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

    use super::super::super::limits::Limits;
    use super::*;

    proptest! {
        #[test]
        fn a_record_goes_both_ways(
            steps in prop::collection::vec((0i64..40_000_000, 1usize..6), 0..60),
            limit in proptest::option::of(1u32..50),
        ) {
            let limits = Limits { daily: 20, burst: 30, demo: 1 };
            let mut record = Record::new(Scope::Geo, limit, 1_700_000_000_000);
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
        fn any_bytes_are_answered_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = decode(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn newer_and_short_records_are_told_apart() {
        assert_eq!(decode(&[]), Err(CodecError::Short(0)));
        assert_eq!(decode(&[2; 300]), Err(CodecError::Version(2)));
        assert_eq!(decode(&[VERSION; 100]), Err(CodecError::Short(100)));
    }

    #[test]
    fn a_ring_that_is_cut_off_is_no_ring() {
        let mut record = Record::new(Scope::Geo, None, 0);
        for _ in 0..5 {
            record.charge(0, &Limits { daily: 20, burst: 30, demo: 1 });
        }
        let bytes = encode(&record);
        assert!(decode(&bytes[..RING_AT + 4 * 5]).is_ok(), "the other places need not be there");
        assert_eq!(decode(&bytes[..RING_AT + 4 * 5 - 1]), Err(CodecError::Field("ring")));
    }
}
