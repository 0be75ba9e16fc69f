//! The state of quota-svc.

use poem_openapi::Object;
use serde::{Deserialize, Serialize};

/// The state of quota-svc.
#[derive(Debug, Clone, PartialEq, Eq, Object, Serialize, Deserialize)]
#[oai(skip_serializing_if_is_none)]
pub struct Status {
    /// Why the store can't process charges and changes now. Absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_unavailable: Option<String>,
    /// The limits that this quota-svc applies. Absent in earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// The limits that a quota-svc applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Object, Serialize, Deserialize)]
pub struct Limits {
    /// Requests per day (UTC) for keys without their own limit.
    pub daily: u32,
    /// Requests within 60 seconds per key. One more pauses the key.
    pub burst: u32,
    /// Requests per day (UTC) for the demo, shared by all callers.
    pub demo: u32,
}
