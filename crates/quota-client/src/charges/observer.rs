//! What the owner of a charger may count: its calls, and the charges that got no verdict.

use std::time::Duration;

use super::ChargeError;
use crate::error::ClientError;

/// Told of what happens, for metrics. It is on the hot path: count and return.
pub trait Observer: Send + Sync + 'static {
    /// A call of quota-svc ended.
    fn called(&self, _call: &CallReport) {}

    /// A charge ended without a verdict.
    fn lost(&self, _error: ChargeError) {}
}

/// Counts nothing.
impl Observer for () {}

/// One call of quota-svc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallReport {
    /// How many charges it carried.
    pub charges: usize,
    /// From its sending to the end of its answer.
    pub elapsed: Duration,
    /// What became of it.
    pub outcome: CallOutcome,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallOutcome {
    /// It brought verdicts.
    Answered,
    /// It was answered with an error.
    Refused,
    /// It was not sent: no connection.
    Unreachable,
    /// It was not answered in time.
    TimedOut,
    /// The connection broke, or the answer made no sense.
    Broken,
}

impl CallOutcome {
    /// A name for a metric's label.
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
            Err(ClientError::Refused { .. }) => Self::Refused,
            Err(ClientError::Unreachable(_)) => Self::Unreachable,
            Err(ClientError::TimedOut) => Self::TimedOut,
            Err(_) => Self::Broken,
        }
    }
}
