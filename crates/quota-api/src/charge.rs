//! Charges and verdicts, the limits, and the state of quota-svc.

use poem_openapi::{Enum, Object};
use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

use super::Scope;

/// Header of a batch with the trace spans of its charges, except the one in `traceparent`: values in the format of
/// `traceparent`, separated by commas. quota-svc links the span of the batch to them.
pub const TRACE_LINKS: &str = "x-trace-links";

/// Maximum number of charges per call.
pub const MAX_BATCH: usize = 256;

/// The code that a charge results in. Only `allowed` lets the request through. `wrong_origin`: the key is for other web
/// pages. `suspended`: its account is suspended. `burst_exceeded`: this request paused the key. `paused`: the key was
/// already paused. `unavailable`: the charge could not be processed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Enum, Serialize, Deserialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
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
    #[default]
    Unavailable,
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

/// One request to count against its limits. Exactly one of `key_sha256` and `demo` must be set.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    /// Charges a key: SHA-256 of the API key, 64 lowercase hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_sha256: Option<String>,
    /// Charges the demo quota, which all callers without a key share. Must be `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demo: Option<bool>,
    /// Hash of the request's `Origin`, 32 lowercase hexadecimal digits: the first half of its SHA-256. Absent unless the
    /// request has exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

/// The hash of an origin: the first half of its SHA-256.
pub fn origin_hash(origin: &[u8]) -> u128 {
    let digest = Sha256::digest(origin);
    digest.iter().take(16).fold(0, |hash, byte| hash << 8 | u128::from(*byte))
}

/// A batch of charges, processed in order.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChargeRequest {
    /// 1 to 256 charges.
    #[oai(validator(min_items = 1, max_items = 256))]
    pub charges: Vec<Charge>,
}

/// The result of one charge. Numbers that do not apply to the outcome are absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Verdict {
    /// Outcome of the charge.
    pub outcome: Outcome,
    /// Scope of the key, for `allowed` and `daily_exceeded`. Absent for the demo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// Limit that applies: the burst limit for `paused` and `burst_exceeded`, otherwise the daily limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Requests left within that limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u32>,
    /// Time at which the limit resets: Unix time in seconds. For a paused key, now plus `retry_after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<u64>,
    /// Seconds to wait before a retry. Retries with a paused key are denied until the key is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
    /// For `expired`: when the key expired, Unix time in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired_at: Option<u32>,
}

/// The verdicts of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct ChargeResponse {
    /// One verdict per charge, in the same order.
    pub verdicts: Vec<Verdict>,
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
