//! How requests ended and how clients' addresses were found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use edge::Decision;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use quota_client::ChargeError;

/// What is counted by outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// With a key.
    Lookup,
    /// Without.
    Demo,
}

impl Operation {
    /// The operation's id in the document.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Lookup => "get_ip",
            Self::Demo => "get_demo",
        }
    }
}

/// How a request ended: a metric's label and a span's attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Answered.
    Success,
    /// No key was given.
    MissingKey,
    /// The scope is none of the three.
    InvalidScope,
    /// The key can't be one, by its form.
    MalformedKey,
    /// No such key.
    UnknownKey,
    /// Deactivated.
    Inactive,
    /// Paused before.
    Paused,
    /// Paused by this request.
    BurstExceeded,
    /// The day's quota is used up.
    DailyExceeded,
    /// Too many charges were waiting.
    Overloaded,
    /// No verdict in time.
    TimedOut,
    /// No verdict to be had.
    Unavailable,
}

impl Ending {
    /// All of them.
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

    /// The label.
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

impl From<ChargeError> for Ending {
    fn from(error: ChargeError) -> Self {
        match error {
            ChargeError::Overloaded => Self::Overloaded,
            ChargeError::TimedOut => Self::TimedOut,
            ChargeError::Unavailable => Self::Unavailable,
        }
    }
}

/// The counts of the hot path.
#[derive(Debug, Default)]
pub struct Tally {
    endings: [[AtomicU64; Ending::ALL.len()]; 2],
    decisions: [AtomicU64; Decision::ALL.len()],
}

impl Tally {
    /// Counts a request.
    pub fn ended(&self, operation: Operation, ending: Ending) {
        self.endings[operation as usize][ending as usize].fetch_add(1, Relaxed);
    }

    /// Counts how a client's address was found.
    pub fn decided(&self, decision: Decision) {
        self.decisions[decision as usize].fetch_add(1, Relaxed);
    }

    /// Shows the counts to whoever reads the metrics.
    pub fn publish(self: &Arc<Self>, meter: &Meter) {
        let tally = self.clone();
        meter
            .u64_observable_counter("lookup_requests")
            .with_description("Look-ups by how they ended")
            .with_callback(move |observer| {
                for operation in [Operation::Lookup, Operation::Demo] {
                    for ending in Ending::ALL {
                        let labels = [
                            KeyValue::new("operation", operation.label()),
                            KeyValue::new("outcome", ending.label()),
                        ];
                        let count = &tally.endings[operation as usize][ending as usize];
                        observer.observe(count.load(Relaxed), &labels);
                    }
                }
            })
            .build();
        let tally = self.clone();
        meter
            .u64_observable_counter("lookup_client_ip_decisions")
            .with_description("How clients' addresses were found")
            .with_callback(move |observer| {
                for decision in Decision::ALL {
                    let count = tally.decisions[decision as usize].load(Relaxed);
                    observer.observe(count, &[KeyValue::new("decision", decision.label())]);
                }
            })
            .build();
    }
}
