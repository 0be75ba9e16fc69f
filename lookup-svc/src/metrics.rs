//! Metrics. The request counters are plain atomics, which OpenTelemetry reads when it collects metrics, like the values of
//! the gauges.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::names;
use edge::{Decision, DiscoveryStatus};
use geo::{DatabaseInfo, Geo};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Counter, Histogram, Meter};
use quota_client::{CallReport, ChargeError, ChargeObserver};
use tokio::sync::watch;

use crate::lookup::unix_now;

/// A charged operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Lookup,
    Demo,
}

// The operation IDs of the OpenAPI document.
names!(Operation: Lookup => "get_ip", Demo => "get_demo");

/// The outcome of a request: a metric label and a span attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    Success,
    MissingKey,
    InvalidScope,
    /// Wrong format or checksum; rejected without a call to quota-svc.
    MalformedKey,
    UnknownKey,
    Inactive,
    /// Paused by an earlier request.
    Paused,
    /// Paused by this request.
    BurstExceeded,
    DailyExceeded,
    /// The charge queue was full.
    Overloaded,
    /// No verdict before the deadline.
    TimedOut,
    /// quota-svc or its store is unavailable.
    Unavailable,
}

names!(RequestOutcome: Success => "success", MissingKey => "missing_api_key", InvalidScope => "invalid_scope",
    MalformedKey => "malformed_key", UnknownKey => "unknown_key", Inactive => "inactive", Paused => "paused",
    BurstExceeded => "burst_exceeded", DailyExceeded => "daily_exceeded", Overloaded => "overloaded",
    TimedOut => "timed_out", Unavailable => "unavailable");

impl From<ChargeError> for RequestOutcome {
    fn from(error: ChargeError) -> Self {
        match error {
            ChargeError::Overloaded => Self::Overloaded,
            ChargeError::TimedOut => Self::TimedOut,
            ChargeError::Unavailable | ChargeError::Unreachable | ChargeError::Unauthorized => {
                Self::Unavailable
            }
        }
    }
}

/// Counters that are incremented for each request.
#[derive(Debug, Default)]
pub struct RequestCounters {
    requests: [[AtomicU64; RequestOutcome::ALL.len()]; Operation::ALL.len()],
    decisions: [AtomicU64; Decision::ALL.len()],
}

impl RequestCounters {
    pub fn count_request(&self, operation: Operation, outcome: RequestOutcome) {
        self.requests[operation as usize][outcome as usize].fetch_add(1, Relaxed);
    }

    /// Counts how a client's address was determined.
    pub fn count_client_ip(&self, decision: Decision) {
        self.decisions[decision as usize].fetch_add(1, Relaxed);
    }

    /// Publishes the counters as metrics.
    pub fn publish(self: &Arc<Self>, meter: &Meter) {
        let counters = self.clone();
        meter
            .u64_observable_counter("lookup_requests")
            .with_description("Lookups by outcome")
            .with_callback(move |observer| {
                for operation in Operation::ALL {
                    for outcome in RequestOutcome::ALL {
                        let labels = [
                            KeyValue::new("operation", operation.as_str()),
                            KeyValue::new("outcome", outcome.as_str()),
                        ];
                        let count = &counters.requests[*operation as usize][*outcome as usize];
                        observer.observe(count.load(Relaxed), &labels);
                    }
                }
            })
            .build();
        let counters = self.clone();
        meter
            .u64_observable_counter("lookup_client_ip_decisions")
            .with_description("How client addresses were determined")
            .with_callback(move |observer| {
                for decision in Decision::ALL {
                    let count = counters.decisions[*decision as usize].load(Relaxed);
                    observer.observe(count, &[KeyValue::new("decision", decision.as_str())]);
                }
            })
            .build();
    }
}

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
        let labels = [KeyValue::new("reason", RequestOutcome::from(error).as_str())];
        self.charge_errors.add(1, &labels);
    }
}

/// Publishes the build time and age of each geo database, and the numbers of loaded and rejected files.
///
/// `paths` is the number of values of `--geo-db`. With it, an alert can tell missing databases from a service
/// without `--geo-db`.
pub fn publish_geo(meter: &Meter, geo: &Geo, paths: usize) {
    meter
        .u64_observable_gauge("geo_database_paths")
        .with_description("Files and directories in --geo-db")
        .with_callback(move |observer| observer.observe(paths as u64, &[]))
        .build();
    let databases = |observed: Geo, value: fn(&DatabaseInfo) -> u64| {
        move |observer: &dyn AsyncInstrument<u64>| {
            for database in observed.databases() {
                // The names are few: those of the files that the operator chose.
                let labels = [
                    KeyValue::new("database", database.name.clone()),
                    KeyValue::new("kind", database.kind.as_str()),
                ];
                observer.observe(value(&database), &labels);
            }
        }
    };
    meter
        .u64_observable_gauge("geo_database_build_timestamp")
        .with_unit("s")
        .with_description("Build time of a geo database in use")
        .with_callback(databases(geo.clone(), |database| database.build_epoch))
        .build();
    meter
        .u64_observable_gauge("geo_database_age")
        .with_unit("s")
        .with_description("Age of a geo database in use, since its build")
        .with_callback(databases(geo.clone(), |database| {
            u64::try_from(unix_now()).unwrap_or_default().saturating_sub(database.build_epoch)
        }))
        .build();
    let observed = geo.clone();
    meter
        .u64_observable_gauge("geo_files_rejected")
        .with_description("Geo files whose present content is not in use, because it is invalid or does not fit the memory limit")
        .with_callback(move |observer| observer.observe(observed.reload_status().rejections.len() as u64, &[]))
        .build();
    let observed = geo.clone();
    meter
        .u64_observable_counter("geo_database_loads")
        .with_description("Geo files loaded and rejected since the start")
        .with_callback(move |observer| {
            let counts = observed.reload_status();
            observer.observe(counts.loaded, &[KeyValue::new("result", "loaded")]);
            observer.observe(counts.rejected, &[KeyValue::new("result", "refused")]);
        })
        .build();
}

/// Publishes the number of discovered proxies and the state of discovery.
pub fn publish_discovery(meter: &Meter, status: watch::Receiver<DiscoveryStatus>) {
    meter
        .u64_observable_gauge("lookup_discovered_proxies")
        .with_description("Trusted proxies found by discovery; the label is the state of discovery")
        .with_callback(move |observer| {
            let status = *status.borrow();
            let proxies = match status {
                DiscoveryStatus::Following { proxies } | DiscoveryStatus::Stale { proxies } => proxies,
                DiscoveryStatus::Off | DiscoveryStatus::Waiting => 0,
            };
            observer.observe(proxies as u64, &[KeyValue::new("state", status.label())]);
        })
        .build();
}
