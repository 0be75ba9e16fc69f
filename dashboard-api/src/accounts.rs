//! Account operations: sign-up, sign-in, password change, password links, deletion.

use std::net::IpAddr;
use std::sync::Arc;

use quota_client::wire::{Account, NewAccount, NewSession, SessionKind, SetCredential};
use quota_client::{ClientError, QuotaClient, found};
use secrecy::SecretString;

use crate::error::{Error, Result};
use crate::password::{self, Passwords, Place, Share};
use crate::password_link::LinkToken;
use crate::session::{SESSION_TTL_SECONDS, Session};
use crate::throttle::{Attempt, Throttle};

/// For an unknown login, the credential of this ID is queried, so that the response takes as long as for a known login.
/// No account has this ID.
const DUMMY_ACCOUNT_ID: &str = "00000000000000000000000000000000";

/// A password hash and its version.
type Credential = (String, u32);

pub struct Accounts {
    quota: QuotaClient,
    passwords: Passwords,
    throttle: Arc<Throttle>,
    /// Sign-up closes at this number; `None` if it is always closed.
    max_accounts: Option<u64>,
    /// Has a clone per sign-up in progress in this process. Each counts the others as accounts, so that together they can't
    /// exceed the limit. With a lock, each would have to wait until the store has confirmed the one before.
    pending: Arc<()>,
}

impl Accounts {
    pub fn new(quota: QuotaClient, throttle: Arc<Throttle>, max_accounts: Option<u64>) -> Result<Self> {
        Ok(Self { quota, passwords: Passwords::new()?, throttle, max_accounts, pending: Arc::default() })
    }

    /// Whether sign-up is enabled. Even if it is, [`sign_up`](Self::sign_up) fails once the account limit is reached.
    pub fn signup_is_open(&self) -> bool {
        self.max_accounts.is_some()
    }

    pub async fn sign_up(
        &self,
        login: &str,
        password: &SecretString,
        address: IpAddr,
    ) -> Result<(Account, Session)> {
        let max_accounts = self.max_accounts.ok_or(Error::SIGNUP_DISABLED)?;
        let place = self.enter(Attempt::SignUp(address))?;
        let credential = place.hash_new(password, login).await?;
        drop(place);
        let pending = self.pending.clone();
        // Without the one of `self` and this one.
        let others = Arc::strong_count(&pending) as u64 - 2;
        if self.quota.list_accounts(None, 1).await?.total + others >= max_accounts {
            return Err(Error::ACCOUNT_LIMIT_REACHED);
        }
        let new = NewAccount { login: login.to_owned(), credential: Some(credential.clone()) };
        let account = self.quota.create_account(&new).await?;
        drop(pending);
        let session = self.create_session(&account.id, credential).await?;
        Ok((account, session.ok_or(Error::WRONG_CREDENTIALS)?))
    }

    /// Creates a session if the password is correct. `known_browser` is the ID in the known-browser cookie of this
    /// login.
    pub async fn sign_in(
        &self,
        login: &str,
        password: &SecretString,
        address: IpAddr,
        known_browser: Option<&str>,
    ) -> Result<(Account, Session)> {
        let attempt = match known_browser {
            Some(browser) => Attempt::KnownBrowser(browser, login),
            None => Attempt::SignIn(login, address),
        };
        let place = self.enter(attempt)?;
        // If the credential changes during the check, the password is checked once more, against the new one.
        for _ in 0..2 {
            let account = self.find(login).await?;
            let id = account.as_ref().map_or(DUMMY_ACCOUNT_ID, |account| &account.id);
            let credential = self.verify(id, password, &place).await?;
            let (account, credential) = account.zip(credential).ok_or(Error::WRONG_CREDENTIALS)?;
            if let Some(session) = self.create_session(&account.id, credential.0.clone()).await? {
                self.throttle.reset(attempt);
                if password::is_weak(&credential.0) {
                    self.replace_weak(&account.id, credential, password, &place).await;
                }
                return Ok((account, session));
            }
        }
        Err(Error::WRONG_CREDENTIALS)
    }

    /// Takes a place in the queue for hashing, then counts the attempt: a full queue costs no attempt, and no call to
    /// quota-svc.
    fn enter(&self, attempt: Attempt<'_>) -> Result<Place<'_>> {
        let is_known = matches!(attempt, Attempt::KnownBrowser(..) | Attempt::Confirmation(_));
        let place = self.passwords.enter(if is_known { Share::Known } else { Share::Strangers })?;
        self.throttle.allow(attempt)?;
        Ok(place)
    }

    /// Returns the account's credential if the password matches it.
    async fn verify(
        &self,
        account: &str,
        password: &SecretString,
        place: &Place<'_>,
    ) -> Result<Option<Credential>> {
        let stored = self.credential(account).await?;
        let hash = stored.as_ref().map(|(hash, _)| hash.clone());
        let is_correct = place.verify(password, hash).await?;
        Ok(stored.filter(|_| is_correct))
    }

    /// Replaces a hash that is weaker than a new one. Keeps all sessions. If this fails, the next sign-in tries again.
    async fn replace_weak(
        &self,
        account: &str,
        weak: Credential,
        password: &SecretString,
        place: &Place<'_>,
    ) {
        let replaced = async {
            let change = SetCredential {
                keep_all_sessions: Some(true),
                ..replacing(Some(weak), place.hash(password).await?)
            };
            Ok::<_, Error>(self.quota.set_credential(account, &change).await?)
        };
        match replaced.await {
            Ok(_) => tracing::info!("replaced the weak hash of a password"),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "can't replace the weak hash of a password");
            }
        }
    }

    /// Changes the account's password and revokes every other session.
    pub async fn change_password(
        &self,
        session: &Session,
        current: &SecretString,
        new: &SecretString,
    ) -> Result<()> {
        let (place, old) = self.check_password(session, current).await?;
        let login = self.quota.account(&session.account).await?.login;
        let change = SetCredential {
            keep_session: Some(session.id_sha256()),
            ..replacing(Some(old), place.hash_new(new, &login).await?)
        };
        self.quota.set_credential(&session.account, &change).await?;
        Ok(())
    }

    /// Sets the password of the account that a password link names, and revokes all its sessions and links. Returns the
    /// account's ID. An error leaves the link valid.
    pub async fn set_password_with_link(
        &self,
        token: &str,
        password: &SecretString,
        address: IpAddr,
    ) -> Result<String> {
        let place = self.enter(Attempt::Link(address))?;
        let token = LinkToken::parse(token).ok_or(Error::INVALID_LINK)?;
        match self.use_link(&token, password, &place).await {
            // The account has been deleted, or another request has set a password in the meantime.
            Err(Error::Quota(error))
                if matches!(error.code(), Some("account_not_found" | "version_conflict")) =>
            {
                Err(Error::INVALID_LINK)
            }
            result => result.map(|()| token.account().to_owned()),
        }
    }

    async fn use_link(&self, token: &LinkToken, password: &SecretString, place: &Place<'_>) -> Result<()> {
        let account = token.account();
        // Read before the link is checked: if another request uses the link after the check, the version differs.
        let old = self.credential(account).await?;
        let found = self.quota.session_account(account, &token.sha256()).await?;
        let login = found.ok_or(Error::INVALID_LINK)?.login;
        let change = replacing(old, place.hash_new(password, &login).await?);
        self.quota.set_credential(account, &change).await?;
        Ok(())
    }

    /// Deletes the account with its keys and sessions. Fails if the password is changed before the deletion begins.
    pub async fn delete(&self, session: &Session, password: &SecretString) -> Result<()> {
        let (_, (expected, _)) = self.check_password(session, password).await?;
        Ok(self.quota.delete_account(&session.account, Some(&expected)).await?)
    }

    /// Checks the password before a change that a stolen session must not be able to make. Returns the place in the queue, and
    /// the credential.
    pub async fn check_password(
        &self,
        session: &Session,
        password: &SecretString,
    ) -> Result<(Place<'_>, Credential)> {
        // Counted per session: guesses by others, even in another session of the account, don't affect this one.
        let id_sha256 = session.id_sha256();
        let attempt = Attempt::Confirmation(&id_sha256);
        let place = self.enter(attempt)?;
        let verified = self.verify(&session.account, password, &place).await?;
        let credential = verified.ok_or(Error::WRONG_PASSWORD)?;
        self.throttle.reset(attempt);
        Ok((place, credential))
    }

    /// Creates a session for the owner of this credential; `None` if the account has another one by now, or has been
    /// deleted.
    async fn create_session(&self, account: &str, credential: String) -> Result<Option<Session>> {
        let session = Session::new(account)?;
        // Otherwise a sign-in with the old password could outlive a password change.
        let expected_credential = Some(credential);
        let (id_sha256, ttl_seconds) = (session.id_sha256(), SESSION_TTL_SECONDS);
        let new = NewSession { kind: SessionKind::Session, id_sha256, ttl_seconds, expected_credential };
        match self.quota.create_session(account, &new).await {
            Ok(_) => Ok(Some(session)),
            Err(error) if matches!(error.code(), Some("version_conflict" | "account_not_found")) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A malformed login (400) is treated like an unknown one.
    async fn find(&self, login: &str) -> Result<Option<Account>, ClientError> {
        match self.quota.find_account(login).await {
            Err(error) if error.status() == Some(400) => Ok(None),
            result => result,
        }
    }

    /// `None` if the account does not exist or has no password.
    async fn credential(&self, account: &str) -> Result<Option<Credential>, ClientError> {
        let stored = found(self.quota.credential(account).await)?;
        Ok(stored.and_then(|stored| Some((stored.credential?, stored.version))))
    }
}

/// A change of a credential that fails if it is not the expected one any more.
fn replacing(expected: Option<Credential>, credential: String) -> SetCredential {
    let (expected_credential, version) = expected.unzip();
    let expected_version = version.unwrap_or_default();
    SetCredential { credential, expected_version, expected_credential, ..SetCredential::default() }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;
    use crate::password::PasswordError;

    #[tokio::test]
    async fn attempt_is_not_counted_while_the_queue_is_full() {
        let quota = QuotaClient::new("http://127.0.0.1:9", Duration::from_secs(1)).unwrap();
        let accounts = Accounts::new(quota, Arc::default(), Some(1)).unwrap();
        let password = SecretString::from("a wrong guess");
        let address = Ipv4Addr::LOCALHOST.into();
        let full: Vec<_> = std::iter::from_fn(|| accounts.passwords.enter(Share::Strangers).ok()).collect();
        // More than the throttle allows.
        for _ in 0..30 {
            let sign_in = accounts.sign_in("ada", &password, address, None).await.map(drop);
            assert!(matches!(sign_in, Err(Error::Password(PasswordError::Busy))), "{sign_in:?}");
            let sign_up = accounts.sign_up("ada", &password, address).await.map(drop);
            assert!(matches!(sign_up, Err(Error::Password(PasswordError::Busy))), "{sign_up:?}");
        }
        drop(full);
        let sign_in = accounts.sign_in("ada", &password, address, None).await.map(drop);
        assert!(matches!(sign_in, Err(Error::Quota(_))), "{sign_in:?}");
        let sign_up = accounts.sign_up("ada", &password, address).await.map(drop);
        assert!(matches!(sign_up, Err(Error::Quota(_))), "{sign_up:?}");
    }
}
