//! Charges and verdicts, the limits, and the state of quota-svc.
//!
//! The bodies of a charge call have a record for each charge, and one for each verdict. A record has no version number, so a changed
//! format needs a new path. Binary for speed: every lookup waits for a call, and encoding and decoding JSON took 9% of lookup-svc's
//! instructions and 40% of quota-svc's.

use api_key::KeyDigest;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Scope;

/// Header of a batch with the trace spans of its charges, except the one in `traceparent`: values in the format of
/// `traceparent`, separated by commas. quota-svc links the span of the batch to them.
pub const TRACE_LINKS: &str = "x-trace-links";

base::names! {
    /// The kind of a [`Verdict`], without its numbers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Outcome {
        Allowed = "allowed",
        UnknownKey = "unknown_key",
        Inactive = "inactive",
        Expired = "expired",
        WrongOrigin = "wrong_origin",
        Suspended = "suspended",
        Paused = "paused",
        BurstExceeded = "burst_exceeded",
        DailyExceeded = "daily_exceeded",
        Unavailable = "unavailable",
    }
}

/// One request to count against its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    Key {
        digest: KeyDigest,
        /// Hash of the request's `Origin` ([`origin_hash`]). `None` unless the request has exactly one.
        origin: Option<u128>,
    },
    /// The demo quota, which all callers without a key share.
    Demo,
}

/// The hash of an origin: the first half of its SHA-256.
pub fn origin_hash(origin: &[u8]) -> u128 {
    let digest = Sha256::digest(origin);
    digest.iter().take(16).fold(0, |hash, byte| hash << 8 | u128::from(*byte))
}

/// The result of one charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The only one that lets the request through.
    Allowed {
        /// The key's scope. `None` for the demo.
        scope: Option<Scope>,
        /// The daily quota.
        rate_limit: RateLimit,
    },
    UnknownKey,
    Inactive,
    Expired {
        /// Unix time in seconds.
        at: u32,
    },
    /// The key is for other web pages.
    WrongOrigin,
    /// The key's account is suspended.
    Suspended,
    /// The key was already paused. Retries are denied until its owner resumes it.
    Paused(Exceeded),
    /// This request paused the key.
    BurstExceeded(Exceeded),
    DailyExceeded(Exceeded),
    /// The charge could not be processed.
    Unavailable,
}

impl Verdict {
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Allowed { .. } => Outcome::Allowed,
            Self::UnknownKey => Outcome::UnknownKey,
            Self::Inactive => Outcome::Inactive,
            Self::Expired { .. } => Outcome::Expired,
            Self::WrongOrigin => Outcome::WrongOrigin,
            Self::Suspended => Outcome::Suspended,
            Self::Paused(_) => Outcome::Paused,
            Self::BurstExceeded(_) => Outcome::BurstExceeded,
            Self::DailyExceeded(_) => Outcome::DailyExceeded,
            Self::Unavailable => Outcome::Unavailable,
        }
    }
}

/// The values of the `X-RateLimit-*` headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    pub limit: u32,
    /// Requests left within the limit.
    pub remaining: u32,
    /// Unix time in seconds.
    pub reset: u64,
}

/// A limit with no requests left: the daily limit or the burst limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    pub limit: u32,
    /// Unix time in seconds. For a paused key, now plus `retry_after`.
    pub reset: u64,
    /// Seconds to wait before a retry.
    pub retry_after: u32,
}

impl Exceeded {
    pub const fn rate_limit(&self) -> RateLimit {
        RateLimit { limit: self.limit, remaining: 0, reset: self.reset }
    }
}

/// The state of quota-svc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Why the store can't process charges and changes now; `None` if it can.
    pub store_unavailable: Option<String>,
    /// The limits that this quota-svc applies.
    pub limits: Limits,
}

/// The limits that a quota-svc applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// Requests per day for keys without their own limit
    #[arg(id = "daily_limit", long = "daily-limit", env = "DAILY_LIMIT", value_name = "N")]
    #[arg(default_value_t = 10_000, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub daily: u32,
    /// Requests per 60 s per key; one more pauses the key
    #[arg(id = "burst_limit", long = "burst-limit", env = "BURST_LIMIT", value_name = "N")]
    #[arg(default_value_t = 300, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub burst: u16,
    /// Requests per day for the demo, shared by all callers
    #[arg(id = "demo_limit", long = "demo-limit", env = "DEMO_LIMIT", value_name = "N")]
    #[arg(default_value_t = 1_000, allow_negative_numbers = true)]
    pub demo: u32,
}

base::default_from_flags!(Limits);

/// Maximum number of charges per call.
pub const MAX_BATCH: usize = 256;

/// The media type of both bodies.
pub const BATCH_TYPE: &str = "application/octet-stream";

/// Kind, digest, hash of the origin.
const CHARGE_LEN: usize = 1 + 32 + 16;

/// Code, three numbers.
const VERDICT_LEN: usize = 1 + 3 * 8;

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

/// Decodes the response of a charge call. `None` if it is malformed.
pub fn decode_verdicts(body: &[u8]) -> Option<Vec<Verdict>> {
    let (records, []) = body.as_chunks() else { return None };
    records.iter().map(decode_verdict).collect()
}

/// Defines `encode_verdict` and `decode_verdict`. Each line has a code, the numbers of the record in their order, and the
/// verdict that has them: a pattern for encoding, an expression for decoding.
macro_rules! verdict_records {
    ($($code:literal [$($number:ident)*] ($($verdict:tt)+))+) => {
        fn encode_verdict(verdict: &Verdict) -> [u8; VERDICT_LEN] {
            let (code, numbers): (u8, &[u64]) = match *verdict {
                $(Verdict::$($verdict)+ => ($code, &[$(u64::from($number)),*]),)+
            };
            let mut record = [0; VERDICT_LEN];
            record[0] = code;
            for (bytes, number) in record[1..].as_chunks_mut().0.iter_mut().zip(numbers) {
                *bytes = number.to_le_bytes();
            }
            record
        }

        fn decode_verdict(record: &[u8; VERDICT_LEN]) -> Option<Verdict> {
            let mut numbers = record[1..].as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
            let verdict = match record[0] {
                $($code => {
                    $(let $number = numbers.next()?.try_into().ok()?;)*
                    Verdict::$($verdict)+
                })+
                _ => return None,
            };
            // The numbers that a verdict does not have must be 0.
            (encode_verdict(&verdict) == *record).then_some(verdict)
        }
    };
}

verdict_records! {
    0 [limit remaining reset] (Allowed { scope: Some(Scope::Ip), rate_limit: RateLimit { limit, remaining, reset } })
    1 [limit remaining reset] (Allowed { scope: Some(Scope::Geo), rate_limit: RateLimit { limit, remaining, reset } })
    2 [limit remaining reset] (Allowed { scope: Some(Scope::Full), rate_limit: RateLimit { limit, remaining, reset } })
    3 [limit remaining reset] (Allowed { scope: None, rate_limit: RateLimit { limit, remaining, reset } })
    4 [] (UnknownKey)
    5 [] (Inactive)
    6 [at] (Expired { at })
    7 [] (WrongOrigin)
    8 [] (Suspended)
    9 [limit reset retry_after] (Paused(Exceeded { limit, reset, retry_after }))
    10 [limit reset retry_after] (BurstExceeded(Exceeded { limit, reset, retry_after }))
    11 [limit reset retry_after] (DailyExceeded(Exceeded { limit, reset, retry_after }))
    12 [] (Unavailable)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn verdicts_are_encoded_as_documented() {
        let rate_limit = RateLimit { limit: 1000, remaining: 7, reset: 0x0102_0304_0506_0708 };
        let verdicts = [
            Verdict::Allowed { scope: Some(Scope::Geo), rate_limit },
            Verdict::Expired { at: 60 },
            Verdict::DailyExceeded(Exceeded { limit: 1000, reset: 0x0102_0304_0506_0708, retry_after: 60 }),
        ];
        let (limit, reset) = ([0xe8, 3, 0, 0, 0, 0, 0, 0], [8, 7, 6, 5, 4, 3, 2, 1]);
        let number = |number| [number, 0, 0, 0, 0, 0, 0, 0];
        let allowed = [&[1][..], &limit, &number(7), &reset].concat();
        let expired = [&[6][..], &number(60), &[0; 16]].concat();
        let denied = [&[11][..], &limit, &reset, &number(60)].concat();
        let body = [allowed, expired, denied].concat();
        assert_eq!(encode_verdicts(&verdicts), body);
        assert_eq!(decode_verdicts(&body).as_deref(), Some(&verdicts[..]));
    }

    #[test]
    fn incomplete_or_oversized_verdict_is_malformed() {
        let record =
            |code, numbers: [u64; 3]| [&[code][..], numbers.map(u64::to_le_bytes).as_flattened()].concat();
        let large = 1 << 32;
        assert!(decode_verdicts(&record(3, [1, 2, large])).is_some());
        for (code, numbers) in [
            (3, [large, 2, 3]),
            (3, [1, large, 3]),
            (4, [1, 0, 0]),
            (6, [1, 2, 0]),
            (6, [large, 0, 0]),
            (9, [1, 2, large]),
            (12, [0, 0, 1]),
            (13, [0; 3]),
            (u8::MAX, [0; 3]),
        ] {
            assert_eq!(decode_verdicts(&record(code, numbers)), None, "{code} {numbers:?}");
        }
        let whole = record(3, [1, 2, 3]);
        assert!((1..whole.len()).all(|len| decode_verdicts(&whole[..len]).is_none()));
    }

    proptest! {
        #[test]
        fn every_verdict_round_trips(
            (limit, remaining, retry_after, at) in any::<(u32, u32, u32, u32)>(),
            reset in any::<u64>(),
        ) {
            let rate_limit = RateLimit { limit, remaining, reset };
            let exceeded = Exceeded { limit, reset, retry_after };
            let scopes = Scope::ALL.iter().copied().map(Some).chain([None]);
            let allowed = scopes.map(|scope| Verdict::Allowed { scope, rate_limit });
            let denials = [
                Verdict::UnknownKey,
                Verdict::Inactive,
                Verdict::Expired { at },
                Verdict::WrongOrigin,
                Verdict::Suspended,
                Verdict::Paused(exceeded),
                Verdict::BurstExceeded(exceeded),
                Verdict::DailyExceeded(exceeded),
                Verdict::Unavailable,
            ];
            let verdicts: Vec<_> = allowed.chain(denials).collect();
            let has = |outcome: &Outcome| verdicts.iter().any(|verdict| verdict.outcome() == *outcome);
            prop_assert!(Outcome::ALL.iter().all(has));
            prop_assert_eq!(decode_verdicts(&encode_verdicts(&verdicts)), Some(verdicts));
        }
    }
}
