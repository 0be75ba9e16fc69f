//! Errors of calls to quota-svc. The variant shows whether the call may have taken effect.

use serde::Deserialize;

pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

/// The result of a call.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

/// `None` if what the call was about does not exist (404).
pub fn found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.status() == Some(404) => Ok(None),
        result => result.map(Some),
    }
}

/// Why a call failed. Safe to log: contains no URL, login or key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    #[error("invalid quota-svc URL: {0}")]
    BaseUrl(&'static str),
    #[error("quota-svc responded with {status} {code}: {message}")]
    Api { status: u16, code: String, message: String },
    /// No connection, or no time left for the call, so nothing was sent. Retrying is safe.
    #[error("can't reach quota-svc")]
    Unreachable(#[source] Source),
    /// The connection broke. The call may have taken effect.
    #[error("the connection to quota-svc broke")]
    Interrupted(#[source] Source),
    /// No response within the timeout. The call may have taken effect.
    #[error("quota-svc did not respond in time")]
    TimedOut,
    /// The response is not a valid quota-svc response. The call may have taken effect.
    #[error("invalid response from quota-svc: {0}")]
    Protocol(String),
}

impl ClientError {
    /// Returns the error code of a [`ClientError::Api`], such as `account_not_found`.
    pub fn code(&self) -> Option<&str> {
        let Self::Api { code, .. } = self else { return None };
        Some(code)
    }

    pub fn status(&self) -> Option<u16> {
        let Self::Api { status, .. } = self else { return None };
        Some(*status)
    }

    /// Returns whether a change may have been made although there is no valid response.
    pub fn may_have_taken_effect(&self) -> bool {
        matches!(self, Self::Interrupted(_) | Self::TimedOut | Self::Protocol(_))
    }

    /// The error for an ID that can't exist. No call is made for it.
    pub(crate) fn not_found() -> Self {
        Self::Api { status: 404, code: "not_found".to_owned(), message: "ID not found".to_owned() }
    }

    /// Parses an error response. Its `docs` link is ignored.
    pub(crate) fn from_response(status: u16, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct ErrorBody {
            error: String,
            message: String,
        }
        match serde_json::from_slice(body) {
            Ok(ErrorBody { error, message }) => Self::Api { status, code: error, message },
            Err(_) => Self::Protocol(format!("status {status} without an error body")),
        }
    }

    /// Converts a JSON error. Keeps only its category and position: serde_json's message quotes the value, which may be
    /// a key.
    pub(crate) fn json(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self::Protocol(format!("{:?} error at line {line} column {column}", error.classify()))
    }
}
