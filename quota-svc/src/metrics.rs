//! Metrics of charging and of notices. The only label is the outcome, so the number of series is bounded.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use quota_api::{Outcome, Verdict};

#[derive(Debug, Clone)]
pub struct Metrics {
    charges: Counter<u64>,
    cached_denials: Counter<u64>,
    batch_size: Histogram<u64>,
    store_seconds: Histogram<f64>,
    dropped_notices: Counter<u64>,
}

impl Metrics {
    pub fn new(meter: &Meter) -> Self {
        let sizes = vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
        let seconds = vec![0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];
        Self {
            charges: meter.u64_counter("quota_charges").with_description("Charges by outcome").build(),
            cached_denials: meter
                .u64_counter("quota_denial_cache_hits")
                .with_description("Charges denied from the denial cache, without a store call")
                .build(),
            batch_size: meter
                .u64_histogram("quota_batch_size")
                .with_description("Charges per batch")
                .with_boundaries(sizes)
                .build(),
            store_seconds: meter
                .f64_histogram("quota_store_duration")
                .with_unit("s")
                .with_description("Duration of the store call for a batch of charges")
                .with_boundaries(seconds)
                .build(),
            dropped_notices: meter
                .u64_counter("quota_notices_dropped")
                .with_description(
                    "Notices to owners that were dropped, because too many waited for their delivery",
                )
                .build(),
        }
    }

    /// Records a batch; `cached` is the number of its verdicts that came from the denial cache.
    pub fn record_batch(&self, verdicts: &[Verdict], cached: usize) {
        self.batch_size.record(verdicts.len() as u64, &[]);
        if cached > 0 {
            self.cached_denials.add(cached as u64, &[]);
        }
        for outcome in Outcome::ALL {
            let count = verdicts.iter().filter(|verdict| verdict.outcome() == *outcome).count();
            if count > 0 {
                self.charges.add(count as u64, &[KeyValue::new("outcome", outcome.as_str())]);
            }
        }
    }

    pub fn record_dropped_notices(&self, count: u64) {
        if count > 0 {
            self.dropped_notices.add(count, &[]);
        }
    }

    pub fn record_store_call(&self, duration: Duration) {
        self.store_seconds.record(duration.as_secs_f64(), &[]);
    }
}
