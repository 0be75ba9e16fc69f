//! Charges and verdicts, the limits, and the state of quota-svc.

use api_key::KeyDigest;
use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

use super::Scope;

/// Header of a batch with the trace spans of its charges, except the one in `traceparent`: values in the format of
/// `traceparent`, separated by commas. quota-svc links the span of the batch to them.
pub const TRACE_LINKS: &str = "x-trace-links";

/// The kind of a [`Verdict`], without its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Allowed,
    UnknownKey,
    Inactive,
    Expired,
    WrongOrigin,
    Suspended,
    Paused,
    BurstExceeded,
    DailyExceeded,
    Unavailable,
}

base::names!(Outcome: Allowed => "allowed", UnknownKey => "unknown_key", Inactive => "inactive", Expired => "expired",
    WrongOrigin => "wrong_origin", Suspended => "suspended", Paused => "paused", BurstExceeded => "burst_exceeded",
    DailyExceeded => "daily_exceeded", Unavailable => "unavailable");

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
    /// Why the store can't process charges and changes now. Absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_unavailable: Option<String>,
    /// The limits that this quota-svc applies.
    pub limits: Limits,
}

/// The limits that a quota-svc applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Requests per day (UTC) for keys without their own limit.
    pub daily: u32,
    /// Requests within 60 seconds per key. One more pauses the key.
    pub burst: u16,
    /// Requests per day (UTC) for the demo, shared by all callers.
    pub demo: u32,
}

impl Default for Limits {
    /// The defaults of `--daily-limit`, `--burst-limit` and `--demo-limit`.
    fn default() -> Self {
        Self { daily: 10_000, burst: 300, demo: 1_000 }
    }
}
