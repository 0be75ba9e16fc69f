//! Why a call of quota-svc brought no answer, told apart by whether it may have been carried out.

use serde::Deserialize;

/// Why a call failed. What it says is safe to log: no URL, no login, no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The base URL is not one that quota-svc can be called at.
    #[error("not a base URL of quota-svc: {0}")]
    BaseUrl(&'static str),
    /// The HTTP client can't be set up.
    #[error("the HTTP client can't be set up")]
    Setup(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// quota-svc answered with an error.
    #[error("quota-svc refused with {status} {error}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The error code, for programs.
        error: String,
        /// What is wrong, for people.
        message: String,
    },
    /// No connection: surely nothing was sent, the call may be made again.
    #[error("quota-svc can't be reached")]
    Unreachable(#[source] reqwest::Error),
    /// The connection broke after the call may have been written: it may have been carried out.
    #[error("the connection to quota-svc broke")]
    Interrupted(#[source] reqwest::Error),
    /// No answer within the time allowed: the call may have been carried out.
    #[error("quota-svc did not answer in time")]
    TimedOut,
    /// The answer is none that quota-svc gives.
    #[error("quota-svc's answer can't be understood: {0}")]
    Protocol(String),
}

impl ClientError {
    /// The error code where quota-svc refused, as in `account_not_found`.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { error, .. } => Some(error),
            _ => None,
        }
    }

    /// The HTTP status where quota-svc refused.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// What an id that no account, key or session can have is answered with, without a call.
    pub(crate) fn no_such_id() -> Self {
        Self::Refused {
            status: 404,
            error: "not_found".to_owned(),
            message: "there is no such id".to_owned(),
        }
    }

    /// Reads the error body; its `docs` link is for people who call by hand.
    pub(crate) fn refused(status: u16, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct ErrorBody {
            error: String,
            message: String,
        }
        match serde_json::from_slice(body) {
            Ok(ErrorBody { error, message }) => Self::Refused { status, error, message },
            Err(_) => Self::Protocol(format!("status {status} without an error body")),
        }
    }

    /// Tells only where the parser stopped: its own message quotes the value, which may be a key.
    pub(crate) fn unreadable(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self::Protocol(format!("{:?} error at line {line} column {column}", error.classify()))
    }
}

impl From<reqwest::Error> for ClientError {
    fn from(error: reqwest::Error) -> Self {
        // Order matters: a connect timeout is both, and what never connected was never sent.
        let error = error.without_url();
        if error.is_connect() {
            Self::Unreachable(error)
        } else if error.is_timeout() {
            Self::TimedOut
        } else {
            Self::Interrupted(error)
        }
    }
}
