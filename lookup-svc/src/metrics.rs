//! What is counted. The hot path adds to plain atomics; OpenTelemetry reads them when it is asked.

mod gauges;
mod quota;
mod tally;

pub use gauges::{publish_discovery, publish_geo};
pub use quota::QuotaMetrics;
pub use tally::{Ending, Operation, Tally};
