//! Metrics about calls to quota-svc: duration, batch size and failed charges.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use quota_client::{CallReport, ChargeError, ChargeObserver};

use super::RequestOutcome;

/// Histogram boundaries in seconds. A call over loopback takes well under 1 ms; the default deadline is 400 ms.
const CALL_SECONDS: [f64; 12] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];

/// Histogram boundaries. A call has at most 64 charges by default, and never more than 256.
const BATCH_SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Records the calls to quota-svc.
#[derive(Debug)]
pub struct QuotaMetrics {
    duration: Histogram<f64>,
    batch_size: Histogram<u64>,
    charge_errors: Counter<u64>,
}

impl QuotaMetrics {
    pub fn new(meter: &Meter) -> Self {
        Self {
            duration: meter
                .f64_histogram("lookup_quota_call_duration")
                .with_unit("s")
                .with_description("Duration of calls to quota-svc")
                .with_boundaries(CALL_SECONDS.to_vec())
                .build(),
            batch_size: meter
                .u64_histogram("lookup_quota_batch_size")
                .with_description("Charges per call to quota-svc")
                .with_boundaries(BATCH_SIZES.to_vec())
                .build(),
            charge_errors: meter
                .u64_counter("lookup_quota_charge_errors")
                .with_description("Charges for which quota-svc returned no verdict, so the request got 500")
                .build(),
        }
    }
}

impl ChargeObserver for QuotaMetrics {
    fn on_call(&self, call: &CallReport) {
        let labels = [KeyValue::new("outcome", call.outcome.as_str())];
        self.duration.record(call.elapsed.as_secs_f64(), &labels);
        self.batch_size.record(call.charges as u64, &labels);
    }

    fn on_charge_error(&self, error: ChargeError) {
        let labels = [KeyValue::new("reason", RequestOutcome::from(error).label())];
        self.charge_errors.add(1, &labels);
    }
}
