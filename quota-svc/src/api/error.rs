//! Maps errors to HTTP responses; defines every error status of the operations.

use poem_openapi::ApiResponse;
use service_kit::{ErrorBody, SerdeJson};

use super::DOCS;
use crate::domain::key::KeyChangeError;
use crate::store::StoreError;

type Body = SerdeJson<ErrorBody>;

// The messages are also examples in the OpenAPI document (`examples.rs`).
pub(super) const UNEXPECTED: &str = "Unexpected error. See the quota-svc log.";
pub(super) const STORE_UNAVAILABLE: &str = "The store is unavailable. Retry in a few seconds.";
pub(super) const NOT_CONFIRMED: &str = "The change was made but not confirmed in time, so it could be lost. Check, then \
                                        repeat it if needed.";
pub(super) const UNREADABLE_KEY: &str = "The key's data can't be read. Delete the key, or restore the store from a \
                                         backup. The quota-svc log has the reason.";
pub(super) const UNREADABLE_ACCOUNT: &str =
    "The account's data can't be read. Delete the account, or restore the store from a backup.";

#[derive(ApiResponse, Debug)]
pub enum ApiError {
    /// Invalid request.
    #[oai(status = 400)]
    Invalid(Body),
    /// The account, key or session does not exist, or the key belongs to another account.
    #[oai(status = 404)]
    NotFound(Body),
    /// The request conflicts with the current state.
    #[oai(status = 409)]
    Conflict(Body),
    /// Unexpected error (`internal_error`), or stored data that can't be read (`unreadable_key`, `unreadable_account`).
    /// The quota-svc log has the details.
    #[oai(status = 500)]
    Internal(Body),
    /// The store is unavailable (`store_unavailable`), or did not confirm a change in time (`not_confirmed`).
    #[oai(status = 503)]
    Unavailable(Body),
}

impl ApiError {
    pub fn invalid(code: &str, message: impl ToString) -> Self {
        Self::Invalid(body(code, message))
    }

    /// Logs the detail, which must not reach the client.
    pub fn internal(detail: impl std::fmt::Display) -> Self {
        tracing::error!(error = %detail, "operation failed");
        Self::Internal(body("internal_error", UNEXPECTED))
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
            E::InvalidCursor => Self::Invalid(body("invalid_cursor", error)),
            E::CredentialConflict => Self::Conflict(body("version_conflict", error)),
            E::KeyChange(KeyChangeError::Inactive) => Self::Conflict(body("key_inactive", error)),
            E::KeyChange(KeyChangeError::Paused) => Self::Conflict(body("key_paused", error)),
            E::Unavailable(detail) => {
                tracing::warn!(%detail, "operation failed: the store is unavailable");
                Self::Unavailable(body("store_unavailable", STORE_UNAVAILABLE))
            }
            E::Unconfirmed(detail) => {
                tracing::warn!(%detail, "change not confirmed");
                Self::Unavailable(body("not_confirmed", NOT_CONFIRMED))
            }
            E::InvalidData(detail) => Self::internal(detail),
            E::UnreadableKey { .. } => {
                tracing::error!(%error, "operation failed");
                Self::Internal(body("unreadable_key", UNREADABLE_KEY))
            }
            E::UnreadableAccount(_) => {
                tracing::error!(%error, "operation failed");
                Self::Internal(body("unreadable_account", UNREADABLE_ACCOUNT))
            }
        }
    }
}

/// An error body whose message is a sentence.
fn body(code: &str, message: impl ToString) -> Body {
    SerdeJson(ErrorBody::new(code, sentence(message), DOCS))
}

/// Adds an upper-case first letter and a final period.
pub(super) fn sentence(message: impl ToString) -> String {
    let mut message = message.to_string();
    if let Some(first) = message.get(..1) {
        message = format!("{}{}", first.to_uppercase(), &message[1..]);
    }
    if !message.ends_with('.') {
        message.push('.');
    }
    message
}
