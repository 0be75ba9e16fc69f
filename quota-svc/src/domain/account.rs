//! Accounts: a login, an opaque credential with its version, and what an account may not exceed.

use super::id::AccountId;

/// The longest login, as for e-mail addresses.
const MAX_LOGIN: usize = 254;

/// The longest credential that is stored.
pub const MAX_CREDENTIAL: usize = 4096;

/// The most sessions that live at once in one account; the oldest makes room.
pub const MAX_SESSIONS: usize = 10;

/// The longest life of a session in seconds: 30 days.
pub const MAX_SESSION_TTL: u32 = 30 * 86_400;

/// A login in the one form it is stored and compared in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login(String);

/// The text can't be a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a login is 1 to 254 characters without white space and control characters")]
pub struct LoginError;

impl Login {
    /// Trims, lowers the case and checks.
    pub fn parse(text: &str) -> Result<Self, LoginError> {
        let login = text.trim().to_lowercase();
        let well_formed = !login.chars().any(|c| c.is_whitespace() || c.is_control());
        if login.is_empty() || login.chars().count() > MAX_LOGIN || !well_formed {
            return Err(LoginError);
        }
        Ok(Self(login))
    }

    /// The account this login stands for.
    pub fn account_id(&self) -> AccountId {
        AccountId::of(&self.0)
    }

    /// The login's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An account as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// What its owner signs in with.
    pub login: Login,
    /// Unix time in milliseconds.
    pub created_at: i64,
    /// Whatever dashboard-api keeps here; never interpreted.
    pub credential: Option<String>,
    /// Counts the changes of the credential.
    pub credential_version: u32,
}

impl Account {
    /// Its identity.
    pub fn id(&self) -> AccountId {
        self.login.account_id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_surrounding_space_do_not_make_another_account() {
        assert_eq!(Login::parse(" Ada@Example.org ").unwrap().as_str(), "ada@example.org");
        assert_eq!(Login::parse("ADA").unwrap().account_id(), Login::parse("ada").unwrap().account_id());
    }

    #[test]
    fn what_cannot_be_typed_cannot_be_a_login() {
        for wrong in ["", "  ", "a b", "a\u{7}b", &"x".repeat(255)] {
            assert_eq!(Login::parse(wrong), Err(LoginError), "{wrong:?}");
        }
    }
}
