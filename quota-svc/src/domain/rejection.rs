//! Why a rule refuses a change.

use quota_api::{CREATIONS_PER_DAY, RejectionCode, SettingsError};

use super::id::{AccountId, KeyId};

/// A rule that refuses a change, or stored data that does not permit it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("an account with this login already exists")]
    AccountExists,
    #[error("account not found")]
    AccountNotFound,
    /// The key does not exist or belongs to another account.
    #[error("key not found")]
    KeyNotFound,
    /// The session does not exist, has expired or was revoked.
    #[error("session not found")]
    SessionNotFound,
    #[error("an account can have at most 10 keys")]
    KeyLimitReached,
    /// `next`: the first day on which another one can be created.
    #[error(
        "an account can create at most {CREATIONS_PER_DAY} keys per day, deleted ones included; it can create the next one at {next}T00:00:00Z"
    )]
    CreationLimitReached { next: String },
    /// The credential, or its version, is not the expected one.
    #[error("the credential was changed by another request")]
    CredentialConflict,
    #[error("the contact was changed by another request")]
    ContactConflict,
    #[error("an inactive key can't be resumed: reactivate it")]
    KeyInactive,
    #[error("a paused key can't be reactivated: resume it")]
    KeyPaused,
    #[error("a key that was replaced can't be replaced again, and its expiry can only be brought forward")]
    KeyReplaced,
    #[error("{}", SettingsError::Expiry)]
    InvalidExpiry,
    /// The data of the key is damaged, or in a format that this version does not support. The key can be deleted.
    #[error("key {id} can't be read: {reason}")]
    UnreadableKey { id: KeyId, reason: String },
    /// Like `UnreadableKey`, for the data of one account. The account can be deleted.
    #[error("account {0} can't be read")]
    UnreadableAccount(AccountId),
}

impl Rejection {
    pub fn code(&self) -> RejectionCode {
        match self {
            Self::AccountExists => RejectionCode::AccountExists,
            Self::AccountNotFound => RejectionCode::AccountNotFound,
            Self::KeyNotFound => RejectionCode::KeyNotFound,
            Self::SessionNotFound => RejectionCode::SessionNotFound,
            Self::KeyLimitReached => RejectionCode::KeyLimitReached,
            Self::CreationLimitReached { .. } => RejectionCode::CreationLimitReached,
            Self::CredentialConflict => RejectionCode::VersionConflict,
            Self::ContactConflict => RejectionCode::ContactConflict,
            Self::KeyInactive => RejectionCode::KeyInactive,
            Self::KeyPaused => RejectionCode::KeyPaused,
            Self::KeyReplaced => RejectionCode::KeyReplaced,
            Self::InvalidExpiry => RejectionCode::InvalidExpiry,
            Self::UnreadableKey { .. } => RejectionCode::UnreadableKey,
            Self::UnreadableAccount(_) => RejectionCode::UnreadableAccount,
        }
    }
}
