//! Sessions: an encrypted cookie names one, and the account at quota-svc keeps the hash of its id while it lives.

mod cookie;
mod key;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use quota_client::wire::NewSession;
use quota_client::{ClientError, QuotaClient};
use sha2::{Digest, Sha256};

pub use cookie::Cookies;
pub use key::SessionKey;

/// How long a session lives.
pub const LIFE: Duration = Duration::from_secs(12 * 3600);

/// What a cookie says: which session of which account, and until when.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The account's id.
    pub account: String,
    /// 32 random bytes that nobody else knows.
    id: [u8; 32],
    /// Unix time in seconds.
    expires: u64,
}

/// Keeps an id out of every log.
impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Ticket {
    /// A new session of this account, from now on.
    pub fn new(account: &str, now: u64) -> Result<Self, getrandom::Error> {
        let mut id = [0; 32];
        getrandom::fill(&mut id)?;
        Ok(Self { account: account.to_owned(), id, expires: now + LIFE.as_secs() })
    }

    /// What the account keeps of the session: no copy of the store opens one.
    pub fn id_sha256(&self) -> String {
        HEXLOWER.encode(&Sha256::digest(self.id))
    }
}

/// Keeps the session with its account.
pub async fn begin(quota: &QuotaClient, ticket: &Ticket) -> Result<(), ClientError> {
    let ttl_seconds = u32::try_from(LIFE.as_secs()).expect("12 h is a small number of seconds");
    quota.create_session(&ticket.account, &NewSession { id_sha256: ticket.id_sha256(), ttl_seconds }).await
}

/// Whether the session lives; the account may be gone meanwhile.
pub async fn lives(quota: &QuotaClient, ticket: &Ticket) -> Result<bool, ClientError> {
    match quota.session_lives(&ticket.account, &ticket.id_sha256()).await {
        Err(error) if error.status() == Some(404) => Ok(false),
        answer => answer,
    }
}

/// Ends the session; one that has ended already is fine.
pub async fn end(quota: &QuotaClient, ticket: &Ticket) -> Result<(), ClientError> {
    match quota.delete_session(&ticket.account, &ticket.id_sha256()).await {
        Err(error) if error.status() == Some(404) => Ok(()),
        answer => answer,
    }
}

/// Unix time in seconds.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
