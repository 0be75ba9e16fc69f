//! The examples in the OpenAPI document: bodies that the API really responds with.

use quota_client::wire::{Limits, Scope};
use service_kit::openapi::{Example, Value};

use super::error::{ApiError, ErrorBodies};
use crate::fields::FieldSet;
use crate::lookup::{Denial, RateLimit};
use crate::metrics::Operation;
use crate::public_urls::PublicUrls;

const LOOKUP: &[&str] = &["get_ip"];
const DEMO: &[&str] = &["get_demo"];

/// Limits in examples while those of quota-svc are unknown: its defaults.
const DEFAULT_LIMITS: Limits = Limits { daily: 10_000, burst: 300, demo: 1_000 };

pub(super) fn all(urls: &PublicUrls, limits: Option<Limits>) -> Vec<Example<'static>> {
    let Limits { daily, burst, demo } = limits.unwrap_or(DEFAULT_LIMITS);
    let bodies = ErrorBodies::new(urls);
    let error = |operation: Operation, name: &'static str, error: ApiError| {
        let (status, body) = bodies.status_and_body(operation, &error);
        let operations = match operation {
            Operation::Lookup => LOOKUP,
            Operation::Demo => DEMO,
        };
        Example { name, status: status.as_u16(), operations, value: parse(&body) }
    };
    let denied = |operation, name, denial| error(operation, name, ApiError::Denied(denial));
    let rate_limit = |limit| RateLimit { limit, remaining: 0, reset: 0 };
    let daily_denial = |limit| Denial::Daily { rate_limit: rate_limit(limit), retry_after: 0 };
    let burst = Denial::Burst { paused_now: false, rate_limit: rate_limit(burst), retry_after: 0 };
    vec![
        success("full", LOOKUP, FieldSet::Scope(Scope::Full)),
        success("geo", LOOKUP, FieldSet::Scope(Scope::Geo)),
        success("ip", LOOKUP, FieldSet::Scope(Scope::Ip)),
        success("demo", DEMO, FieldSet::Demo),
        error(Operation::Lookup, "invalid_scope", ApiError::InvalidScope),
        error(Operation::Lookup, "missing_api_key", ApiError::MissingKey),
        error(Operation::Lookup, "invalid_api_key", ApiError::MalformedKey),
        denied(Operation::Lookup, "inactive_api_key", Denial::Inactive),
        denied(Operation::Lookup, "daily_quota_used_up", daily_denial(daily)),
        denied(Operation::Lookup, "key_paused", burst),
        denied(Operation::Demo, "demo_quota_used_up", daily_denial(demo)),
        error(Operation::Lookup, "internal_error", ApiError::NO_VERDICT),
        error(Operation::Demo, "internal_error", ApiError::NO_VERDICT),
    ]
}

fn success(name: &'static str, operations: &'static [&'static str], field_set: FieldSet) -> Example<'static> {
    Example { name, status: 200, operations, value: parse(field_set.example().as_bytes()) }
}

fn parse(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("the bodies of the API are valid JSON")
}
