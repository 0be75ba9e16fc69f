//! Maps errors to HTTP responses, and to the examples in the OpenAPI document. Defines every error status of the
//! operations.

use api_key::DigestError;
use poem_openapi::ApiResponse;
use quota_api::{MAX_BATCH, MAX_OVERLAP, SettingsError};
use service_kit::error::sentence;
use service_kit::openapi::Example;
use service_kit::{ErrorBody, SerdeJson};

use super::DOCS;
use crate::domain::account::{LoginError, MAX_CONTACT, MAX_CREDENTIAL, MAX_REASON, MAX_SESSION_TTL};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::rejection::Rejection;
use crate::domain::transfer::ImportError;
use crate::store::StoreError;

type Body = SerdeJson<ErrorBody>;

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

/// The result of an operation.
pub type Result<T, E = ApiError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Login(#[from] LoginError),
    #[error("a credential must be 1 to {MAX_CREDENTIAL} bytes long")]
    Credential,
    #[error(transparent)]
    Session(#[from] DigestError),
    #[error("a contact must be at most {MAX_CONTACT} bytes of JSON")]
    Contact,
    #[error("ttl_seconds must be 1 to {MAX_SESSION_TTL}")]
    SessionTtl,
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("a daily limit must be at least 1")]
    DailyLimit,
    #[error("an overlap must be at most {MAX_OVERLAP} seconds (7 days)")]
    Overlap,
    #[error(
        "a suspension needs a reason of 1 to {MAX_REASON} characters, without invisible characters; no other change takes a reason"
    )]
    Reason,
    #[error("actor must be owner, operator, system or admin:LOGIN")]
    Actor,
    #[error("the body must consist of valid charges of 49 bytes each")]
    Charges,
    #[error("accounts[{0}]: {1}")]
    Account(usize, ImportError),
    #[error("a call must have 1 to {max} {items}; this one has {actual}")]
    BatchSize { max: usize, items: &'static str, actual: usize },
}

type ErrorParts = (u16, &'static str, String);

impl RequestError {
    fn parts(&self) -> ErrorParts {
        let code = match self {
            Self::Login(_) => "invalid_login",
            Self::Credential => "invalid_credential",
            Self::Contact => "invalid_contact",
            Self::Session(_) | Self::SessionTtl => "invalid_session",
            Self::Settings(error) => error.as_str(),
            Self::DailyLimit => "invalid_limit",
            Self::Overlap => "invalid_overlap",
            Self::Reason => "invalid_reason",
            Self::Actor => "invalid_actor",
            Self::Charges => "invalid_charges",
            Self::Account(..) => "invalid_account",
            Self::BatchSize { .. } => "batch_too_large",
        };
        (400, code, self.to_string())
    }
}

impl StoreError {
    /// Leaves the detail out of the message of a 5xx, because it must not reach the client.
    fn parts(&self) -> ErrorParts {
        let (status, code, message) = match self {
            Self::Rejected(rejection) => return rejection.parts(),
            Self::InvalidCursor => return (400, "invalid_cursor", self.to_string()),
            Self::InvalidData(_) => (500, "internal_error", "Unexpected error. See the quota-svc log."),
            Self::Unavailable(_) => {
                (503, "store_unavailable", "The store is unavailable. Retry in a few seconds.")
            }
            Self::Unconfirmed(_) => (
                503,
                "not_confirmed",
                "The change was not confirmed in time: it may have been made or not. Check, then repeat it if needed.",
            ),
        };
        (status, code, message.to_owned())
    }
}

impl Rejection {
    fn parts(&self) -> ErrorParts {
        let (status, code) = match self {
            Self::AccountNotFound => (404, "account_not_found"),
            Self::KeyNotFound => (404, "key_not_found"),
            Self::SessionNotFound => (404, "session_not_found"),
            Self::AccountExists => (409, "account_exists"),
            Self::KeyLimitReached => (409, "key_limit_reached"),
            Self::CredentialConflict => (409, "version_conflict"),
            Self::ContactConflict => (409, "contact_conflict"),
            Self::KeyInactive => (409, "key_inactive"),
            Self::KeyPaused => (409, "key_paused"),
            Self::UnreadableKey { .. } => (500, "unreadable_key"),
            Self::UnreadableAccount(_) => (500, "unreadable_account"),
        };
        let message = match self {
            Self::UnreadableKey { .. } => {
                "The key's data can't be read. Delete the key, or restore the store from a backup. The quota-svc log has \
                 the reason."
            }
            Self::UnreadableAccount(_) => {
                "The account's data can't be read. Delete the account, or restore the store from a backup."
            }
            rejection => return (status, code, rejection.to_string()),
        };
        (status, code, message.to_owned())
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        Self::new(error.parts())
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        StoreError::from(rejection).into()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let parts = error.parts();
        match parts.0 {
            500 => tracing::error!(%error, "operation failed"),
            503 => tracing::warn!(%error, "operation failed"),
            _ => {}
        }
        Self::new(parts)
    }
}

impl ApiError {
    /// Logs the detail, which must not reach the client.
    pub fn internal(detail: impl ToString) -> Self {
        StoreError::InvalidData(detail.to_string().into()).into()
    }

    fn new((status, code, message): ErrorParts) -> Self {
        let body = SerdeJson(ErrorBody::new(code, sentence(&message), DOCS));
        match status {
            400 => Self::Invalid(body),
            404 => Self::NotFound(body),
            409 => Self::Conflict(body),
            503 => Self::Unavailable(body),
            _ => Self::Internal(body),
        }
    }
}

/// Examples of every error that an operation documents.
pub fn examples() -> Vec<Example<'static>> {
    let example = |operations, (status, code, message): ErrorParts| {
        Example::error(status, operations, code, &sentence(&message), DOCS)
    };
    let invalid = |operations, error: RequestError| example(operations, error.parts());
    let of_store = |operations, error: StoreError| example(operations, error.parts());
    let of_rule = |operations, rejection: Rejection| example(operations, rejection.parts());
    let (account, id) = (AccountId([0; 16]), KeyId([0; 16]));
    vec![
        invalid(&["chargeBatch"], RequestError::Charges),
        invalid(&["chargeBatch"], RequestError::BatchSize { max: MAX_BATCH, items: "charges", actual: 0 }),
        invalid(&["createAccount", "listAccounts"], LoginError::Space.into()),
        invalid(&["createAccount", "setCredential"], RequestError::Credential),
        invalid(&["setContact"], RequestError::Contact),
        invalid(&["createSession", "setCredential"], DigestError.into()),
        invalid(&["createKey", "changeKey"], SettingsError::Name.into()),
        invalid(&["createKey", "changeKey"], SettingsError::Expiry.into()),
        invalid(&["createKey", "changeKey"], SettingsError::Origins.into()),
        invalid(&["rotateKey"], RequestError::Overlap),
        invalid(&["changeAccount"], RequestError::Reason),
        invalid(
            &["changeAccount", "createKey", "rotateKey", "changeKey", "setDailyLimit", "changeKeyState"],
            RequestError::Actor,
        ),
        invalid(&["createKey", "setDailyLimit"], RequestError::DailyLimit),
        invalid(&["importAccounts"], RequestError::Account(0, LoginError::Space.into())),
        of_store(&["listAccounts", "exportAccounts", "countKeys"], StoreError::InvalidCursor),
        of_rule(&[], Rejection::AccountNotFound),
        of_rule(&[], Rejection::KeyNotFound),
        of_rule(&["getSession"], Rejection::SessionNotFound),
        of_rule(&["createAccount"], Rejection::AccountExists),
        of_rule(&["createKey", "rotateKey"], Rejection::KeyLimitReached),
        of_rule(&["setCredential", "createSession", "deleteAccount"], Rejection::CredentialConflict),
        of_rule(&["setContact"], Rejection::ContactConflict),
        of_rule(&["changeKeyState"], Rejection::KeyInactive),
        of_rule(&["changeKeyState"], Rejection::KeyPaused),
        of_store(&[], StoreError::InvalidData("".into())),
        of_rule(&[], Rejection::UnreadableKey { id, reason: String::new() }),
        of_rule(&[], Rejection::UnreadableAccount(account)),
        of_store(&[], StoreError::Unavailable("".into())),
        of_store(&[], StoreError::Unconfirmed("".into())),
    ]
}
