//! Hooks for metrics about calls and failed charges.

use std::time::Duration;

use super::ChargeError;
use crate::error::ClientError;

/// Receives reports for metrics. Called on the hot path, so implementations must return quickly.
pub trait Observer: Send + Sync + 'static {
    /// A call to quota-svc has ended.
    fn on_call(&self, _call: &CallReport) {}

    /// A charge has ended without a verdict.
    fn on_charge_error(&self, _error: ChargeError) {}
}

/// Ignores all reports.
impl Observer for () {}

/// One call to quota-svc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallReport {
    /// Number of charges in the call.
    pub charges: usize,
    /// Time from sending the request to the end of the response.
    pub elapsed: Duration,
    /// Result of the call.
    pub outcome: CallOutcome,
}

/// Result of a call. The variants are named after their metric labels, which are public.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallOutcome {
    /// The response has the verdicts.
    Answered,
    /// The response is an error.
    Refused,
    /// No connection, so nothing was sent.
    Unreachable,
    /// No response before the deadline.
    TimedOut,
    /// The connection broke, or the response is invalid.
    Broken,
}

impl CallOutcome {
    /// Returns the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::Broken => "broken",
        }
    }

    pub(super) fn of<T>(result: &Result<T, ClientError>) -> Self {
        match result {
            Ok(_) => Self::Answered,
            Err(ClientError::Api { .. }) => Self::Refused,
            Err(ClientError::Unreachable(_)) => Self::Unreachable,
            Err(ClientError::TimedOut) => Self::TimedOut,
            Err(_) => Self::Broken,
        }
    }
}
