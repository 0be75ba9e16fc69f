//! Passwords: what is accepted, and argon2id with at most two hashes under way at once.

use std::sync::Arc;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Semaphore, TryAcquireError};

/// The shortest password in characters.
pub const MIN_CHARS: usize = 8;
/// The longest password in characters.
pub const MAX_CHARS: usize = 1024;

/// A hash takes 19 MiB and a core: more at once would let a crowd at the sign-in take the machine.
const AT_ONCE: usize = 2;
/// Who waits longer than behind so many others would give up anyway.
const WAITING: usize = 64;

/// Why there is no answer about a password.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// It is too short or too long.
    #[error("a password has {MIN_CHARS} to {MAX_CHARS} characters")]
    Length,
    /// Too many wait already.
    #[error("too many sign-ins at once")]
    Busy,
    /// The hash could not be computed.
    #[error("the password could not be hashed: {0}")]
    Hash(argon2::password_hash::Error),
    /// The thread that hashed ended early.
    #[error("hashing was cut short")]
    Cut(#[from] tokio::task::JoinError),
}

/// Hashes and verifies passwords.
#[derive(Debug, Clone)]
pub struct Passwords {
    places: Arc<Semaphore>,
    running: Arc<Semaphore>,
    /// Verified in place of the hash that an unknown login does not have, so that it takes the same time.
    dummy: Arc<str>,
}

impl Passwords {
    /// Makes the dummy hash, which takes a moment.
    pub fn new() -> Result<Self, PasswordError> {
        let dummy = hash(&SecretString::from("nobody's password")).map_err(PasswordError::Hash)?;
        Ok(Self {
            places: Arc::new(Semaphore::new(AT_ONCE + WAITING)),
            running: Arc::new(Semaphore::new(AT_ONCE)),
            dummy: dummy.into(),
        })
    }

    /// The hash to store for a new password.
    pub async fn hash(&self, password: &SecretString) -> Result<String, PasswordError> {
        check(password)?;
        let password = password.clone();
        self.run(move || hash(&password)).await?.map_err(PasswordError::Hash)
    }

    /// Whether it is the password of this hash. `None`, for an account that is not there, takes as long.
    pub async fn verify(
        &self,
        password: &SecretString,
        stored: Option<String>,
    ) -> Result<bool, PasswordError> {
        let (password, dummy) = (password.clone(), self.dummy.clone());
        self.run(move || {
            let right = matches(&password, stored.as_deref().unwrap_or(&dummy));
            right && stored.is_some()
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _place = match self.places.try_acquire() {
            Ok(place) => place,
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => return Err(PasswordError::Busy),
        };
        let running = self.running.clone().acquire_owned().await.map_err(|_| PasswordError::Busy)?;
        let work = move || {
            // Goes with the work: whoever stops waiting must not let a third hash begin.
            let _running = running;
            work()
        };
        Ok(tokio::task::spawn_blocking(work).await?)
    }
}

fn check(password: &SecretString) -> Result<(), PasswordError> {
    match (MIN_CHARS..=MAX_CHARS).contains(&password.expose_secret().chars().count()) {
        true => Ok(()),
        false => Err(PasswordError::Length),
    }
}

fn hash(password: &SecretString) -> Result<String, argon2::password_hash::Error> {
    Ok(Argon2::default().hash_password(password.expose_secret().as_bytes())?.to_string())
}

fn matches(password: &SecretString, stored: &str) -> bool {
    match PasswordHash::new(stored) {
        Ok(parsed) => Argon2::default().verify_password(password.expose_secret().as_bytes(), &parsed).is_ok(),
        Err(error) => {
            tracing::error!(%error, "an account's stored password can't be read");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn secret(text: &str) -> SecretString {
        SecretString::from(text.to_owned())
    }

    #[tokio::test]
    async fn a_password_fits_its_own_hash_only() {
        let passwords = Passwords::new().unwrap();
        let stored = passwords.hash(&secret("correct horse")).await.unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(passwords.verify(&secret("correct horse"), Some(stored.clone())).await.unwrap());
        assert!(!passwords.verify(&secret("correct horsf"), Some(stored)).await.unwrap());
        assert!(
            !passwords.verify(&secret("nobody's password"), None).await.unwrap(),
            "the dummy opens nothing"
        );
        assert!(!passwords.verify(&secret("correct horse"), Some("broken".to_owned())).await.unwrap());
    }

    #[tokio::test]
    async fn length_is_counted_in_characters() {
        let passwords = Passwords::new().unwrap();
        assert!(matches!(passwords.hash(&secret("äöüßäöü")).await, Err(PasswordError::Length)));
        assert!(passwords.hash(&secret("äöüßäöü8")).await.is_ok());
        assert!(matches!(passwords.hash(&secret(&"x".repeat(1025))).await, Err(PasswordError::Length)));
    }

    #[tokio::test]
    async fn an_unknown_account_takes_as_long_as_a_wrong_password() {
        let passwords = Passwords::new().unwrap();
        let stored = passwords.hash(&secret("correct horse")).await.unwrap();
        let (mut known, mut unknown) = (Duration::MAX, Duration::MAX);
        // The fastest of several: what else the machine does only ever adds.
        for _ in 0..5 {
            known = known.min(time(&passwords, Some(stored.clone())).await);
            unknown = unknown.min(time(&passwords, None).await);
        }
        assert!(unknown > known / 2 && known > unknown / 2, "{known:?} and {unknown:?}");
    }

    async fn time(passwords: &Passwords, stored: Option<String>) -> Duration {
        let begun = Instant::now();
        assert!(!passwords.verify(&secret("wrong"), stored).await.unwrap());
        begun.elapsed()
    }

    #[tokio::test]
    async fn two_at_once_and_a_crowd_is_turned_away() {
        let passwords = Passwords::new().unwrap();
        let _both = passwords.running.clone().acquire_many_owned(2).await.unwrap();
        let crowd = passwords.places.clone().acquire_many_owned((AT_ONCE + WAITING) as u32).await.unwrap();
        assert!(matches!(passwords.hash(&secret("correct horse")).await, Err(PasswordError::Busy)));
        drop(crowd);
        let third = secret("correct horse");
        assert!(
            tokio::time::timeout(Duration::from_millis(1), passwords.hash(&third)).await.is_err(),
            "a third one waits"
        );
    }
}
