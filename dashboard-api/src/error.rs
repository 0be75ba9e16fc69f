//! The errors of all operations, their responses, and their examples in the OpenAPI document.

use std::borrow::Cow;

use http::StatusCode;
use poem::error::ResponseError;
use poem_openapi::ApiResponse;
use poem_openapi::registry::{MetaResponses, Registry};
use quota_client::ClientError;
use quota_client::wire::SettingsError;
use service_kit::error::{INTERNAL_ERROR, sentence};
use service_kit::openapi::{Example, OpenApiDocument};
use service_kit::{ErrorBody, SerdeJson};

use crate::notices::target::TargetError;
use crate::password::PasswordError;
use crate::throttle::Throttled;

/// Why an operation failed. The owner sees the messages as sentences.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", .0.message)]
    Fixed(&'static FixedError),
    #[error("only the operator can do this, on the command line")]
    OperatorOnly,
    /// The account is suspended, with this reason.
    #[error("your account is suspended: {0}. Ask the operator of this service")]
    Suspended(String),
    #[error(transparent)]
    Webhook(#[from] TargetError),
    #[error(transparent)]
    Throttled(#[from] Throttled),
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Quota(#[from] ClientError),
    /// The operating system returned no random bytes, for example for a session ID.
    #[error("can't get random bytes from the operating system")]
    Random(#[from] getrandom::Error),
}

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that always has the same response.
#[derive(Debug)]
pub struct FixedError {
    status: u16,
    code: &'static str,
    message: &'static str,
    /// The operations that show it as an example. Empty: all with this status.
    operations: &'static [&'static str],
}

/// Defines a constant for each error, and the list of all.
macro_rules! fixed_errors {
    ($($name:ident: $status:literal $code:literal $operations:expr, $message:expr;)+) => {
        $(static $name: FixedError = FixedError {
            status: $status, code: $code, message: $message, operations: $operations,
        };)+
        const FIXED: &[&FixedError] = &[$(&$name),+];
        impl Error {
            $(pub const $name: Self = Self::Fixed(&$name);)+
        }
    };
}

// Some are errors of quota-svc, in the words of the dashboard; they have the same code there.
fixed_errors! {
    WRONG_LOGIN: 400 "wrong_login" &["deleteAccountOf"],
        "this is not the login of the account";
    INVALID_ADDRESS: 400 "invalid_address" &["setMail"],
        "this is not a valid mail address";
    UNAUTHENTICATED: 401 "unauthenticated" &[],
        "you are not signed in, or your session has ended. Sign in";
    // Unknown login or wrong password. The caller must not learn which.
    WRONG_CREDENTIALS: 401 "invalid_credentials" &["signIn"],
        "incorrect login or password";
    MISSING_KEY: 401 "missing_api_key" &["getQuota"],
        "no API key in this request. Send it in the header `Authorization: Bearer <API_KEY>`";
    UNKNOWN_KEY: 401 "invalid_api_key" &["getQuota"],
        "this API key does not exist. Check that you copied all of it, or create a key in the dashboard";
    WRONG_ORIGIN: 403 "inactive_api_key" &["getQuota"],
        "this API key is for certain web pages only, and this request does not come from one of them";
    CSRF_REFUSED: 403 "csrf_refused" &[],
        "requests other than GET need the header `X-CSRF-Token: 1`";
    // The password given to confirm a change is incorrect.
    WRONG_PASSWORD: 403 "wrong_password" &["changePassword", "deleteAccount", "setMail"],
        "incorrect password";
    // Malformed, unknown, expired or used. The caller must not learn which.
    INVALID_LINK: 403 "invalid_link" &["setPasswordWithLink", "verifyMail"],
        "this link is no longer valid. Request a new one";
    SIGNUP_DISABLED: 403 "signup_disabled" &["signUp"],
        "sign-up is closed. Ask the operator for an account";
    ACCOUNT_LIMIT_REACHED: 403 "account_limit_reached" &["signUp"],
        "sign-up is closed: this service has reached its maximum number of accounts";
    ADMIN_REQUIRED: 403 "admin_required" ADMIN,
        "only admins can do this";
    WEBHOOKS_DISABLED: 403 "webhooks_disabled" &["setWebhook", "testWebhook"],
        "this service sends no webhooks";
    MAIL_DISABLED: 403 "mail_disabled" &["setMail", "verifyMail", "forgotPassword"],
        "this service sends no mail";
    NO_SUCH_ACCOUNT: 404 "account_not_found" &["getAccountDetails", "changeAccount", "createPasswordLink", "deleteAccountOf"],
        "this account does not exist";
    KEY_NOT_FOUND: 404 "key_not_found" &[],
        "this key does not exist, or belongs to another account";
    OWN_ACCOUNT: 409 "own_account" &["changeAccount", "createPasswordLink", "deleteAccountOf"],
        "you can't do this with your own account";
    LOGIN_TAKEN: 409 "login_taken" &["signUp", "invite"],
        "this login is already taken. Choose another one or sign in";
    NO_WEBHOOK: 409 "no_webhook" &["replaceWebhookSecret", "testWebhook"],
        "set a webhook first";
    KEY_LIMIT_REACHED: 409 "key_limit_reached" &["createKey"],
        "you have reached the limit of 10 keys per account, expired ones included. Delete one to create another";
    KEY_INACTIVE: 409 "key_inactive" &["resumeKey"],
        "this key is deactivated, not paused. Reactivate it instead";
    KEY_PAUSED: 409 "key_paused" &["reactivateKey"],
        "this key is paused, not deactivated. Resume it instead";
    KEY_REPLACED: 409 "key_replaced" &["rotateKey", "changeKey"],
        "this key was replaced by another one: it can't be replaced again, and its expiry can only be brought forward";
    VERSION_CONFLICT: 409 "version_conflict" &["changePassword", "deleteAccount", "signIn"],
        "the password was changed in the meantime. Sign in again";
    CONTACT_CONFLICT: 409 "contact_conflict" &["setMail", "setWebhook", "replaceWebhookSecret"],
        "these settings were changed in the meantime. Reload the page";
    INTERNAL: 500 "internal_error" &[],
        INTERNAL_ERROR;
    UNREADABLE_KEY: 500 "unreadable_key" &["changeKey", "resumeKey"],
        "the data of this key can't be read. Delete the key, or ask the operator to restore the store from a backup";
    UNREADABLE_ACCOUNT: 500 "unreadable_account" &["getAccount"],
        "the data of this account can't be read. Ask the operator to delete the account, or to restore the store from a backup";
    UNAVAILABLE: 503 "unavailable" &[],
        "the key store is unavailable. Retry in a few seconds";
    NOT_CONFIRMED: 503 "not_confirmed" &[],
        "the change was made, but the key store did not confirm it in time, so it could still be lost. Reload the page and check \
         before you repeat it: creating a key again can give you a second one";
}

/// The operations below `/admin`.
const ADMIN: &[&str] = &[
    "getOverview",
    "countKeys",
    "listAccounts",
    "getAccountDetails",
    "changeAccount",
    "invite",
    "createPasswordLink",
    "deleteAccountOf",
    "getKeyDetails",
    "setDailyLimit",
    "deactivateKeyOf",
];

type Body = SerdeJson<ErrorBody>;

/// The error responses of the operations.
#[derive(ApiResponse, Debug)]
pub enum ApiError {
    /// Invalid request: `invalid_login`, `invalid_password`, `invalid_name`, `invalid_expiry`, `invalid_origins`,
    /// `invalid_overlap`, `invalid_webhook`, `invalid_address`, `invalid_reason`, `invalid_limit`, `invalid_cursor`,
    /// `wrong_login`, `bad_request`.
    #[oai(status = 400)]
    Invalid(Body),
    /// Not signed in (`unauthenticated`), incorrect login or password (`invalid_credentials`), or no or an
    /// unknown API key (`missing_api_key`, `invalid_api_key`).
    #[oai(status = 401)]
    Unauthenticated(Body),
    /// Not allowed: `csrf_refused`, `wrong_password`, `invalid_link`, `signup_disabled`, `account_limit_reached`,
    /// `webhooks_disabled`, `mail_disabled`, `inactive_api_key`, `account_suspended`, `admin_required`.
    #[oai(status = 403)]
    Forbidden(Body),
    /// This key or account does not exist: `key_not_found`, `account_not_found`.
    #[oai(status = 404)]
    NotFound(Body),
    /// Conflicts with the current state: `key_limit_reached`, `creation_limit_reached`, `key_inactive`, `key_paused`,
    /// `key_replaced`, `login_taken`, `version_conflict`, `contact_conflict`, `no_webhook`, `own_account`.
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
    /// Unexpected error (`internal_error`), or stored data that can't be read (`unreadable_key`, `unreadable_account`). The
    /// server's log has the details.
    #[oai(status = 500)]
    Internal(Body),
    /// The key store is unavailable, or too many sign-ins are in progress: `unavailable`. Retry in a few seconds. If a
    /// change was made but not confirmed in time (`not_confirmed`), check before you repeat it.
    #[oai(status = 503)]
    Unavailable(Body),
}

/// Status, code and message of an error's response.
type ErrorParts<'a> = (u16, &'a str, Cow<'a, str>);

/// Operations return this error; [`respond`] makes the response of it.
impl ApiResponse for Error {
    fn meta() -> MetaResponses {
        ApiError::meta()
    }

    fn register(registry: &mut Registry) {
        ApiError::register(registry);
    }
}

impl ResponseError for Error {
    fn status(&self) -> StatusCode {
        StatusCode::INTERNAL_SERVER_ERROR
    }
}

/// Converts the error of an operation into its response.
pub fn respond(error: poem::Error, docs_url: &str) -> poem::Error {
    error.downcast().map_or_else(|other| other, |error| api_error(error, docs_url).into())
}

/// Converts an error into a response that links to the documentation. Logs failures of this service and of quota-svc.
fn api_error(error: Error, docs_url: &str) -> ApiError {
    let (status, code, message) = parts(&error);
    let body = SerdeJson(ErrorBody::new(code, sentence(&message), docs_url));
    match (status, &error) {
        (400, _) => ApiError::Invalid(body),
        (401, _) => ApiError::Unauthenticated(body),
        (403, _) => ApiError::Forbidden(body),
        (404, _) => ApiError::NotFound(body),
        (409, _) => ApiError::Conflict(body),
        (_, Error::Throttled(throttled)) => ApiError::TooMany(body, throttled.retry_seconds),
        (503, Error::Quota(error)) => {
            let error: &dyn std::error::Error = error;
            tracing::warn!(error, "quota-svc or its store is unavailable");
            ApiError::Unavailable(body)
        }
        (503, _) => ApiError::Unavailable(body),
        _ => {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "request failed");
            ApiError::Internal(body)
        }
    }
}

fn parts(error: &Error) -> ErrorParts<'_> {
    let (status, code) = match error {
        Error::Fixed(error) => (error.status, error.code),
        Error::OperatorOnly => (403, "admin_required"),
        Error::Suspended(_) => (403, "account_suspended"),
        Error::Webhook(_) => (400, "invalid_webhook"),
        Error::Throttled(_) => (429, "rate_limit_exceeded"),
        Error::Password(PasswordError::Busy) => (503, "unavailable"),
        Error::Password(PasswordError::Hash(_) | PasswordError::TaskFailed(_)) | Error::Random(_) => {
            return parts(&Error::INTERNAL);
        }
        Error::Password(_) => (400, "invalid_password"),
        Error::Quota(ClientError::Api { code, message, .. }) => return quota_parts(code, message),
        // If the call may have taken effect, a plain "retry" would be bad advice for a change.
        Error::Quota(error) if error.may_have_taken_effect() => {
            let message = "the key store did not respond in time. If you made a change, reload the page and check \
                           whether it took effect before you repeat it";
            return (503, "unavailable", message.into());
        }
        Error::Quota(_) => return parts(&Error::UNAVAILABLE),
    };
    (status, code, error.to_string().into())
}

/// The parts of an error of quota-svc.
fn quota_parts<'a>(code: &'a str, message: &'a str) -> ErrorParts<'a> {
    let known_as = match code {
        // The account was deleted in another session.
        "account_not_found" | "session_not_found" => "unauthenticated",
        "not_found" => "key_not_found",
        "account_exists" => "login_taken",
        "store_unavailable" => "unavailable",
        code => code,
    };
    match FIXED.iter().find(|fixed| fixed.code == known_as) {
        Some(fixed) => (fixed.status, fixed.code, fixed.message.into()),
        // It says when the next key can be created.
        None if code == "creation_limit_reached" => (409, code, message.into()),
        // What the owner has entered.
        None if code.starts_with("invalid_") => (400, code, message.into()),
        None => parts(&Error::INTERNAL),
    }
}

/// Adds the errors as examples to the OpenAPI document.
pub fn add_examples(document: &mut OpenApiDocument, docs_url: &str) {
    let quota = |code: &str, message: &str| {
        let (code, message) = (code.to_owned(), message.to_owned());
        Error::Quota(ClientError::Api { status: 0, code, message })
    };
    let of_settings = |error: SettingsError| quota(error.as_str(), &error.to_string());
    let creations = "an account can create at most 30 keys per day, deleted ones included; it can create the next one at \
                     2027-01-16T00:00:00Z";
    let mut errors: Vec<_> = FIXED.iter().map(|fixed| (fixed.operations, Error::Fixed(fixed))).collect();
    errors.extend::<[(&[&str], Error); 9]>([
        (&["signUp"], quota("invalid_login", "a login can't contain spaces")),
        (&["signUp", "changePassword", "setPasswordWithLink"], PasswordError::Length.into()),
        (&["createKey", "changeKey"], of_settings(SettingsError::Name)),
        (&["createKey", "changeKey"], of_settings(SettingsError::Expiry)),
        (&["createKey", "changeKey"], of_settings(SettingsError::Origins)),
        (&["createKey"], quota("creation_limit_reached", creations)),
        (&["setWebhook"], TargetError::Scheme.into()),
        (&[], Error::Suspended("abuse".to_owned())),
        (&[], Throttled { retry_seconds: 30 }.into()),
    ]);
    let mut examples: Vec<_> = errors
        .iter()
        .map(|(operations, error)| {
            let (status, code, message) = parts(error);
            Example::error(status, operations, code, &sentence(&message), docs_url)
        })
        .collect();
    let body = "parse request payload error: missing field `name` at line 1 column 2";
    examples.push(Example::error(400, &[], "bad_request", body, docs_url));
    document.add_examples(examples);
}

#[cfg(test)]
mod tests {
    use quota_client::wire::Rejection;

    use super::*;

    fn code_and_message(error: ClientError) -> (String, String) {
        match api_error(error.into(), "https://docs.example") {
            ApiError::Unavailable(SerdeJson(body)) => (body.error, body.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rejection_keeps_its_meaning() {
        for code in Rejection::CODES {
            let (status, shown, message) = quota_parts(code, "The message of quota-svc.");
            assert!(!message.is_empty() && message != INTERNAL_ERROR, "{code:?}: {status} {shown}");
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
