//! Charges and verdicts, the limits, and the state of quota-svc.

use api_key::KeyDigest;
use poem_openapi::Object;
use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

use super::Scope;

/// Header of a batch with the trace spans of its charges, except the one in `traceparent`: values in the format of
/// `traceparent`, separated by commas. quota-svc links the span of the batch to them.
pub const TRACE_LINKS: &str = "x-trace-links";

/// The code that a charge results in.
// The numbers are sent in charge calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The only one that lets the request through.
    Allowed = 0,
    UnknownKey = 1,
    Inactive = 2,
    Expired = 3,
    /// The key is for other web pages.
    WrongOrigin = 4,
    /// The key's account is suspended.
    Suspended = 5,
    /// The key was already paused.
    Paused = 6,
    /// This request paused the key.
    BurstExceeded = 7,
    DailyExceeded = 8,
    /// The charge could not be processed.
    #[default]
    Unavailable = 9,
}

base::names!(Outcome:
    Allowed => "allowed",
    UnknownKey => "unknown_key",
    Inactive => "inactive",
    Expired => "expired",
    WrongOrigin => "wrong_origin",
    Suspended => "suspended",
    Paused => "paused",
    BurstExceeded => "burst_exceeded",
    DailyExceeded => "daily_exceeded",
    Unavailable => "unavailable",
);

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

/// The result of one charge. Numbers that do not apply to the outcome are absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    pub outcome: Outcome,
    /// Scope of the key, for `allowed` and `daily_exceeded`. Absent for the demo.
    pub scope: Option<Scope>,
    /// Limit that applies: the burst limit for `paused` and `burst_exceeded`, otherwise the daily limit.
    pub limit: Option<u32>,
    /// Requests left within that limit.
    pub remaining: Option<u32>,
    /// Time at which the limit resets: Unix time in seconds. For a paused key, now plus `retry_after`.
    pub reset: Option<u64>,
    /// Seconds to wait before a retry. Retries with a paused key are denied until the key is resumed.
    pub retry_after: Option<u32>,
    /// For `expired`: when the key expired, Unix time in seconds.
    pub expired_at: Option<u32>,
}

/// The state of quota-svc.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Status {
    /// Why the store can't process charges and changes now. Absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_unavailable: Option<String>,
    /// The limits that this quota-svc applies.
    pub limits: Limits,
}

/// The limits that a quota-svc applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Object, Serialize, Deserialize)]
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
