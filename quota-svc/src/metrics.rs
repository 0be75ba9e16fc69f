//! What quota-svc counts. Labels are bounded: outcomes only.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use quota_client::wire::{Outcome, Verdict};

const OUTCOMES: [(Outcome, &str); 7] = [
    (Outcome::Allowed, "allowed"),
    (Outcome::UnknownKey, "unknown_key"),
    (Outcome::Inactive, "inactive"),
    (Outcome::Paused, "paused"),
    (Outcome::BurstExceeded, "burst_exceeded"),
    (Outcome::DailyExceeded, "daily_exceeded"),
    (Outcome::Unavailable, "unavailable"),
];

/// The counters of charging.
#[derive(Debug, Clone)]
pub struct Metrics {
    charges: Counter<u64>,
    denials_known: Counter<u64>,
    batch_size: Histogram<u64>,
    store_seconds: Histogram<f64>,
}

impl Metrics {
    /// Registers them.
    pub fn new(meter: &Meter) -> Self {
        let sizes = vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
        let seconds = vec![0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];
        Self {
            charges: meter
                .u64_counter("quota_charges")
                .with_description("Charges judged, by outcome")
                .build(),
            denials_known: meter
                .u64_counter("quota_denials_known")
                .with_description("Charges refused without asking the store")
                .build(),
            batch_size: meter
                .u64_histogram("quota_batch_size")
                .with_description("Charges in one call")
                .with_boundaries(sizes)
                .build(),
            store_seconds: meter
                .f64_histogram("quota_store_duration")
                .with_unit("s")
                .with_description("How long the store took to judge a batch")
                .with_boundaries(seconds)
                .build(),
        }
    }

    /// A batch was judged, `known` of it without the store.
    pub fn judged(&self, verdicts: &[Verdict], known: usize) {
        self.batch_size.record(verdicts.len() as u64, &[]);
        if known > 0 {
            self.denials_known.add(known as u64, &[]);
        }
        for (outcome, name) in OUTCOMES {
            let count = verdicts.iter().filter(|verdict| verdict.outcome == outcome).count();
            if count > 0 {
                self.charges.add(count as u64, &[KeyValue::new("outcome", name)]);
            }
        }
    }

    /// The store answered a batch.
    pub fn asked(&self, took: Duration) {
        self.store_seconds.record(took.as_secs_f64(), &[]);
    }
}
