//! Counters of request outcomes and of how client addresses were determined.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use edge::Decision;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use quota_client::ChargeError;

/// A charged operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Lookup,
    Demo,
}

impl Operation {
    /// The operation ID of the OpenAPI document.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Lookup => "get_ip",
            Self::Demo => "get_demo",
        }
    }
}

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

impl RequestOutcome {
    pub const ALL: [Self; 12] = [
        Self::Success,
        Self::MissingKey,
        Self::InvalidScope,
        Self::MalformedKey,
        Self::UnknownKey,
        Self::Inactive,
        Self::Paused,
        Self::BurstExceeded,
        Self::DailyExceeded,
        Self::Overloaded,
        Self::TimedOut,
        Self::Unavailable,
    ];

    pub const fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::MissingKey => "missing_api_key",
            Self::InvalidScope => "invalid_scope",
            Self::MalformedKey => "malformed_key",
            Self::UnknownKey => "unknown_key",
            Self::Inactive => "inactive",
            Self::Paused => "paused",
            Self::BurstExceeded => "burst_exceeded",
            Self::DailyExceeded => "daily_exceeded",
            Self::Overloaded => "overloaded",
            Self::TimedOut => "timed_out",
            Self::Unavailable => "unavailable",
        }
    }
}

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
    requests: [[AtomicU64; RequestOutcome::ALL.len()]; 2],
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
                for operation in [Operation::Lookup, Operation::Demo] {
                    for outcome in RequestOutcome::ALL {
                        let labels = [
                            KeyValue::new("operation", operation.label()),
                            KeyValue::new("outcome", outcome.label()),
                        ];
                        let count = &counters.requests[operation as usize][outcome as usize];
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
                    let count = counters.decisions[decision as usize].load(Relaxed);
                    observer.observe(count, &[KeyValue::new("decision", decision.label())]);
                }
            })
            .build();
    }
}
