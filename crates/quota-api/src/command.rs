//! Commands: every change of accounts and keys; and rejections, the rules that refuse a command.

use serde::{Deserialize, Serialize};

use super::{
    AccountChange, Actor, CREATIONS_PER_DAY, Contact, ImportRequest, NewAccount, NewKey, NewSession,
    NoticeResult, Rotation, SetCredential, SettingsChange, SettingsError, StateChange,
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

/// Defines [`Rejection`] with the code of each variant: the `error` of the response with which quota-svc refuses a command.
macro_rules! rejections {
    ($($(#[$meta:meta])* $name:ident $({ $($fields:tt)* })? = $code:literal,)+) => {
        /// A rule that refuses a command, or stored data that does not permit it.
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        pub enum Rejection { $($(#[$meta])* $name $({ $($fields)* })?),+ }

        impl Rejection {
            /// All codes.
            pub const CODES: &[&str] = &[$($code),+];

            pub const fn code(&self) -> &'static str {
                match self { $(Self::$name { .. } => $code),+ }
            }
        }
    };
}

rejections! {
    #[error("an account with this login already exists")]
    AccountExists = "account_exists",
    #[error("account not found")]
    AccountNotFound = "account_not_found",
    /// The key does not exist or belongs to another account.
    #[error("key not found")]
    KeyNotFound = "key_not_found",
    /// The session does not exist, has expired or was revoked.
    #[error("session not found")]
    SessionNotFound = "session_not_found",
    #[error("an account can have at most 10 keys")]
    KeyLimitReached = "key_limit_reached",
    /// `next`: the first day on which another one can be created.
    #[error(
        "an account can create at most {CREATIONS_PER_DAY} keys per day, deleted ones included; it can create the next one at {next}T00:00:00Z"
    )]
    CreationLimitReached { next: String } = "creation_limit_reached",
    /// The credential, or its version, is not the expected one.
    #[error("the credential was changed by another request")]
    CredentialConflict = "version_conflict",
    #[error("the contact was changed by another request")]
    ContactConflict = "contact_conflict",
    #[error("an inactive key can't be resumed: reactivate it")]
    KeyInactive = "key_inactive",
    #[error("a paused key can't be reactivated: resume it")]
    KeyPaused = "key_paused",
    #[error("a key that was replaced can't be replaced again, and its expiry can only be brought forward")]
    KeyReplaced = "key_replaced",
    #[error("{}", SettingsError::Expiry)]
    InvalidExpiry = "invalid_expiry",
    /// The data of the key is damaged, or in a format that this version does not support. The key can be deleted.
    #[error("key {id} can't be read: {reason}")]
    UnreadableKey { id: String, reason: String } = "unreadable_key",
    /// Like `UnreadableKey`, for the data of one account. The account can be deleted.
    #[error("account {id} can't be read")]
    UnreadableAccount { id: String } = "unreadable_account",
}
