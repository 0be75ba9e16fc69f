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
}
