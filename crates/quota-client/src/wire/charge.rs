//! Charges and their verdicts.

use poem_openapi::{Enum, Object};
use serde::{Deserialize, Serialize};

use super::Scope;

/// The most charges one call may carry.
pub const MAX_BATCH: usize = 256;

/// What was decided about one charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Enum, Serialize, Deserialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Charged: the request may be answered.
    Allowed,
    /// No such key.
    UnknownKey,
    /// The key is deactivated.
    Inactive,
    /// The key was paused before this request.
    Paused,
    /// This request exceeded the burst limit and paused the key.
    BurstExceeded,
    /// The daily quota is used up.
    DailyExceeded,
    /// No verdict could be reached; nothing may be answered on the strength of this.
    Unavailable,
}

/// One request to judge: exactly one of the two fields.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    /// SHA-256 of the API key, 64 lower-case hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_sha256: Option<String>,
    /// True: charge the demo quota that all anonymous callers share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demo: Option<bool>,
}

/// A batch of charges, judged in order.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[oai(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub struct ChargeRequest {
    /// 1 to 256 charges.
    #[oai(validator(min_items = 1, max_items = 256))]
    pub charges: Vec<Charge>,
}

/// The answer to one charge. Numbers are present where the outcome has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Object, Serialize, Deserialize)]
#[oai(skip_serializing_if_is_none)]
pub struct Verdict {
    /// What was decided.
    pub outcome: Outcome,
    /// The key's scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// The limit that applies: the daily one, or the burst limit where that refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// What is left of that limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u32>,
    /// Unix time in seconds at which the limit starts anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<u64>,
    /// Seconds to wait before trying again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
}

/// The verdicts, one for each charge, in the same order.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct ChargeResponse {
    /// In the order of the charges.
    pub verdicts: Vec<Verdict>,
}
