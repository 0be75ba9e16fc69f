//! Sessions. The encrypted cookie holds the session ID. quota-svc stores the ID's SHA-256 with the account until the
//! session expires or is revoked.

mod cookie;
mod key;
mod known_browser;

use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

pub use cookie::Cookies;
pub use key::SessionKey;
pub use known_browser::{BrowserId, KnownBrowsers, normalized};

pub const SESSION_TTL_SECONDS: u32 = 12 * 3600;

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
        Ok(Self { account: account.to_owned(), id, expires: now + u64::from(SESSION_TTL_SECONDS) })
    }

    /// SHA-256 of the ID. Only this is stored, so a copy of the store is not enough to forge a cookie.
    pub fn id_sha256(&self) -> String {
        HEXLOWER.encode(&Sha256::digest(self.id))
    }
}

/// Unix time in seconds.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
