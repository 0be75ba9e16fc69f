//! Logins, the limits on logins, credentials, sessions and contacts, and the changes that admins make to accounts.

use quota_api::invisible::{is_invisible, is_variation_selector};
use quota_api::{AccountAction, AccountChange, Actor, Contact, Event, EventKind, Role, Standing, Suspension};
use serde::Serialize;

use super::event::{MAX_EVENTS, is_current, with_actor};
use super::id::AccountId;

/// Maximum length of a login in characters: that of an email address.
const MAX_LOGIN: usize = 254;

pub const MAX_CREDENTIAL: usize = 4096;

/// Maximum number of active sessions per account. Adding another revokes the one that expires first.
pub const MAX_SESSIONS: usize = 10;

/// Maximum number of active password links per account.
pub const MAX_LINKS: usize = 3;

/// While a requested link is younger, no other is added.
pub const LINK_REQUEST_INTERVAL_MS: i64 = 10 * 60_000;

/// Maximum TTL of a session in seconds: 30 days.
pub const MAX_SESSION_TTL: u32 = 30 * 86_400;

/// Maximum length of a contact as JSON, in bytes.
pub const MAX_CONTACT: usize = 4096;

/// Whether a contact is small enough to store.
pub fn contact_fits(contact: &Contact) -> bool {
    to_json(contact).len() <= MAX_CONTACT
}

/// Maximum length of the reason of a suspension in characters.
pub const MAX_REASON: usize = 200;

/// Checks and trims the reason of a suspension. Other changes have none.
pub fn checked_change(change: &AccountChange) -> Option<AccountChange> {
    let reason = change.reason.as_deref().map(|text| text.trim().trim_end_matches('.'));
    let is_valid = match reason {
        Some(text) => {
            let is_visible = !text.is_empty() && !text.chars().any(is_invisible);
            change.action == AccountAction::Suspend && is_visible && text.chars().count() <= MAX_REASON
        }
        None => change.action != AccountAction::Suspend,
    };
    is_valid.then(|| AccountChange { action: change.action, reason: reason.map(str::to_owned) })
}

/// Whether an imported standing is as small as one of this store.
pub fn standing_fits(standing: &Standing) -> bool {
    let reason = standing.suspension.iter().map(|suspension| &suspension.reason);
    let mut texts = reason.chain(standing.events.iter().map(|event| &event.reason));
    standing.events.len() <= MAX_EVENTS
        && texts.all(|text| text.chars().count() <= MAX_LOGIN + MAX_REASON + 20)
}

/// Applies a checked change, and adds its event if it has an effect.
pub fn change_standing(standing: &mut Standing, change: &AccountChange, actor: &Actor, now: i64) {
    let is_suspended = standing.suspension.is_some();
    let (kind, text) = match (change.action, &change.reason) {
        (AccountAction::Suspend, Some(reason)) if !is_suspended => {
            standing.suspension = Some(Suspension { reason: reason.clone(), at: now });
            (EventKind::Suspended, reason.clone())
        }
        (AccountAction::Restore, _) if standing.suspension.take().is_some() => {
            (EventKind::Restored, "restored".to_owned())
        }
        (AccountAction::MakeAdmin, _) if standing.role != Role::Admin => {
            standing.role = Role::Admin;
            (EventKind::RoleChanged, "became an admin".to_owned())
        }
        (AccountAction::MakeOwner, _) if standing.role != Role::Owner => {
            standing.role = Role::Owner;
            (EventKind::RoleChanged, "is no longer an admin".to_owned())
        }
        (AccountAction::EndSessions, _) => (EventKind::SessionsEnded, "signed out everywhere".to_owned()),
        (AccountAction::PasswordLink, _) => {
            (EventKind::PasswordLink, "a link to set the password was created".to_owned())
        }
        _ => return,
    };
    standing.events.retain(|event| is_current(event, now));
    standing.events.insert(0, Event { at: now, kind, reason: with_actor(&text, actor) });
    standing.events.truncate(MAX_EVENTS);
}

/// The stored form of a part of an account, or of a notice.
pub fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings and numbers serialize")
}

/// A normalized login: trimmed and in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    #[error("a login must have 1 to 254 characters")]
    Length,
    #[error("a login can't contain spaces")]
    Space,
    #[error("a login can't contain control characters or invisible characters")]
    Invisible,
}

impl Login {
    /// Normalizes and validates a login. Two logins that look alike must not be different accounts.
    pub fn parse(text: &str) -> Result<Self, LoginError> {
        let login = text.trim().to_lowercase();
        if login.is_empty() || login.chars().count() > MAX_LOGIN {
            return Err(LoginError::Length);
        }
        if login.chars().any(|c| is_invisible(c) || is_variation_selector(c)) {
            return Err(LoginError::Invisible);
        }
        if login.chars().any(char::is_whitespace) {
            return Err(LoginError::Space);
        }
        Ok(Self(login))
    }

    pub fn account_id(&self) -> AccountId {
        AccountId::of(&self.0)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_ignores_case_and_surrounding_whitespace() {
        assert_eq!(Login::parse(" Ada@Example.org ").unwrap().as_str(), "ada@example.org");
        assert_eq!(Login::parse("ADA").unwrap().account_id(), Login::parse("ada").unwrap().account_id());
    }

    #[test]
    fn malformed_login_is_rejected() {
        for (malformed, error) in [
            ("", LoginError::Length),
            ("  ", LoginError::Length),
            ("a b", LoginError::Space),
            ("a\u{7}b", LoginError::Invisible),
            (&"x".repeat(255), LoginError::Length),
        ] {
            assert_eq!(Login::parse(malformed), Err(error), "{malformed:?}");
        }
    }

    #[test]
    fn login_with_invisible_characters_is_rejected() {
        for lookalike in
            ["ada\u{200b}", "a\u{200d}da", "\u{202e}ada", "ada\u{feff}", "ada\u{fe0f}", "a\u{ad}da"]
        {
            assert_eq!(Login::parse(lookalike), Err(LoginError::Invisible), "{lookalike:?}");
        }
        assert_eq!(Login::parse(" Zoë@Example.org ").unwrap().as_str(), "zoë@example.org");
    }
}
