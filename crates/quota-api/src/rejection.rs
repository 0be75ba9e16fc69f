//! The codes of rejections: the rules that refuse a command.

/// The `error` of a response with which quota-svc refuses a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectionCode {
    AccountExists,
    AccountNotFound,
    KeyNotFound,
    SessionNotFound,
    KeyLimitReached,
    CreationLimitReached,
    VersionConflict,
    ContactConflict,
    KeyInactive,
    KeyPaused,
    KeyReplaced,
    InvalidExpiry,
    UnreadableKey,
    UnreadableAccount,
}

base::names!(RejectionCode:
    AccountExists => "account_exists",
    AccountNotFound => "account_not_found",
    KeyNotFound => "key_not_found",
    SessionNotFound => "session_not_found",
    KeyLimitReached => "key_limit_reached",
    CreationLimitReached => "creation_limit_reached",
    VersionConflict => "version_conflict",
    ContactConflict => "contact_conflict",
    KeyInactive => "key_inactive",
    KeyPaused => "key_paused",
    KeyReplaced => "key_replaced",
    InvalidExpiry => "invalid_expiry",
    UnreadableKey => "unreadable_key",
    UnreadableAccount => "unreadable_account",
);
