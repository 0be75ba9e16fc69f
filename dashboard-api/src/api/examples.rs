//! The errors of the dashboard as examples in the OpenAPI document.

use service_kit::error::INTERNAL_ERROR;
use service_kit::openapi::Example;

use super::error;

/// Operations that need a session.
const SESSION: &[&str] = &[
    "changePassword",
    "createKey",
    "deactivateKey",
    "deleteAccount",
    "deleteKey",
    "getAccount",
    "getKey",
    "getKeyUsage",
    "listKeyEvents",
    "listKeys",
    "reactivateKey",
    "renameKey",
    "resumeKey",
    "signOut",
];

/// Operations that change something.
const CHANGES: &[&str] = &[
    "changePassword",
    "createKey",
    "deactivateKey",
    "deleteAccount",
    "deleteKey",
    "reactivateKey",
    "renameKey",
    "resumeKey",
    "signIn",
    "signOut",
    "signUp",
];

/// Operations with a JSON body.
const BODY: &[&str] = &["changePassword", "createKey", "deleteAccount", "renameKey", "signIn", "signUp"];

/// Operations on one key.
const KEY: &[&str] = &[
    "deactivateKey",
    "deleteKey",
    "getKey",
    "getKeyUsage",
    "listKeyEvents",
    "reactivateKey",
    "renameKey",
    "resumeKey",
];

/// Operations that check a password.
const PASSWORD: &[&str] = &["changePassword", "deleteAccount", "signIn", "signUp"];

/// Status, operations, code and message of every error.
const ERRORS: &[(u16, &[&str], &str, &str)] = &[
    (
        400,
        &["signUp"],
        "invalid_login",
        "A login must be 1 to 254 characters, without whitespace, control characters or invisible characters.",
    ),
    (400, &["signUp", "changePassword"], "invalid_password", "A password must be 8 to 1024 characters long."),
    (
        400,
        &["createKey", "renameKey"],
        "invalid_name",
        "A key name must be 1 to 64 characters, without control characters or invisible characters.",
    ),
    (400, BODY, "bad_request", "parse request payload error: missing field `name` at line 1 column 2"),
    (401, SESSION, "unauthenticated", error::UNAUTHENTICATED),
    (401, &["signIn"], "invalid_credentials", error::WRONG_CREDENTIALS),
    (403, CHANGES, "csrf_refused", "Requests other than GET need the header `X-CSRF-Token: 1`."),
    (403, &["changePassword", "deleteAccount"], "wrong_password", error::WRONG_PASSWORD),
    (403, &["signUp"], "signup_disabled", error::SIGNUP_DISABLED),
    (403, &["signUp"], "account_limit_reached", error::ACCOUNT_LIMIT_REACHED),
    (404, KEY, "key_not_found", error::KEY_NOT_FOUND),
    (409, &["createKey"], "key_limit_reached", error::KEY_LIMIT_REACHED),
    (409, &["resumeKey"], "key_inactive", error::KEY_INACTIVE),
    (409, &["reactivateKey"], "key_paused", error::KEY_PAUSED),
    (409, &["signUp"], "login_taken", error::LOGIN_TAKEN),
    (409, &["changePassword", "deleteAccount", "signIn"], "version_conflict", error::VERSION_CONFLICT),
    (429, PASSWORD, "rate_limit_exceeded", "Too many attempts. Try again in 30 seconds."),
    (500, &[], "internal_error", INTERNAL_ERROR),
    (503, &[], "unavailable", error::UNAVAILABLE),
    (503, CHANGES, "not_confirmed", error::NOT_CONFIRMED),
];

pub(super) fn all(docs_url: &str) -> Vec<Example<'static>> {
    let example =
        |(status, operations, code, message): &(u16, &'static [&'static str], &'static str, &str)| {
            Example::error(*status, operations, code, message, docs_url)
        };
    ERRORS.iter().map(example).collect()
}
