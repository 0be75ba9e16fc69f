//! The bodies of a charge call: a record for each charge, and one for each verdict. The description of `chargeBatch` in
//! `quota-svc/src/api/charges.rs` documents the format. A record has no version number, so a changed format needs a new path.
//!
//! Binary for speed: every lookup waits for a call, and encoding and decoding JSON took 9% of lookup-svc's instructions and
//! 40% of quota-svc's.

use api_key::KeyDigest;

use crate::{Charge, Outcome, Scope, Verdict};

/// Maximum number of charges per call.
pub const MAX_BATCH: usize = 256;

/// The media type of both bodies.
pub const BATCH_TYPE: &str = "application/octet-stream";

/// Kind, digest, hash of the origin.
const CHARGE_LEN: usize = 1 + 32 + 16;

/// Outcome, scope, five numbers.
const VERDICT_LEN: usize = 1 + 1 + 5 * 8;

const NO_SCOPE: u8 = u8::MAX;
const NO_NUMBER: u64 = u64::MAX;

/// Encodes the request of a charge call.
pub fn encode_charges(charges: &[Charge]) -> Vec<u8> {
    charges.iter().map(encode_charge).collect::<Vec<_>>().into_flattened()
}

fn encode_charge(charge: &Charge) -> [u8; CHARGE_LEN] {
    let mut record = [0; CHARGE_LEN];
    if let Charge::Key { digest, origin } = charge {
        record[0] = if origin.is_some() { 2 } else { 1 };
        record[1..33].copy_from_slice(&digest.0);
        record[33..].copy_from_slice(&origin.unwrap_or_default().to_be_bytes());
    }
    record
}

/// Decodes the request of a charge call. `None` if it is malformed.
pub fn decode_charges(body: &[u8]) -> Option<Vec<Charge>> {
    let (records, []) = body.as_chunks() else { return None };
    records.iter().map(decode_charge).collect()
}

fn decode_charge(record: &[u8; CHARGE_LEN]) -> Option<Charge> {
    let (digest, origin) = record[1..].split_first_chunk()?;
    let digest = KeyDigest(*digest);
    let origin = u128::from_be_bytes(origin.try_into().ok()?);
    let charge = match record[0] {
        0 => Charge::Demo,
        1 => Charge::Key { digest, origin: None },
        2 => Charge::Key { digest, origin: Some(origin) },
        _ => return None,
    };
    // The bytes that a kind does not use must be 0.
    (encode_charge(&charge) == *record).then_some(charge)
}

/// Encodes the response of a charge call.
pub fn encode_verdicts(verdicts: &[Verdict]) -> Vec<u8> {
    verdicts.iter().map(encode_verdict).collect::<Vec<_>>().into_flattened()
}

fn encode_verdict(verdict: &Verdict) -> [u8; VERDICT_LEN] {
    let Verdict { outcome, scope, limit, remaining, reset, retry_after, expired_at } = *verdict;
    let mut record = [0; VERDICT_LEN];
    record[0] = outcome as u8;
    record[1] = scope.map_or(NO_SCOPE, |scope| scope as u8);
    let [limit, remaining, retry_after, expired_at] =
        [limit, remaining, retry_after, expired_at].map(|number| number.map(u64::from));
    let numbers = [limit, remaining, reset, retry_after, expired_at];
    for (bytes, number) in record[2..].as_chunks_mut().0.iter_mut().zip(numbers) {
        *bytes = number.unwrap_or(NO_NUMBER).to_le_bytes();
    }
    record
}

/// Decodes the response of a charge call. `None` if it is malformed.
pub fn decode_verdicts(body: &[u8]) -> Option<Vec<Verdict>> {
    let (records, []) = body.as_chunks() else { return None };
    records.iter().map(decode_verdict).collect()
}

fn decode_verdict(record: &[u8; VERDICT_LEN]) -> Option<Verdict> {
    let (&[outcome, scope], numbers) = record.split_first_chunk()?;
    let numbers: &[[u8; 8]; 5] = numbers.as_chunks().0.try_into().ok()?;
    let [limit, remaining, reset, retry_after, expired_at] =
        numbers.map(u64::from_le_bytes).map(|number| (number != NO_NUMBER).then_some(number));
    let narrow = |number: Option<u64>| number.map(u32::try_from).transpose().ok();
    Some(Verdict {
        outcome: *Outcome::ALL.get(usize::from(outcome))?,
        scope: match scope {
            NO_SCOPE => None,
            scope => Some(*Scope::ALL.get(usize::from(scope))?),
        },
        limit: narrow(limit)?,
        remaining: narrow(remaining)?,
        reset,
        retry_after: narrow(retry_after)?,
        expired_at: narrow(expired_at)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_encoded_as_documented() {
        let digest = KeyDigest([0xab; 32]);
        let charges = [
            Charge::Demo,
            Charge::Key { digest, origin: None },
            Charge::Key { digest, origin: Some(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10) },
        ];
        let demo = [0; 49];
        let key = [&[1][..], &[0xab; 32], &[0; 16]].concat();
        let key_with_origin =
            [&[2][..], &[0xab; 32], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]].concat();
        let body = [&demo[..], &key, &key_with_origin].concat();
        assert_eq!(encode_charges(&charges), body);
        assert_eq!(decode_charges(&body).as_deref(), Some(&charges[..]));
    }

    #[test]
    fn verdict_is_encoded_as_documented() {
        let verdict = Verdict {
            outcome: Outcome::DailyExceeded,
            scope: Some(Scope::Geo),
            limit: Some(1000),
            remaining: Some(0),
            reset: Some(0x0102_0304_0506_0708),
            retry_after: Some(60),
            expired_at: None,
        };
        let numbers = [
            [0xe8, 3, 0, 0, 0, 0, 0, 0],
            [0; 8],
            [8, 7, 6, 5, 4, 3, 2, 1],
            [60, 0, 0, 0, 0, 0, 0, 0],
            [0xff; 8],
        ];
        let body = [&[8, 1][..], numbers.as_flattened()].concat();
        assert_eq!(encode_verdicts(&[verdict]), body);
        assert_eq!(decode_verdicts(&body), Some(vec![verdict]));
    }

    #[test]
    fn every_outcome_and_scope_round_trips() {
        let verdict = |outcome: &Outcome, scope| Verdict { outcome: *outcome, scope, ..Verdict::default() };
        let scopes = Scope::ALL.iter().map(|scope| verdict(&Outcome::Allowed, Some(*scope)));
        let verdicts: Vec<_> =
            Outcome::ALL.iter().map(|outcome| verdict(outcome, None)).chain(scopes).collect();
        assert_eq!(decode_verdicts(&encode_verdicts(&verdicts)), Some(verdicts));
    }
}
