//! From the store's errors to answers: the only status codes of this crate's operations.

use poem_openapi::ApiResponse;
use service_kit::{ErrorBody, SerdeJson};

use super::DOCS;
use crate::store::StoreError;

type Body = SerdeJson<ErrorBody>;

/// Every error an operation answers with.
#[derive(ApiResponse, Debug)]
pub enum ApiError {
    /// The request says something that can't be.
    #[oai(status = 400)]
    Invalid(Body),
    /// What is named does not exist, or belongs to another account.
    #[oai(status = 404)]
    NotFound(Body),
    /// It can't be done as things are.
    #[oai(status = 409)]
    Conflict(Body),
    /// Unexpected failure; the log has the detail.
    #[oai(status = 500)]
    Internal(Body),
    /// The store is away, or did not confirm in time; try again.
    #[oai(status = 503)]
    Unavailable(Body),
}

impl ApiError {
    /// 400 with a code and what is wrong.
    pub fn invalid(code: &str, message: impl ToString) -> Self {
        Self::Invalid(body(code, message))
    }

    /// 500 after the detail went to the log.
    pub fn internal(detail: impl std::fmt::Display) -> Self {
        tracing::error!(error = %detail, "an operation failed");
        Self::Internal(body("internal_error", "Unexpected failure; quota-svc's log has the detail."))
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        use StoreError as E;
        match error {
            E::AccountExists => Self::Conflict(body("account_exists", error)),
            E::AccountNotFound => Self::NotFound(body("account_not_found", error)),
            E::KeyNotFound => Self::NotFound(body("key_not_found", error)),
            E::SessionNotFound => Self::NotFound(body("session_not_found", error)),
            E::KeyLimitReached => Self::Conflict(body("key_limit_reached", error)),
            E::VersionConflict => Self::Conflict(body("version_conflict", error)),
            E::KeyInactive => Self::Conflict(body("key_inactive", error)),
            E::KeyPaused => Self::Conflict(body("key_paused", error)),
            E::Away(detail) => {
                tracing::warn!(%detail, "an operation failed because the store is away");
                Self::Unavailable(body("store_unavailable", "The store can't be reached now; try again."))
            }
            E::Unconfirmed(detail) => {
                tracing::warn!(%detail, "a write was not confirmed");
                let message = "The change was made but not confirmed in time: check, and try again.";
                Self::Unavailable(body("not_confirmed", message))
            }
            E::Unreadable(detail) => Self::internal(detail),
        }
    }
}

fn body(code: &str, message: impl ToString) -> Body {
    let mut message = message.to_string();
    if let Some(first) = message.get(..1) {
        message = format!("{}{}", first.to_uppercase(), &message[1..]);
    }
    if !message.ends_with('.') {
        message.push('.');
    }
    SerdeJson(ErrorBody::new(code, message, DOCS))
}
