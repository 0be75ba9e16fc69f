//! Converts errors into the error responses of the operations, and into the examples of the OpenAPI document.

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

use crate::accounts::AccountError;
use crate::notices::target::TargetError;
use crate::password::PasswordError;
use crate::throttle::Throttled;

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
impl ApiResponse for AccountError {
    fn meta() -> MetaResponses {
        ApiError::meta()
    }

    fn register(registry: &mut Registry) {
        ApiError::register(registry);
    }
}

impl ResponseError for AccountError {
    fn status(&self) -> StatusCode {
        StatusCode::INTERNAL_SERVER_ERROR
    }
}

/// Converts the error of an operation into its response.
pub fn respond(error: poem::Error, docs_url: &str) -> poem::Error {
    error.downcast().map_or_else(|other| other, |error| api_error(error, docs_url).into())
}

/// Converts an error into a response that links to the documentation. Logs failures of this service and of quota-svc.
fn api_error(error: AccountError, docs_url: &str) -> ApiError {
    let (status, code, message) = parts(&error);
    let body = SerdeJson(ErrorBody::new(code, sentence(&message), docs_url));
    match (status, &error) {
        (400, _) => ApiError::Invalid(body),
        (401, _) => ApiError::Unauthenticated(body),
        (403, _) => ApiError::Forbidden(body),
        (404, _) => ApiError::NotFound(body),
        (409, _) => ApiError::Conflict(body),
        (_, AccountError::Throttled(throttled)) => ApiError::TooMany(body, throttled.retry_seconds),
        (503, AccountError::Quota(error)) => {
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

fn parts(error: &AccountError) -> ErrorParts<'_> {
    let (status, code) = match error {
        AccountError::Unauthenticated => (401, "unauthenticated"),
        AccountError::WrongCredentials => (401, "invalid_credentials"),
        AccountError::WrongPassword => (403, "wrong_password"),
        AccountError::InvalidLink => (403, "invalid_link"),
        AccountError::SignupDisabled => (403, "signup_disabled"),
        AccountError::AccountLimitReached => (403, "account_limit_reached"),
        AccountError::MissingKey => (401, "missing_api_key"),
        AccountError::UnknownKey => (401, "invalid_api_key"),
        AccountError::WrongOrigin => (403, "inactive_api_key"),
        AccountError::Suspended(_) => (403, "account_suspended"),
        AccountError::AdminRequired | AccountError::OperatorOnly => (403, "admin_required"),
        AccountError::NoSuchAccount => (404, "account_not_found"),
        AccountError::OwnAccount => (409, "own_account"),
        AccountError::WrongLogin => (400, "wrong_login"),
        AccountError::LoginTaken => (409, "login_taken"),
        AccountError::WebhooksDisabled => (403, "webhooks_disabled"),
        AccountError::NoWebhook => (409, "no_webhook"),
        AccountError::Webhook(_) => (400, "invalid_webhook"),
        AccountError::MailDisabled => (403, "mail_disabled"),
        AccountError::InvalidAddress => (400, "invalid_address"),
        AccountError::Throttled(_) => (429, "rate_limit_exceeded"),
        AccountError::Password(PasswordError::Busy) => (503, "unavailable"),
        AccountError::Password(PasswordError::Hash(_) | PasswordError::TaskFailed(_))
        | AccountError::Random(_) => return INTERNAL,
        AccountError::Password(_) => (400, "invalid_password"),
        AccountError::Quota(ClientError::Api { code, message, .. }) => return quota_parts(code, message),
        // If the call may have taken effect, a plain "retry" would be bad advice for a change.
        AccountError::Quota(error) if error.may_have_taken_effect() => return NO_RESPONSE,
        AccountError::Quota(_) => return UNAVAILABLE,
    };
    (status, code, error.to_string().into())
}

const NO_RESPONSE: ErrorParts<'_> = (
    503,
    "unavailable",
    Cow::Borrowed(
        "The key store did not respond in time. If you made a change, reload the page and check whether it took effect \
         before you repeat it.",
    ),
);
const UNAVAILABLE: ErrorParts<'_> =
    (503, "unavailable", Cow::Borrowed("The key store is unavailable. Retry in a few seconds."));
const INTERNAL: ErrorParts<'_> = (500, "internal_error", Cow::Borrowed(INTERNAL_ERROR));

fn quota_parts<'a>(code: &'a str, message: &'a str) -> ErrorParts<'a> {
    let (status, code, message) = match code {
        // The account was deleted in another session.
        "account_not_found" | "session_not_found" => return parts(&AccountError::Unauthenticated),
        "key_not_found" | "not_found" => {
            (404, "key_not_found", "This key does not exist, or belongs to another account.")
        }
        "account_exists" => return parts(&AccountError::LoginTaken),
        "key_limit_reached" => (
            409,
            code,
            "You have reached the limit of 10 keys per account, expired ones included. Delete one to create another.",
        ),
        "key_inactive" => (409, code, "This key is deactivated, not paused. Reactivate it instead."),
        // It says when the next key can be created.
        "creation_limit_reached" => (409, code, message),
        "key_paused" => (409, code, "This key is paused, not deactivated. Resume it instead."),
        "key_replaced" => (
            409,
            code,
            "This key was replaced by another one: it can't be replaced again, and its expiry can only be brought forward.",
        ),
        "version_conflict" => (409, code, "The password was changed in the meantime. Sign in again."),
        "contact_conflict" => (409, code, "These settings were changed in the meantime. Reload the page."),
        "unreadable_key" => (
            500,
            code,
            "The data of this key can't be read. Delete the key, or ask the operator to restore the store from a backup.",
        ),
        "unreadable_account" => (
            500,
            code,
            "The data of this account can't be read. Ask the operator to delete the account, or to restore the store from a \
             backup.",
        ),
        "store_unavailable" => return UNAVAILABLE,
        "not_confirmed" => (
            503,
            code,
            "The change was made, but the key store did not confirm it in time, so it could still be lost. Reload the page \
             and check before you repeat it: creating a key again can give you a second one.",
        ),
        // What the owner has entered.
        _ if code.starts_with("invalid_") => (400, code, message),
        _ => return INTERNAL,
    };
    (status, code, message.into())
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

/// Adds the errors as examples to the OpenAPI document.
pub fn add_examples(document: &mut OpenApiDocument, docs_url: &str) {
    let quota = |code: &str, message: &str| {
        let (code, message) = (code.to_owned(), message.to_owned());
        AccountError::Quota(ClientError::Api { status: 0, code, message })
    };
    let throttled = Throttled { retry_seconds: 30 };
    let login = "a login can't contain spaces";
    let creations = "an account can create at most 30 keys per day, deleted ones included; it can create the next one at \
                     2027-01-16T00:00:00Z";
    let of_settings = |error: SettingsError| quota(error.as_str(), &error.to_string());
    let errors: Vec<(&[&str], AccountError)> = vec![
        (&["signUp"], quota("invalid_login", login)),
        (&["signUp", "changePassword", "setPasswordWithLink"], PasswordError::Length.into()),
        (&["createKey", "changeKey"], of_settings(SettingsError::Name)),
        (&["createKey", "changeKey"], of_settings(SettingsError::Expiry)),
        (&["createKey", "changeKey"], of_settings(SettingsError::Origins)),
        (&["getQuota"], AccountError::MissingKey),
        (&["getQuota"], AccountError::UnknownKey),
        (&["getQuota"], AccountError::WrongOrigin),
        (&[], AccountError::Unauthenticated),
        (&[], AccountError::Suspended("abuse".to_owned())),
        (ADMIN, AccountError::AdminRequired),
        (
            &["getAccountDetails", "changeAccount", "createPasswordLink", "deleteAccountOf"],
            AccountError::NoSuchAccount,
        ),
        (&["changeAccount", "createPasswordLink", "deleteAccountOf"], AccountError::OwnAccount),
        (&["deleteAccountOf"], AccountError::WrongLogin),
        (&["invite"], AccountError::LoginTaken),
        (&["signIn"], AccountError::WrongCredentials),
        (&["changePassword", "deleteAccount", "setMail"], AccountError::WrongPassword),
        (&["setPasswordWithLink", "verifyMail"], AccountError::InvalidLink),
        (&["setMail"], AccountError::InvalidAddress),
        (&["setMail", "verifyMail", "forgotPassword"], AccountError::MailDisabled),
        (&["signUp"], AccountError::SignupDisabled),
        (&["signUp"], AccountError::AccountLimitReached),
        (&[], quota("key_not_found", "")),
        (&["createKey"], quota("key_limit_reached", "")),
        (&["createKey"], quota("creation_limit_reached", creations)),
        (&["rotateKey", "changeKey"], quota("key_replaced", "")),
        (&["resumeKey"], quota("key_inactive", "")),
        (&["reactivateKey"], quota("key_paused", "")),
        (&["signUp"], quota("account_exists", "")),
        (&["changePassword", "deleteAccount", "signIn"], quota("version_conflict", "")),
        (&["setMail", "setWebhook", "replaceWebhookSecret"], quota("contact_conflict", "")),
        (&["setWebhook"], TargetError::Scheme.into()),
        (&["setWebhook", "testWebhook"], AccountError::WebhooksDisabled),
        (&["replaceWebhookSecret", "testWebhook"], AccountError::NoWebhook),
        (&[], throttled.into()),
        (&["changeKey", "resumeKey"], quota("unreadable_key", "")),
        (&["getAccount"], quota("unreadable_account", "")),
        (&[], quota("store_unavailable", "")),
        (&[], quota("not_confirmed", "")),
    ];
    let mut examples: Vec<_> =
        errors.iter().map(|(operations, error)| example(operations, parts(error), docs_url)).collect();
    let csrf = "Requests other than GET need the header `X-CSRF-Token: 1`.";
    let body = "parse request payload error: missing field `name` at line 1 column 2";
    examples.push(example(&[], (403, "csrf_refused", csrf.into()), docs_url));
    examples.push(Example::error(400, &[], "bad_request", body, docs_url));
    examples.push(example(&[], (500, "internal_error", INTERNAL_ERROR.into()), docs_url));
    document.add_examples(examples);
}

fn example<'a>(operations: &'a [&'a str], parts: ErrorParts<'a>, docs_url: &str) -> Example<'a> {
    let (status, code, message) = parts;
    Example::error(status, operations, code, &sentence(&message), docs_url)
}

#[cfg(test)]
mod tests {
    use quota_client::wire::RejectionCode;

    use super::*;

    fn code_and_message(error: ClientError) -> (String, String) {
        match api_error(error.into(), "https://docs.example") {
            ApiError::Unavailable(SerdeJson(body)) => (body.error, body.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rejection_keeps_its_meaning() {
        for code in RejectionCode::ALL {
            let (status, shown, message) = quota_parts(code.as_str(), "The message of quota-svc.");
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
