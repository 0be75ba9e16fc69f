//! Logins, and the limits on logins, credentials, sessions and contacts.

use quota_api::Contact;
use quota_api::invisible::{is_invisible, is_variation_selector};
use serde::Serialize;

use super::id::AccountId;

/// Maximum length of a login in characters: that of an email address.
const MAX_LOGIN: usize = 254;

pub const MAX_CREDENTIAL: usize = 4096;

/// Maximum number of active sessions per account. Adding another revokes the one that expires first.
pub const MAX_SESSIONS: usize = 10;

/// Maximum TTL of a session in seconds: 30 days.
pub const MAX_SESSION_TTL: u32 = 30 * 86_400;

/// Maximum length of a contact as JSON, in bytes.
pub const MAX_CONTACT: usize = 4096;

/// Whether a contact is small enough to store.
pub fn contact_fits(contact: &Contact) -> bool {
    to_json(contact).len() <= MAX_CONTACT
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
