//! From what goes wrong to answers: the only status codes of this crate's operations.

use poem_openapi::ApiResponse;
use quota_client::ClientError;
use service_kit::{ErrorBody, SerdeJson};

use crate::accounts::AccountError;
use crate::password::PasswordError;

type Body = SerdeJson<ErrorBody>;

/// Every error an operation answers with.
#[derive(ApiResponse, Debug)]
pub enum ApiError {
    /// The request says something that can't be: `invalid_login`, `invalid_password`, `invalid_name`, `bad_request`.
    #[oai(status = 400)]
    Invalid(Body),
    /// Not signed in (`unauthenticated`), or login or password is wrong (`invalid_credentials`).
    #[oai(status = 401)]
    Unauthenticated(Body),
    /// Refused: `csrf_refused`, `wrong_password`, `signup_disabled`, `account_limit_reached`.
    #[oai(status = 403)]
    Forbidden(Body),
    /// There is no such key in this account: `key_not_found`.
    #[oai(status = 404)]
    NotFound(Body),
    /// Not as things are: `key_limit_reached`, `key_inactive`, `key_paused`, `login_taken`, `version_conflict`.
    #[oai(status = 409)]
    Conflict(Body),
    /// Too many attempts: `rate_limit_exceeded`.
    #[oai(status = 429)]
    TooMany(
        Body,
        /// Seconds to wait before trying again.
        #[oai(header = "Retry-After")]
        u64,
    ),
    /// Unexpected failure; the log has the detail: `internal_error`.
    #[oai(status = 500)]
    Internal(Body),
    /// The store is away or everybody signs in at once; try again: `unavailable`.
    #[oai(status = 503)]
    Unavailable(Body),
}

/// What went wrong, before it is an answer.
#[derive(Debug)]
pub enum Failure {
    /// No session, or none that lives.
    Unauthenticated,
    /// With the account.
    Account(AccountError),
}

impl From<AccountError> for Failure {
    fn from(error: AccountError) -> Self {
        Self::Account(error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Account(AccountError::Quota(error))
    }
}

impl From<getrandom::Error> for Failure {
    fn from(error: getrandom::Error) -> Self {
        Self::Account(AccountError::Random(error))
    }
}

impl Failure {
    /// The answer, with links to this documentation.
    pub fn answer(self, docs_url: &str) -> ApiError {
        let body = |code: &str, message: &str| SerdeJson(ErrorBody::new(code, message, docs_url));
        use AccountError as A;
        match self {
            Self::Unauthenticated => unauthenticated(docs_url),
            Self::Account(A::WrongCredentials) => {
                ApiError::Unauthenticated(body("invalid_credentials", "Login or password is wrong."))
            }
            Self::Account(A::WrongPassword) => {
                ApiError::Forbidden(body("wrong_password", "The password is wrong."))
            }
            Self::Account(A::SignupOff) => {
                let message = "Sign-up is switched off here. Ask whoever runs this service for an account.";
                ApiError::Forbidden(body("signup_disabled", message))
            }
            Self::Account(A::Full) => {
                ApiError::Forbidden(body("account_limit_reached", "This service takes no more accounts."))
            }
            Self::Account(A::Throttled(throttled)) => {
                let seconds = throttled.retry_after.as_secs() + 1;
                let message = format!("Too many attempts. Try again in {seconds} seconds.");
                ApiError::TooMany(body("rate_limit_exceeded", &message), seconds)
            }
            Self::Account(A::Password(error)) => password(&error, docs_url),
            Self::Account(A::Quota(error)) => refused(&error, docs_url),
            Self::Account(A::Random(error)) => internal(&error, docs_url),
        }
    }
}

fn password(error: &PasswordError, docs_url: &str) -> ApiError {
    let body = |code: &str, message: String| SerdeJson(ErrorBody::new(code, message, docs_url));
    match error {
        PasswordError::Length => ApiError::Invalid(body("invalid_password", sentence(&error.to_string()))),
        PasswordError::Busy => {
            ApiError::Unavailable(body("unavailable", "Too many sign-ins at once; try again.".to_owned()))
        }
        PasswordError::Hash(_) | PasswordError::Cut(_) => internal(error, docs_url),
    }
}

fn refused(error: &ClientError, docs_url: &str) -> ApiError {
    let ClientError::Refused { error: code, message, .. } = error else {
        return unavailable(error, docs_url);
    };
    let body = |code: &str, message: &str| SerdeJson(ErrorBody::new(code, sentence(message), docs_url));
    match code.as_str() {
        "invalid_login" | "invalid_name" => ApiError::Invalid(body(code, message)),
        // Deleted from another place while signed in here.
        "account_not_found" => unauthenticated(docs_url),
        "key_not_found" | "not_found" => {
            ApiError::NotFound(body("key_not_found", "There is no such key in your account."))
        }
        "account_exists" => {
            ApiError::Conflict(body("login_taken", "This login is taken; choose another or sign in."))
        }
        "key_limit_reached" => {
            ApiError::Conflict(body(code, "An account holds at most 10 keys. Delete one to make room."))
        }
        "key_inactive" => ApiError::Conflict(body(code, "This key is deactivated: reactivate it instead.")),
        "key_paused" => ApiError::Conflict(body(code, "This key is paused: resume it instead.")),
        "version_conflict" => ApiError::Conflict(body(
            code,
            "The password was changed from another place meanwhile; sign in again.",
        )),
        "store_unavailable" | "not_confirmed" => unavailable(error, docs_url),
        _ => internal(error, docs_url),
    }
}

fn unauthenticated(docs_url: &str) -> ApiError {
    ApiError::Unauthenticated(SerdeJson(ErrorBody::new("unauthenticated", "Sign in first.", docs_url)))
}

fn unavailable(error: &(dyn std::error::Error + 'static), docs_url: &str) -> ApiError {
    tracing::warn!(error, "quota-svc can't do it now");
    let message = "The key store can't be reached at the moment; please try again.";
    ApiError::Unavailable(SerdeJson(ErrorBody::new("unavailable", message, docs_url)))
}

fn internal(error: &(dyn std::error::Error + 'static), docs_url: &str) -> ApiError {
    tracing::error!(error, "a request failed");
    let message = "Something went wrong on our side; please try again.";
    ApiError::Internal(SerdeJson(ErrorBody::new("internal_error", message, docs_url)))
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.trim_end_matches('.').chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str() + "."
}
