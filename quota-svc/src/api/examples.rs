//! The errors of the internal API as examples in its OpenAPI document.

use api_key::DigestError;
use service_kit::openapi::Example;

use super::DOCS;
use super::error::{
    NOT_CONFIRMED, STORE_UNAVAILABLE, UNEXPECTED, UNREADABLE_ACCOUNT, UNREADABLE_KEY, sentence,
};
use crate::domain::account::{LoginError, MAX_CREDENTIAL};
use crate::domain::key::{KeyChangeError, NameError};
use crate::store::StoreError;

/// Operations on one account.
const ACCOUNT: &[&str] = &[
    "confirmAccountDeletion",
    "createKey",
    "createSession",
    "deleteAccount",
    "deleteSession",
    "getAccount",
    "getCredential",
    "getSession",
    "listKeys",
    "setCredential",
];

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
    "setDailyLimit",
];

/// Operations whose writes are confirmed.
const CHANGES: &[&str] = &[
    "confirmAccountDeletion",
    "createAccount",
    "createKey",
    "createSession",
    "deactivateKey",
    "deleteAccount",
    "deleteKey",
    "deleteSession",
    "importAccounts",
    "reactivateKey",
    "renameKey",
    "resumeKey",
    "setCredential",
    "setDailyLimit",
];

/// Examples of every error that an operation documents.
pub fn examples() -> Vec<Example<'static>> {
    let example = |status: u16, operations: &'static [&'static str], code: &'static str, message: String| {
        Example::error(status, operations, code, &sentence(message), DOCS)
    };
    let store =
        |status, operations, code, error: StoreError| example(status, operations, code, error.to_string());
    let text =
        |status, operations, code, message: &str| example(status, operations, code, message.to_owned());
    vec![
        text(400, &["chargeBatch"], "invalid_charge", "charges[0]: set either key_sha256 or demo: true"),
        text(400, &["chargeBatch"], "batch_too_large", "a call must have 1 to 256 charges; this one has 0"),
        example(400, &["createAccount", "listAccounts"], "invalid_login", LoginError.to_string()),
        example(
            400,
            &["createAccount", "setCredential"],
            "invalid_credential",
            format!("a credential must be 1 to {MAX_CREDENTIAL} bytes long"),
        ),
        example(400, &["createSession", "setCredential"], "invalid_session", DigestError.to_string()),
        example(400, &["createKey", "renameKey"], "invalid_name", NameError.to_string()),
        text(400, &["createKey", "setDailyLimit"], "invalid_limit", "a daily limit must be at least 1"),
        store(400, &["listAccounts", "exportAccounts"], "invalid_cursor", StoreError::InvalidCursor),
        text(400, &["importAccounts"], "invalid_account", "accounts[0]: an account can have at most 10 keys"),
        store(404, ACCOUNT, "account_not_found", StoreError::AccountNotFound),
        store(404, KEY, "key_not_found", StoreError::KeyNotFound),
        store(404, &["getSession"], "session_not_found", StoreError::SessionNotFound),
        store(409, &["createAccount"], "account_exists", StoreError::AccountExists),
        store(409, &["createKey"], "key_limit_reached", StoreError::KeyLimitReached),
        store(
            409,
            &["setCredential", "createSession", "confirmAccountDeletion"],
            "version_conflict",
            StoreError::CredentialConflict,
        ),
        store(409, &["resumeKey"], "key_inactive", KeyChangeError::Inactive.into()),
        store(409, &["reactivateKey"], "key_paused", KeyChangeError::Paused.into()),
        text(500, &[], "internal_error", UNEXPECTED),
        text(500, KEY, "unreadable_key", UNREADABLE_KEY),
        text(500, ACCOUNT, "unreadable_account", UNREADABLE_ACCOUNT),
        text(503, &[], "store_unavailable", STORE_UNAVAILABLE),
        text(503, CHANGES, "not_confirmed", NOT_CONFIRMED),
    ]
}
