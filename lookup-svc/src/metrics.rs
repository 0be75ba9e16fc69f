//! Metrics. Request handling increments plain atomics, which OpenTelemetry reads on collection.

mod gauges;
mod quota;
mod requests;

pub use gauges::{publish_discovery, publish_geo};
pub use quota::QuotaMetrics;
pub use requests::{Operation, RequestCounters, RequestOutcome};
