//! Sessions. The encrypted cookie holds the session ID. quota-svc stores the ID's SHA-256 with the account until the
//! session expires or is revoked.

mod cookie;
mod key;
mod known_browser;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use quota_client::wire::{Account, NewSession};
use quota_client::{ClientError, QuotaClient};
use sha2::{Digest, Sha256};

pub use cookie::Cookies;
pub use key::SessionKey;
pub use known_browser::{BrowserId, KnownBrowsers, normalized};

pub const SESSION_TTL: Duration = Duration::from_secs(12 * 3600);

/// The content of a session cookie.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    /// The account's ID.
    pub account: String,
    /// Random and secret.
    id: [u8; 32],
    /// Unix time in seconds.
    expires: u64,
}

/// Omits the ID and the account, so that they never get into a log.
impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Session {
    /// Generates a session of this account that starts now.
    pub fn new(account: &str, now: u64) -> Result<Self, getrandom::Error> {
        let mut id = [0; 32];
        getrandom::fill(&mut id)?;
        Ok(Self { account: account.to_owned(), id, expires: now + SESSION_TTL.as_secs() })
    }

    /// SHA-256 of the ID. Only this is stored, so a copy of the store is not enough to forge a cookie.
    pub fn id_sha256(&self) -> String {
        HEXLOWER.encode(&Sha256::digest(self.id))
    }
}

/// Stores the session with its account. Fails with `version_conflict` if `credential`, which the password was checked
/// against, is no longer the account's: otherwise a sign-in with the old password could outlive a password change.
pub async fn create(quota: &QuotaClient, session: &Session, credential: String) -> Result<(), ClientError> {
    let ttl_seconds = u32::try_from(SESSION_TTL.as_secs()).expect("12 h in seconds fits in u32");
    let new =
        NewSession { id_sha256: session.id_sha256(), ttl_seconds, expected_credential: Some(credential) };
    quota.create_session(&session.account, &new).await
}

/// The account of the session; `None` if the session is not active, or its account was deleted.
pub async fn account(quota: &QuotaClient, session: &Session) -> Result<Option<Account>, ClientError> {
    match quota.session_account(&session.account, &session.id_sha256()).await {
        Err(error) if error.status() == Some(404) => Ok(None),
        result => result,
    }
}

/// Revokes the session. Succeeds even if it is no longer active.
pub async fn revoke(quota: &QuotaClient, session: &Session) -> Result<(), ClientError> {
    match quota.delete_session(&session.account, &session.id_sha256()).await {
        Err(error) if error.status() == Some(404) => Ok(()),
        result => result,
    }
}

/// Unix time in seconds.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
