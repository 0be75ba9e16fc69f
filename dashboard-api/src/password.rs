//! Password rules and hashing: argon2id, at most two hashes at a time.

use std::sync::Arc;

use anyhow::Context;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use quota_client::wire::is_affordable_hash;
use secrecy::{ExposeSecret, SecretString};
use service_kit::telemetry;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::deadline;
use crate::session::normalized;

pub const MIN_CHARS: usize = 8;
pub const MAX_CHARS: usize = 1024;

/// Passwords that attackers try first, in lowercase, one per line. Written for this project.
const COMMON_PASSWORDS: &str = include_str!("common_passwords.txt");

/// Maximum concurrent hashes. Each uses 19 MiB and one core: a flood of sign-ins could otherwise exhaust the machine.
const MAX_CONCURRENT: usize = 2;
/// Maximum waiting requests in each share of the queue. In a longer queue, clients would time out before their turn.
const MAX_QUEUED: usize = 64;

/// Password of the dummy hash. It never signs anyone in.
const DUMMY_PASSWORD: &str = "dummy password";

/// Why a password could not be hashed or verified.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    #[error("a password must be {MIN_CHARS} to {MAX_CHARS} characters long")]
    Length,
    #[error("the password must not be the login")]
    EqualsLogin,
    #[error("this password is one of the most common ones, which attackers try first; choose another one")]
    Common,
    /// This share of the queue is full.
    #[error("too many sign-ins right now. Retry in a few seconds")]
    Busy,
    #[error("the password could not be hashed")]
    Hash(#[from] argon2::password_hash::Error),
    /// The hashing task panicked or was canceled.
    #[error("the hashing task failed")]
    TaskFailed(#[from] tokio::task::JoinError),
}

pub type Result<T, E = PasswordError> = std::result::Result<T, E>;

/// Generates 120 random bits in Base32. It has no 0 and no 1, which are easily confused with o and l.
pub fn random_password() -> anyhow::Result<String> {
    let mut bytes = [0; 15];
    getrandom::fill(&mut bytes).context("can't get random bytes from the operating system")?;
    Ok(data_encoding::BASE32_NOPAD.encode(&bytes).to_lowercase())
}

/// Checks a new password for the account with this login and returns the hash to store. Blocks the thread meanwhile.
pub fn hash_new(password: &SecretString, login: &str) -> Result<String> {
    check(password, login)?;
    Ok(hash(password)?)
}

/// Who waits in the queue. Known users and strangers have separate limits, so that strangers can't keep account owners out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Known browsers and signed-in owners.
    Known,
    Strangers,
}

/// Hashes and verifies passwords, at most two at a time; the others queue.
pub struct Passwords {
    /// One permit per request in each share of the queue.
    queued: [Semaphore; 2],
    /// Held by a stranger who waits for `running` or is hashing. Other strangers wait for this semaphore first, so that at
    /// most two strangers are ahead of a known browser.
    next_strangers: Arc<Semaphore>,
    /// One permit per hash that runs.
    running: Arc<Semaphore>,
    /// Hash to verify against if the login is unknown, so that a sign-in takes as long as with a known login.
    dummy: Arc<str>,
}

impl Passwords {
    /// Blocks the thread while it computes the dummy hash.
    pub fn new() -> Result<Self> {
        let dummy = hash(&SecretString::from(DUMMY_PASSWORD))?;
        Ok(Self {
            queued: [(); 2].map(|()| Semaphore::new(MAX_CONCURRENT + MAX_QUEUED)),
            next_strangers: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            running: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            dummy: dummy.into(),
        })
    }

    pub fn enter(&self, share: Share) -> Result<Place<'_>> {
        let _queued = self.queued[share as usize].try_acquire().map_err(|_| PasswordError::Busy)?;
        Ok(Place { passwords: self, share, _queued })
    }
}

/// A place in the queue, for all hashes of a request.
pub struct Place<'a> {
    passwords: &'a Passwords,
    share: Share,
    _queued: SemaphorePermit<'a>,
}

impl Place<'_> {
    /// Checks a new password for the account with this login and returns the hash to store.
    pub async fn hash_new(&self, password: &SecretString, login: &str) -> Result<String> {
        check(password, login)?;
        self.hash(password).await
    }

    /// Hashes a password that may be older than today's rules.
    pub async fn hash(&self, password: &SecretString) -> Result<String> {
        let password = password.clone();
        Ok(self.run(move || hash(&password)).await??)
    }

    /// Whether the password matches the stored hash. `None` (unknown login, or account without a password) and a hash that
    /// takes too much memory or time never match, but take equally long.
    pub async fn verify(&self, password: &SecretString, stored: Option<String>) -> Result<bool> {
        let stored = stored.filter(|hash| {
            let is_affordable = is_affordable_hash(hash);
            if !is_affordable {
                tracing::error!(
                    "a stored password hash takes too much memory or time: reset the password of its owner"
                );
            }
            is_affordable
        });
        let (password, dummy) = (password.clone(), self.passwords.dummy.clone());
        self.run(move || {
            let is_match = matches(&password, stored.as_deref().unwrap_or(&dummy));
            is_match && stored.is_some()
        })
        .await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let hashing = async {
            // No semaphore is ever closed.
            let acquire = async |semaphore: &Arc<Semaphore>| semaphore.clone().acquire_owned().await.ok();
            let is_stranger = self.share == Share::Strangers;
            let turn = if is_stranger { acquire(&self.passwords.next_strangers).await } else { None };
            let running = acquire(&self.passwords.running).await;
            let request = telemetry::current_request_id();
            let work = move || {
                // The hash holds the permits until it ends. If a canceled caller released them, a third hash could start.
                let _permits = (turn, running);
                telemetry::enter_request(request, work)
            };
            Ok(tokio::task::spawn_blocking(work).await?)
        };
        deadline::excluding(hashing).await
    }
}

fn check(password: &SecretString, login: &str) -> Result<()> {
    let password = password.expose_secret();
    if !(MIN_CHARS..=MAX_CHARS).contains(&password.chars().count()) {
        return Err(PasswordError::Length);
    }
    let lowercase = password.trim().to_lowercase();
    if lowercase == normalized(login) {
        return Err(PasswordError::EqualsLogin);
    }
    if is_common(&lowercase) { Err(PasswordError::Common) } else { Ok(()) }
}

/// Whether a password in lowercase is one character repeated, or in our list of the most common ones.
fn is_common(lowercase: &str) -> bool {
    let mut chars = lowercase.chars();
    let first = chars.next();
    chars.all(|c| Some(c) == first) || COMMON_PASSWORDS.lines().any(|common| common == lowercase)
}

/// Whether a stored hash is weaker than one that is computed today: another algorithm, or less memory times passes.
pub fn is_weak(stored: &str) -> bool {
    let Ok(hash) = PasswordHash::new(stored) else { return false };
    let Ok(params) = Params::try_from(&hash) else { return false };
    let cost = |params: &Params| u64::from(params.m_cost()) * u64::from(params.t_cost());
    hash.algorithm.as_str() != Algorithm::default().as_str()
        || hash.version.is_none_or(|version| version < u32::from(Version::V0x13))
        || cost(&params) < cost(&Params::default())
}

fn hash(password: &SecretString) -> Result<String, argon2::password_hash::Error> {
    Ok(Argon2::default().hash_password(password.expose_secret().as_bytes())?.to_string())
}

fn matches(password: &SecretString, stored: &str) -> bool {
    match PasswordHash::new(stored) {
        Ok(parsed) => Argon2::default().verify_password(password.expose_secret().as_bytes(), &parsed).is_ok(),
        Err(error) => {
            tracing::error!(%error, "can't parse a stored password hash");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    fn secret(text: &str) -> SecretString {
        SecretString::from(text.to_owned())
    }

    #[tokio::test]
    async fn password_matches_only_its_own_hash() {
        let passwords = Passwords::new().unwrap();
        let passwords = passwords.enter(Share::Known).unwrap();
        let stored = passwords.hash(&secret("correct horse")).await.unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(passwords.verify(&secret("correct horse"), Some(stored.clone())).await.unwrap());
        assert!(!passwords.verify(&secret("correct horsf"), Some(stored)).await.unwrap());
        assert!(
            !passwords.verify(&secret(DUMMY_PASSWORD), None).await.unwrap(),
            "the dummy password must not sign in"
        );
        assert!(!passwords.verify(&secret("correct horse"), Some("malformed".to_owned())).await.unwrap());
    }

    #[test]
    fn length_is_counted_in_characters() {
        let hash_new = |password: &str| hash_new(&secret(password), "ada");
        assert!(matches!(hash_new("äöüßäöü"), Err(PasswordError::Length)));
        assert!(hash_new("äöüßäöü8").is_ok());
        assert!(matches!(hash_new(&"x".repeat(1025)), Err(PasswordError::Length)));
    }

    #[test]
    fn new_password_must_not_be_the_login_or_common() {
        let check = |password: &str| check(&secret(password), " Ada.Lovelace@Example.org ");
        assert!(matches!(check("ada.lovelace@EXAMPLE.org"), Err(PasswordError::EqualsLogin)));
        for common in ["password", "PassWord1", "12345678", "qwertyuiop", "zzzzzzzzzzzz", " iloveyou "] {
            assert!(matches!(check(common), Err(PasswordError::Common)), "{common}");
        }
        for good in ["correct horse", "ada.lovelace@example.org!", "set by the operator"] {
            assert!(check(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn common_passwords_are_lowercase_and_long_enough_to_matter() {
        for common in COMMON_PASSWORDS.lines() {
            assert_eq!(common, common.trim().to_lowercase());
            assert!(common.chars().count() >= MIN_CHARS, "{common} is rejected for its length");
        }
    }

    #[test]
    fn hash_with_weaker_parameters_is_weak() {
        let tail = "$c29tZXNhbHRzb21lc2FsdA$KJpPjOBrUIRLc5a4Q7WHDUaE3HYcIrGlpWsG4JU9QjU";
        for (head, weak) in [
            ("$argon2id$v=19$m=19456,t=2,p=1", false),
            ("$argon2id$v=19$m=65536,t=3,p=4", false),
            ("$argon2id$v=19$m=47104,t=1,p=1", false),
            ("$argon2id$v=19$m=19456,t=1,p=1", true),
            ("$argon2id$v=19$m=4096,t=3,p=1", true),
            ("$argon2i$v=19$m=19456,t=2,p=1", true),
            ("$argon2id$v=16$m=19456,t=2,p=1", true),
        ] {
            assert_eq!(is_weak(&format!("{head}{tail}")), weak, "{head}");
        }
        assert!(!is_weak("malformed"), "a hash that never matches is left alone");
    }

    #[tokio::test]
    async fn costly_hash_is_not_verified() {
        let passwords = Passwords::new().unwrap();
        let passwords = passwords.enter(Share::Known).unwrap();
        for (memory, passes, is_verified) in
            [(65_536, 1, true), (65_537, 1, false), (64, 10, true), (64, 11, false)]
        {
            let params = Params::new(memory, passes, 1, None).unwrap();
            let hash = Argon2::from(params).hash_password(b"correct horse").unwrap().to_string();
            let verified = passwords.verify(&secret("correct horse"), Some(hash)).await.unwrap();
            assert_eq!(verified, is_verified, "{memory} {passes}");
        }
    }

    #[tokio::test]
    async fn unknown_account_takes_as_long_as_wrong_password() {
        let passwords = Passwords::new().unwrap();
        let passwords = passwords.enter(Share::Known).unwrap();
        let stored = passwords.hash(&secret("correct horse")).await.unwrap();
        let (mut known, mut unknown) = (Duration::MAX, Duration::MAX);
        // Minimum of several runs: other tests of the process only add time.
        for _ in 0..5 {
            known = known.min(time(&passwords, Some(stored.clone())).await);
            unknown = unknown.min(time(&passwords, None).await);
        }
        assert!(unknown > known / 2 && known > unknown / 2, "{known:?} and {unknown:?}");
    }

    /// CPU time of the process, which does not depend on the load of the machine.
    async fn time(passwords: &Place<'_>, stored: Option<String>) -> Duration {
        let now = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
        let start = now();
        assert!(!passwords.verify(&secret("wrong"), stored).await.unwrap());
        now() - start
    }

    /// Takes all places of a share.
    fn fill(passwords: &Passwords, share: Share) -> Vec<Place<'_>> {
        std::iter::from_fn(|| passwords.enter(share).ok()).collect()
    }

    #[tokio::test]
    async fn third_hash_waits_and_full_share_returns_busy() {
        let passwords = Passwords::new().unwrap();
        let _all_permits = passwords.running.clone().acquire_many_owned(2).await.unwrap();
        let strangers = fill(&passwords, Share::Strangers);
        assert_eq!(strangers.len(), MAX_CONCURRENT + MAX_QUEUED);
        assert!(matches!(passwords.enter(Share::Strangers), Err(PasswordError::Busy)));
        let known = fill(&passwords, Share::Known);
        assert_eq!(known.len(), MAX_CONCURRENT + MAX_QUEUED, "strangers take no place of a known browser");
        drop(strangers);
        let third = passwords.enter(Share::Strangers).unwrap();
        assert!(
            tokio::time::timeout(Duration::from_millis(1), third.hash(&secret("correct horse")))
                .await
                .is_err(),
            "the third hash must wait for a permit"
        );
    }

    #[tokio::test]
    async fn known_browser_does_not_wait_for_the_queue_of_strangers() {
        let passwords: &'static Passwords = Box::leak(Box::new(Passwords::new().unwrap()));
        let all_permits = passwords.running.clone().acquire_many_owned(2).await.unwrap();
        let mut strangers = tokio::task::JoinSet::new();
        for place in fill(passwords, Share::Strangers) {
            strangers.spawn(async move { place.hash(&secret("correct horse")).await.map(drop) });
        }
        // Each has begun to wait after its first turn of the only thread.
        tokio::task::yield_now().await;
        let known = passwords.enter(Share::Known).unwrap();
        let known = tokio::spawn(async move { known.hash(&secret("correct horse")).await.map(drop) });
        tokio::task::yield_now().await;
        drop(all_permits);
        known.await.unwrap().unwrap();
        let finished = std::iter::from_fn(|| strangers.try_join_next()).count();
        assert!(finished < 10, "{finished} strangers were ahead of the known browser");
    }
}
