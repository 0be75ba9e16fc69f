//! The calls of quota-svc: how long, how many charges in each, and what got lost.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use quota_client::{CallReport, ChargeError, Observer};

use super::Ending;

/// Upper bounds in seconds; a call over loopback takes well under a millisecond, its deadline is 400 ms.
const CALL_SECONDS: [f64; 12] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];

/// A call carries 64 charges by default and 256 at the most.
const BATCH_SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Measures the calls of quota-svc.
#[derive(Debug)]
pub struct QuotaMetrics {
    duration: Histogram<f64>,
    batch: Histogram<u64>,
    lost: Counter<u64>,
}

impl QuotaMetrics {
    /// Makes its instruments.
    pub fn new(meter: &Meter) -> Self {
        Self {
            duration: meter
                .f64_histogram("lookup_quota_call_duration")
                .with_unit("s")
                .with_description("Duration of calls of quota-svc")
                .with_boundaries(CALL_SECONDS.to_vec())
                .build(),
            batch: meter
                .u64_histogram("lookup_quota_batch_size")
                .with_description("Charges in a call of quota-svc")
                .with_boundaries(BATCH_SIZES.to_vec())
                .build(),
            lost: meter
                .u64_counter("lookup_quota_charges_lost")
                .with_description("Charges that ended without a verdict")
                .build(),
        }
    }
}

impl Observer for QuotaMetrics {
    fn called(&self, call: &CallReport) {
        let labels = [KeyValue::new("outcome", call.outcome.as_str())];
        self.duration.record(call.elapsed.as_secs_f64(), &labels);
        self.batch.record(call.charges as u64, &labels);
    }

    fn lost(&self, error: ChargeError) {
        self.lost.add(1, &[KeyValue::new("reason", Ending::from(error).label())]);
    }
}
