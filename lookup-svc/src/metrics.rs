//! Metrics. The request counters are plain atomics, which OpenTelemetry reads when it collects metrics.

mod gauges;
mod quota;
mod requests;

pub use gauges::{publish_discovery, publish_geo};
pub use quota::QuotaMetrics;
pub use requests::{Operation, RequestCounters, RequestOutcome};
