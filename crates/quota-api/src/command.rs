//! Commands: every change of accounts and keys.

use serde::{Deserialize, Serialize};

use super::{
    AccountChange, Actor, Contact, ImportRequest, NewAccount, NewKey, NewSession, NoticeResult, Rotation,
    SetCredential, SetDailyLimit, SettingsChange, StateChange,
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
    /// Changes a key. If `account` is given, a key of another account is not found.
    ChangeKey { id: String, account: Option<String>, change: KeyCommand },
    /// Existing accounts and keys are not changed. → [`crate::ImportReport`]
    Import(ImportRequest),
    /// Claims at most `limit` notices for delivery, at most one per account and channel. → `Vec<`[`crate::ClaimedNotice`]`>`
    ClaimNotices { limit: u32 },
    /// Ends the claim of a notice. Without effect if the claim has ended. → `()`
    FinishNotice(NoticeResult),
}

/// A change of one key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyCommand {
    /// Creates a copy with a new secret, and lets the old key expire after the overlap. If the old key has itself replaced one, that
    /// one is deleted. → [`crate::CreatedKey`]
    Rotate(Rotation),
    /// → [`crate::OwnedKey`]
    SetState(StateChange),
    /// → [`crate::OwnedKey`]
    SetSettings(SettingsChange),
    /// → [`crate::OwnedKey`]
    SetDailyLimit(SetDailyLimit),
    /// → `()`
    Delete,
}
