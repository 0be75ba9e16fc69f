//! Maps errors to HTTP responses.

use api_key::DigestError;
use http::StatusCode;
use poem::Response;
use quota_api::{MAX_OVERLAP, RejectionCode, SettingsError};
use service_kit::ErrorBody;
use service_kit::error::{response, sentence};

use super::NO_DOCS;
use crate::domain::account::{LoginError, MAX_CONTACT, MAX_CREDENTIAL, MAX_REASON, MAX_SESSION_TTL};
use crate::domain::rejection::Rejection;
use crate::domain::transfer::ImportError;
use crate::store::StoreError;

const INTERNAL: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

/// The response of an operation that failed.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
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
    #[error("not a valid command: {0}")]
    Command(#[from] serde_json::Error),
    #[error("the body must consist of valid charges of 49 bytes each")]
    Charges,
    #[error("accounts[{0}]: {1}")]
    Account(usize, ImportError),
    #[error("a call must have 1 to {max} {items}; this one has {actual}")]
    BatchSize { max: usize, items: &'static str, actual: usize },
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let code = match &error {
            RequestError::Login(_) => "invalid_login",
            RequestError::Credential => "invalid_credential",
            RequestError::Contact => "invalid_contact",
            RequestError::Session(_) | RequestError::SessionTtl => "invalid_session",
            RequestError::Settings(error) => error.as_str(),
            RequestError::DailyLimit => "invalid_limit",
            RequestError::Overlap => "invalid_overlap",
            RequestError::Reason => "invalid_reason",
            RequestError::Command(_) => "bad_request",
            RequestError::Charges => "invalid_charges",
            RequestError::Account(..) => "invalid_account",
            RequestError::BatchSize { .. } => "batch_too_large",
        };
        Self { status: StatusCode::BAD_REQUEST, code, message: error.to_string() }
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let code = rejection.code();
        let status = match code {
            RejectionCode::AccountNotFound | RejectionCode::KeyNotFound | RejectionCode::SessionNotFound => {
                StatusCode::NOT_FOUND
            }
            RejectionCode::InvalidExpiry => StatusCode::BAD_REQUEST,
            RejectionCode::UnreadableKey | RejectionCode::UnreadableAccount => INTERNAL,
            _ => StatusCode::CONFLICT,
        };
        let message = match code {
            RejectionCode::UnreadableKey => {
                "The key's data can't be read. Delete the key, or restore the store from a backup. The quota-svc log has \
                 the reason."
                    .to_owned()
            }
            RejectionCode::UnreadableAccount => {
                "The account's data can't be read. Delete the account, or restore the store from a backup.".to_owned()
            }
            _ => rejection.to_string(),
        };
        if status.is_server_error() {
            tracing::error!(%rejection, "operation failed");
        }
        Self { status, code: code.as_str(), message }
    }
}

impl From<StoreError> for ApiError {
    /// Logs the detail of a 5xx, which must not reach the client.
    fn from(error: StoreError) -> Self {
        let (status, code, message) = match error {
            StoreError::Rejected(rejection) => return rejection.into(),
            StoreError::InvalidCursor => {
                (StatusCode::BAD_REQUEST, "invalid_cursor", "`cursor` is not the `next` of a previous page")
            }
            StoreError::InvalidData(_) => {
                (INTERNAL, "internal_error", "Unexpected error. See the quota-svc log.")
            }
            StoreError::Unavailable(_) => {
                (UNAVAILABLE, "store_unavailable", "The store is unavailable. Retry in a few seconds.")
            }
            StoreError::Unconfirmed(_) => (
                UNAVAILABLE,
                "not_confirmed",
                "The change was not confirmed in time: it may have been made or not. Check, then repeat it if needed.",
            ),
        };
        match status {
            INTERNAL => tracing::error!(%error, "operation failed"),
            UNAVAILABLE => tracing::warn!(%error, "operation failed"),
            _ => {}
        }
        Self { status, code, message: message.to_owned() }
    }
}

impl ApiError {
    /// Logs the detail, which must not reach the client.
    pub fn internal(detail: impl ToString) -> Self {
        StoreError::InvalidData(detail.to_string().into()).into()
    }

    pub fn into_response(self) -> Response {
        let Self { status, code, message } = self;
        response(status, &ErrorBody::new(code, sentence(&message), NO_DOCS))
    }
}
