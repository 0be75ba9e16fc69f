//! Password links. With one, the password of its account can be set once, without signing in.
//!
//! quota-svc stores the SHA-256 of a link's token like a session of the account. So links expire as sessions do, and every change
//! of the password revokes them. But they have places of their own: signing in ends no link, and a link that anybody has requested
//! ends none of an admin or the operator.

use std::time::Duration;

use data_encoding::HEXLOWER;
use quota_client::wire::{NewSession, SessionKind};
use quota_client::{ClientError, QuotaClient};
use sha2::{Digest, Sha256};

use crate::session::random_token;

/// Lifetime of an invitation.
pub const INVITATION_TTL: Duration = Duration::from_secs(7 * 86_400);
/// Lifetime of a link for a forgotten password.
pub const RESET_TTL: Duration = Duration::from_secs(30 * 60);

const ACCOUNT_LEN: usize = 32;
const TOKEN_LEN: usize = ACCOUNT_LEN + 43;

/// The token of a password link: the account's ID, and 256 random bits.
pub struct LinkToken(String);

impl LinkToken {
    /// Generates a token. It is valid once it is stored. `account` is the account's ID.
    pub fn generate(account: &str) -> Result<Self, getrandom::Error> {
        Ok(Self(format!("{account}{}", random_token()?)))
    }

    /// Stores the token's hash. Returns `false` if it is not stored: a requested link, too soon after another.
    pub async fn store(
        &self,
        quota: &QuotaClient,
        kind: SessionKind,
        ttl: Duration,
    ) -> Result<bool, ClientError> {
        let (id_sha256, ttl_seconds) = (self.sha256(), u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX));
        let session = NewSession { kind, id_sha256, ttl_seconds, expected_credential: None };
        quota.create_session(self.account(), &session).await
    }

    /// `None` if the text is not a token.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == TOKEN_LEN && text.is_ascii()).then(|| Self(text.to_owned()))
    }

    /// The link. The token is in its fragment, which browsers don't send, so no server or proxy logs it.
    pub fn link(&self, public_url: &str) -> String {
        format!("{public_url}/#set-password={}", self.0)
    }

    /// The account's ID.
    pub fn account(&self) -> &str {
        &self.0[..ACCOUNT_LEN]
    }

    /// What is stored. The prefix separates the hashes from those of session IDs.
    pub fn sha256(&self) -> String {
        HEXLOWER.encode(&Sha256::new().chain_update("password-link:").chain_update(&self.0).finalize())
    }
}
