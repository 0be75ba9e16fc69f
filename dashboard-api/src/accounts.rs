//! Accounts: signing up, in and out, changing the password, leaving.

use std::net::IpAddr;
use std::time::Instant;

use quota_client::wire::{Account, NewAccount, SetCredential};
use quota_client::{ClientError, QuotaClient};
use secrecy::SecretString;
use tokio::sync::Mutex;

use crate::password::{PasswordError, Passwords};
use crate::session::{self, Ticket, unix_now};
use crate::throttle::{Attempt, Throttle, Throttled};

/// An id that no login has: asked for where there is no account, so that both ways make the same calls.
const NOBODY: &str = "00000000000000000000000000000000";

/// Why an account's owner does not get what they asked for.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// No such login, or not its password: which one is not told.
    #[error("login or password is wrong")]
    WrongCredentials,
    /// The password given to confirm a change is wrong.
    #[error("the password is wrong")]
    WrongPassword,
    /// Sign-up is switched off.
    #[error("sign-up is switched off")]
    SignupOff,
    /// There are as many accounts as there may be.
    #[error("no more accounts are taken")]
    Full,
    /// Too many attempts.
    #[error(transparent)]
    Throttled(#[from] Throttled),
    /// The password can't be taken or checked.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// quota-svc refused or did not answer.
    #[error(transparent)]
    Quota(#[from] ClientError),
    /// No randomness for a session.
    #[error("the system gives no random numbers")]
    Random(#[from] getrandom::Error),
}

/// A login and its password.
pub struct SignIn {
    /// As typed.
    pub login: String,
    /// As typed.
    pub password: SecretString,
}

/// Who may sign up.
#[derive(Debug, Clone, Copy)]
pub struct SignupPolicy {
    /// Whether anybody may.
    pub open: bool,
    /// How many accounts there may be.
    pub max_accounts: u64,
}

/// What the owners of accounts do.
pub struct Accounts {
    quota: QuotaClient,
    passwords: Passwords,
    throttle: Throttle,
    signup: SignupPolicy,
    /// Counting and creating go together, or a crowd would pass the limit.
    creating: Mutex<()>,
}

impl Accounts {
    /// Accounts kept by this quota-svc.
    pub fn new(quota: QuotaClient, signup: SignupPolicy) -> Result<Self, AccountError> {
        let (passwords, throttle) = (Passwords::new()?, Throttle::new()?);
        Ok(Self { quota, passwords, throttle, signup, creating: Mutex::default() })
    }

    /// Whether sign-up is on; it may still be full.
    pub fn signup_is_open(&self) -> bool {
        self.signup.open
    }

    /// Makes an account and signs it in.
    pub async fn sign_up(&self, wanted: &SignIn, address: IpAddr) -> Result<(Account, Ticket), AccountError> {
        if !self.signup.open {
            return Err(AccountError::SignupOff);
        }
        self.throttle.attempt(Attempt::SignUp, &wanted.login, address, Instant::now())?;
        let credential = Some(self.passwords.hash(&wanted.password).await?);
        let account = self.create(NewAccount { login: wanted.login.clone(), credential }).await?;
        let ticket = self.begin_session(&account.id).await?;
        Ok((account, ticket))
    }

    async fn create(&self, account: NewAccount) -> Result<Account, AccountError> {
        let _one_at_a_time = self.creating.lock().await;
        if self.quota.list_accounts(None, 1).await?.total >= self.signup.max_accounts {
            return Err(AccountError::Full);
        }
        Ok(self.quota.create_account(&account).await?)
    }

    /// Begins a session for whoever knows the password.
    pub async fn sign_in(&self, given: &SignIn, address: IpAddr) -> Result<(Account, Ticket), AccountError> {
        self.throttle.attempt(Attempt::SignIn, &given.login, address, Instant::now())?;
        let account = self.find(&given.login).await?;
        let id = account.as_ref().map_or(NOBODY, |account| &account.id);
        let stored = self.stored(id).await?.map(|(credential, _)| credential);
        let right = self.passwords.verify(&given.password, stored).await?;
        let account = account.filter(|_| right).ok_or(AccountError::WrongCredentials)?;
        self.throttle.succeeded(Attempt::SignIn, &given.login);
        let ticket = self.begin_session(&account.id).await?;
        Ok((account, ticket))
    }

    /// Gives the account another password and ends every other session.
    pub async fn change_password(
        &self,
        ticket: &Ticket,
        current: &SecretString,
        new: &SecretString,
        address: IpAddr,
    ) -> Result<(), AccountError> {
        let expected_version = self.confirm(ticket, current, address).await?;
        let credential = self.passwords.hash(new).await?;
        let change = SetCredential { credential, expected_version, keep_session: Some(ticket.id_sha256()) };
        self.quota.set_credential(&ticket.account, &change).await?;
        Ok(())
    }

    /// Deletes the account with its keys and sessions.
    pub async fn delete(
        &self,
        ticket: &Ticket,
        password: &SecretString,
        address: IpAddr,
    ) -> Result<(), AccountError> {
        self.confirm(ticket, password, address).await?;
        Ok(self.quota.delete_account(&ticket.account).await?)
    }

    /// Who holds a session must still know the password for what can't be undone. Gives its version.
    async fn confirm(
        &self,
        ticket: &Ticket,
        password: &SecretString,
        address: IpAddr,
    ) -> Result<u32, AccountError> {
        let login = self.quota.account(&ticket.account).await?.login;
        self.throttle.attempt(Attempt::SignIn, &login, address, Instant::now())?;
        let (stored, version) = self.stored(&ticket.account).await?.unzip();
        match self.passwords.verify(password, stored).await? {
            true => self.throttle.succeeded(Attempt::SignIn, &login),
            false => return Err(AccountError::WrongPassword),
        }
        Ok(version.unwrap_or_default())
    }

    async fn begin_session(&self, account: &str) -> Result<Ticket, AccountError> {
        let ticket = Ticket::new(account, unix_now())?;
        session::begin(&self.quota, &ticket).await?;
        Ok(ticket)
    }

    /// What can't be a login belongs to nobody.
    async fn find(&self, login: &str) -> Result<Option<Account>, ClientError> {
        match self.quota.find_account(login).await {
            Err(error) if error.status() == Some(400) => Ok(None),
            found => found,
        }
    }

    /// The account's hash with its version; `None` where there is no account or no password was ever set.
    async fn stored(&self, account: &str) -> Result<Option<(String, u32)>, ClientError> {
        match self.quota.credential(account).await {
            Ok(stored) => Ok(stored.credential.map(|credential| (credential, stored.version))),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
