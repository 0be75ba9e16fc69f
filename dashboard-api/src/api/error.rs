//! Converts errors into the error responses of the operations.

use poem_openapi::ApiResponse;
use quota_client::ClientError;
use service_kit::{ErrorBody, SerdeJson};

use crate::accounts::AccountError;
use crate::password::PasswordError;

type Body = SerdeJson<ErrorBody>;

// The messages are also examples in the OpenAPI document (`examples.rs`).
pub(super) const UNAUTHENTICATED: &str = "You are not signed in, or your session has ended. Sign in.";
pub(super) const WRONG_CREDENTIALS: &str = "Incorrect login or password.";
pub(super) const WRONG_PASSWORD: &str = "Incorrect password.";
pub(super) const SIGNUP_DISABLED: &str = "Sign-up is closed. Ask the operator for an account.";
pub(super) const ACCOUNT_LIMIT_REACHED: &str =
    "Sign-up is closed: this service has reached its maximum number of accounts.";
pub(super) const KEY_NOT_FOUND: &str = "This key does not exist in your account.";
pub(super) const LOGIN_TAKEN: &str = "This login is already taken. Choose another one or sign in.";
pub(super) const KEY_LIMIT_REACHED: &str =
    "You have reached the limit of 10 keys per account. Delete one to create another.";
pub(super) const KEY_INACTIVE: &str = "This key is deactivated, not paused. Reactivate it instead.";
pub(super) const KEY_PAUSED: &str = "This key is paused, not deactivated. Resume it instead.";
pub(super) const VERSION_CONFLICT: &str = "The password was changed in the meantime. Sign in again.";
pub(super) const UNAVAILABLE: &str = "The key store is unavailable. Retry in a few seconds.";
pub(super) const NOT_CONFIRMED: &str = "The change was made, but the key store did not confirm it in time, so it could still be lost. Reload the page and check before you repeat it: creating a key again can give you a second one.";

/// The error responses of the operations.
#[derive(ApiResponse, Debug)]
pub enum ApiError {
    /// Invalid request: `invalid_login`, `invalid_password`, `invalid_name`, `bad_request`.
    #[oai(status = 400)]
    Invalid(Body),
    /// Not signed in (`unauthenticated`), or incorrect login or password (`invalid_credentials`).
    #[oai(status = 401)]
    Unauthenticated(Body),
    /// Not allowed: `csrf_refused`, `wrong_password`, `signup_disabled`, `account_limit_reached`.
    #[oai(status = 403)]
    Forbidden(Body),
    /// This key does not exist in your account: `key_not_found`.
    #[oai(status = 404)]
    NotFound(Body),
    /// Conflicts with the current state: `key_limit_reached`, `key_inactive`, `key_paused`, `login_taken`,
    /// `version_conflict`.
    #[oai(status = 409)]
    Conflict(Body),
    /// Too many attempts: `rate_limit_exceeded`.
    #[oai(status = 429)]
    TooMany(
        Body,
        /// Seconds to wait before the next attempt.
        #[oai(header = "Retry-After")]
        u64,
    ),
    /// Unexpected error: `internal_error`. The server's log has the details.
    #[oai(status = 500)]
    Internal(Body),
    /// The key store is unavailable, or too many sign-ins are in progress: `unavailable`. Retry in a few seconds. If a
    /// change was made but not confirmed in time (`not_confirmed`), check before you repeat it.
    #[oai(status = 503)]
    Unavailable(Body),
}

/// Creates an error body from a code and a message.
type MakeBody<'a> = &'a dyn Fn(&str, &str) -> Body;

/// Converts an error into a response that links to the documentation.
pub fn api_error(error: AccountError, docs_url: &str) -> ApiError {
    let body: MakeBody<'_> = &|code, message| SerdeJson(ErrorBody::new(code, sentence(message), docs_url));
    match error {
        AccountError::Unauthenticated => unauthenticated(body),
        AccountError::WrongCredentials => {
            ApiError::Unauthenticated(body("invalid_credentials", WRONG_CREDENTIALS))
        }
        AccountError::WrongPassword => ApiError::Forbidden(body("wrong_password", WRONG_PASSWORD)),
        AccountError::SignupDisabled => ApiError::Forbidden(body("signup_disabled", SIGNUP_DISABLED)),
        AccountError::AccountLimitReached => {
            ApiError::Forbidden(body("account_limit_reached", ACCOUNT_LIMIT_REACHED))
        }
        AccountError::Throttled(throttled) => {
            let seconds = throttled.retry_after.as_secs() + 1;
            let message = format!("Too many attempts. Try again in {seconds} seconds.");
            ApiError::TooMany(body("rate_limit_exceeded", &message), seconds)
        }
        AccountError::Password(PasswordError::Busy) => {
            ApiError::Unavailable(body("unavailable", "Too many sign-ins right now. Retry in a few seconds."))
        }
        AccountError::Password(error @ (PasswordError::Hash(_) | PasswordError::TaskFailed(_))) => {
            internal(&error, body)
        }
        AccountError::Password(error) => ApiError::Invalid(body("invalid_password", &error.to_string())),
        AccountError::Quota(error) => quota_error(&error, body),
        AccountError::Random(error) => internal(&error, body),
    }
}

fn quota_error(error: &ClientError, body: MakeBody<'_>) -> ApiError {
    let ClientError::Api { code, message, .. } = error else {
        return no_response(error, body);
    };
    let conflict = |message| ApiError::Conflict(body(code, message));
    match code.as_str() {
        "invalid_login" | "invalid_name" => ApiError::Invalid(body(code, message)),
        // The account was deleted in another session.
        "account_not_found" => unauthenticated(body),
        "key_not_found" | "not_found" => ApiError::NotFound(body("key_not_found", KEY_NOT_FOUND)),
        "account_exists" => ApiError::Conflict(body("login_taken", LOGIN_TAKEN)),
        "key_limit_reached" => conflict(KEY_LIMIT_REACHED),
        "key_inactive" => conflict(KEY_INACTIVE),
        "key_paused" => conflict(KEY_PAUSED),
        "version_conflict" => conflict(VERSION_CONFLICT),
        "store_unavailable" => unavailable(error, body),
        "not_confirmed" => {
            tracing::warn!(error = error as &dyn std::error::Error, "change not confirmed");
            ApiError::Unavailable(body(code, NOT_CONFIRMED))
        }
        _ => internal(error, body),
    }
}

fn unauthenticated(body: MakeBody<'_>) -> ApiError {
    ApiError::Unauthenticated(body("unauthenticated", UNAUTHENTICATED))
}

fn unavailable(error: &(dyn std::error::Error + 'static), body: MakeBody<'_>) -> ApiError {
    tracing::warn!(error, "quota-svc or its store is unavailable");
    ApiError::Unavailable(body("unavailable", UNAVAILABLE))
}

/// If the call may have taken effect, a plain "retry" would be bad advice for a change.
fn no_response(error: &ClientError, body: MakeBody<'_>) -> ApiError {
    if !error.may_have_taken_effect() {
        return unavailable(error, body);
    }
    tracing::warn!(error = error as &dyn std::error::Error, "no valid response from quota-svc");
    let message = "The key store did not respond in time. If you made a change, reload the page and check whether it \
                   took effect before you repeat it.";
    ApiError::Unavailable(body("unavailable", message))
}

fn internal(error: &(dyn std::error::Error + 'static), body: MakeBody<'_>) -> ApiError {
    tracing::error!(error, "request failed");
    ApiError::Internal(body("internal_error", service_kit::error::INTERNAL_ERROR))
}

/// Adds a leading capital and a final period to a lowercase error message.
fn sentence(text: &str) -> String {
    let mut chars = text.trim_end_matches('.').chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str() + "."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_and_message(error: ClientError) -> (String, String) {
        match api_error(error.into(), "https://docs.example") {
            ApiError::Unavailable(SerdeJson(body)) => (body.error, body.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unconfirmed_change_is_not_reported_as_a_plain_outage() {
        let api_error = |code: &str| ClientError::Api {
            status: 503,
            code: code.to_owned(),
            message: "the message of quota-svc".to_owned(),
        };
        let (code, message) = code_and_message(api_error("not_confirmed"));
        assert_eq!(code, "not_confirmed");
        assert!(message.contains("check before you repeat it"), "{message}");
        assert!(!message.contains("Retry"), "{message}");
        let (code, message) = code_and_message(ClientError::TimedOut);
        assert_eq!(code, "unavailable");
        assert!(message.contains("before you repeat it"), "{message}");
        let (code, message) = code_and_message(api_error("store_unavailable"));
        assert_eq!((code.as_str(), message.contains("Retry")), ("unavailable", true));
    }
}
