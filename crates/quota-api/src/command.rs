//! Commands: every change of accounts and keys; and the codes of rejections, the rules that refuse a command.

use serde::{Deserialize, Serialize};

use super::{
    AccountChange, Actor, Contact, ImportRequest, NewAccount, NewKey, NewSession, NoticeResult, Rotation,
    SetCredential, SettingsChange, StateChange,
};

/// A command, and who gives it, for its events.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    pub actor: Actor,
    pub command: Command,
}

/// `account` is the ID of the account, and `session` the SHA-256 of a session ID. Each variant names its response.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// → [`crate::Account`]
    CreateAccount(NewAccount),
    /// Deletes an account with its keys and sessions. `expected_credential`: the credential that the owner's password was checked
    /// against; if the current one differs, the password was changed, or the account was deleted and registered again. → `()`
    DeleteAccount { account: String, expected_credential: Option<String> },
    /// → [`crate::Account`]
    ChangeAccount { account: String, change: AccountChange },
    /// → [`crate::Credential`]
    SetCredential { account: String, change: SetCredential },
    /// Replaces the contact, if it is the expected one. → `()`
    SetContact { account: String, expected: Contact, contact: Contact },
    /// Adds a session or a password link. An account has at most 10 sessions and 3 links; beyond that, one is revoked. →
    /// `bool`: `false` if a requested link was not added, because another is younger than 10 minutes or all links are of an
    /// admin or the operator
    AddSession { account: String, session: NewSession },
    /// Succeeds also if the session is not active. → `()`
    RevokeSession { account: String, session: String },
    /// → [`crate::CreatedKey`]
    CreateKey { account: String, key: NewKey },
    /// If `account` is given here and below, a key of another account is not found. → [`crate::OwnedKey`]
    ChangeKey { id: String, account: Option<String>, change: KeyChange },
    /// Creates a copy with a new secret, and lets the old key expire after the overlap. If the old key has itself replaced one, that
    /// one is deleted. → [`crate::CreatedKey`]
    RotateKey { id: String, account: Option<String>, rotation: Rotation },
    /// → `()`
    DeleteKey { id: String, account: Option<String> },
    /// Existing accounts and keys are not changed. → [`crate::ImportReport`]
    Import(ImportRequest),
    /// Claims at most `limit` notices for delivery, at most one per account and channel. → `Vec<`[`crate::ClaimedNotice`]`>`
    ClaimNotices { limit: u32 },
    /// Ends the claim of a notice. Without effect if the claim has ended. → `()`
    FinishNotice(NoticeResult),
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyChange {
    State(StateChange),
    Settings(SettingsChange),
    /// `None` restores the default limit.
    DailyLimit(Option<u32>),
}

base::names! {
    /// The `error` of a response with which quota-svc refuses a command.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RejectionCode {
        AccountExists = "account_exists",
        AccountNotFound = "account_not_found",
        KeyNotFound = "key_not_found",
        SessionNotFound = "session_not_found",
        KeyLimitReached = "key_limit_reached",
        CreationLimitReached = "creation_limit_reached",
        VersionConflict = "version_conflict",
        ContactConflict = "contact_conflict",
        KeyInactive = "key_inactive",
        KeyPaused = "key_paused",
        KeyReplaced = "key_replaced",
        InvalidExpiry = "invalid_expiry",
        UnreadableKey = "unreadable_key",
        UnreadableAccount = "unreadable_account",
    }
}
