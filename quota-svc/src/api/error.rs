//! Maps errors to HTTP responses.

use http::StatusCode;
use poem::Response;
use quota_api::Rejection;
use service_kit::ErrorBody;
use service_kit::error::{response, sentence};

use super::NO_DOCS;
use crate::store::StoreError;

const INTERNAL: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

const UNREADABLE_KEY: &str = "The key's data can't be read. Delete the key, or restore the store from a backup. The quota-svc \
     log has the reason.";
const UNREADABLE_ACCOUNT: &str =
    "The account's data can't be read. Delete the account, or restore the store from a backup.";

/// The response of an operation that failed.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

/// The result of an operation.
pub type Result<T, E = ApiError> = std::result::Result<T, E>;

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        use Rejection::{
            AccountNotFound, InvalidExpiry, KeyNotFound, SessionNotFound, UnreadableAccount, UnreadableKey,
        };
        let (status, message) = match &rejection {
            AccountNotFound | KeyNotFound | SessionNotFound => (StatusCode::NOT_FOUND, rejection.to_string()),
            InvalidExpiry => (StatusCode::BAD_REQUEST, rejection.to_string()),
            UnreadableKey { .. } => (INTERNAL, UNREADABLE_KEY.to_owned()),
            UnreadableAccount { .. } => (INTERNAL, UNREADABLE_ACCOUNT.to_owned()),
            _ => (StatusCode::CONFLICT, rejection.to_string()),
        };
        if status.is_server_error() {
            tracing::error!(%rejection, "operation failed");
        }
        Self { status, code: rejection.code(), message }
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

    /// Of a request that is not valid.
    pub fn invalid(code: &'static str, message: impl ToString) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code, message: message.to_string() }
    }

    pub fn into_response(self) -> Response {
        let Self { status, code, message } = self;
        response(status, &ErrorBody::new(code, sentence(&message), NO_DOCS))
    }
}
