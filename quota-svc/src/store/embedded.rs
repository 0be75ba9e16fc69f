//! The embedded store: state in memory, persisted to one `redb` file.
//!
//! A change of an account or key is made in memory when it is on disk; if it can't be written, it is rejected. A charge
//! counts in memory first: a pause is on disk before the response, counters within 500 ms and on close. While the file
//! can't be written, charges fail, because a restart would lose their counts. The store retries until it can be
//! written again.

mod state;
mod store_file;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use quota_api::{
    AccountChange, Actor, Contact, ContactStatus, Event, EventKind, ImportReport, Limits, NewSession,
    NoticeKind, NoticeResult, SetCredential, StoredAccount,
};
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use state::State;
pub use store_file::OpenError;
use store_file::StoreFile;
use writer::{Save, Writer, lock};

use super::{
    AccountListing, AccountStore, Claims, KeyDraft, KeyListing, KeyStore, NoticeStore, Result, Store,
    StoreError,
};
use crate::domain::account::Login;
use crate::domain::event;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, StoredKey};
use crate::domain::notice::{Announcement, Queue};
use crate::domain::time::Clock;
use crate::domain::transfer::ImportAccount;
use crate::domain::verdict::{ChargeGroup, GroupOutcome};

pub struct EmbeddedStore {
    state: Arc<Mutex<State>>,
    file: Arc<StoreFile>,
    writer: Writer,
    limits: Limits,
    clock: Clock,
}

impl EmbeddedStore {
    /// Opens or creates the file and loads it into memory.
    pub fn open(path: &Path, limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        Self::start(StoreFile::open(path)?, limits, clock)
    }

    /// A store without a file, for tests and for generating the OpenAPI document.
    pub fn in_memory(limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        Self::with_backend(InMemoryBackend::new, limits, clock)
    }

    /// A store on another backend than a file. `backend` is called again whenever the store reopens itself.
    pub fn with_backend<B: StorageBackend>(
        backend: impl Fn() -> B + Send + Sync + 'static,
        limits: Limits,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        Self::start(StoreFile::with_backend(backend)?, limits, clock)
    }

    fn start(file: StoreFile, limits: Limits, clock: Clock) -> Result<Self, OpenError> {
        let file = Arc::new(file);
        let state = Arc::new(Mutex::new(State::load(&file)?));
        let writer =
            Writer::start(file.clone(), state.clone(), clock.clone()).map_err(OpenError::WriterThread)?;
        Ok(Self { state, file, writer, limits, clock })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn charge(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        if self.writer.failure().is_some() {
            return vec![GroupOutcome::Unavailable; groups.len()];
        }
        let outcomes: Vec<_> = {
            let mut state = self.state();
            let now = self.clock.now();
            groups.iter().map(|group| state.charge(group, now, &self.limits)).collect()
        };
        let is_pause =
            |outcome: &_| matches!(outcome, GroupOutcome::Counted(counts) if counts.burst_exceeded);
        // A pause is on disk before the response. If it can't be saved now, it stays in memory until it is.
        if outcomes.iter().any(is_pause)
            && let Err(error) = self.writer.save(Save::Pauses).await
        {
            tracing::warn!(%error, "can't save the pause of a key yet; all charges of its batch fail");
            return vec![GroupOutcome::Unavailable; groups.len()];
        }
        outcomes
    }

    async fn now(&self) -> Result<i64> {
        Ok(self.clock.now())
    }

    fn unavailable_reason(&self) -> Option<String> {
        self.writer.failure()
    }

    async fn failed(&self) {
        self.writer.thread_ended().await;
    }

    fn kind(&self) -> &'static str {
        "file"
    }

    async fn demo_used(&self) -> Result<u32> {
        Ok(self.state().demo_used(self.clock.now()))
    }

    async fn close(&self) {
        if let Err(error) = self.writer.save(Save::All).await {
            tracing::error!(%error, "can't save the latest counters; they are lost");
        }
    }

    async fn import(&self, accounts: &[ImportAccount]) -> Result<ImportReport> {
        let accounts = accounts.to_vec();
        self.writer.change(move |draft, now| draft.import(&accounts, now)).await
    }
}

#[async_trait]
impl AccountStore for EmbeddedStore {
    async fn create_account(&self, login: &Login, credential: Option<&str>) -> Result<StoredAccount> {
        let (login, credential) = (login.as_str().to_owned(), credential.map(str::to_owned));
        let create = move |now| StoredAccount::new(login, credential, now);
        self.writer.change(move |draft, now| draft.create_account(create(now))).await
    }

    async fn account(&self, id: AccountId) -> Result<StoredAccount> {
        self.state().account(id).map(|row| row.account.clone())
    }

    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<AccountListing> {
        self.state().accounts(cursor, limit)
    }

    async fn delete_account(&self, id: AccountId, expected_credential: Option<&str>) -> Result<Vec<KeyId>> {
        let expected = expected_credential.map(str::to_owned);
        self.writer.change(move |draft, _| draft.delete_account(id, expected.as_deref())).await
    }

    async fn change_account(
        &self,
        id: AccountId,
        change: &AccountChange,
        actor: &Actor,
    ) -> Result<StoredAccount> {
        let (change, actor) = (change.clone(), actor.clone());
        self.writer.change(move |draft, now| draft.change_account(id, &change, &actor, now)).await
    }

    async fn set_credential(&self, id: AccountId, change: &SetCredential) -> Result<u32> {
        let change = change.clone();
        self.writer.change(move |draft, _| draft.set_credential(id, &change)).await
    }

    async fn add_session(&self, id: AccountId, session: &NewSession) -> Result<()> {
        let session = session.clone();
        self.writer.change(move |draft, now| draft.add_session(id, &session, now)).await
    }

    async fn has_session(&self, id: AccountId, session: &str) -> Result<bool> {
        let now = self.clock.now();
        Ok(self.state().account(id)?.sessions.get(session).is_some_and(|expires_at| *expires_at > now))
    }

    async fn revoke_session(&self, id: AccountId, session: &str) -> Result<()> {
        let session = session.to_owned();
        self.writer.change(move |draft, _| draft.revoke_session(id, &session)).await
    }
}

#[async_trait]
impl KeyStore for EmbeddedStore {
    async fn create_key(&self, account: AccountId, draft: KeyDraft) -> Result<StoredKey> {
        let (actor, new) = (draft.actor.clone(), draft);
        self.writer
            .change(move |draft, now| {
                draft.create_key(new.into_key(account, now), EventKind::Created, &actor, now)
            })
            .await
    }

    async fn keys(&self, account: AccountId) -> Result<KeyListing> {
        self.state().keys(account)
    }

    async fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<StoredKey> {
        self.state().key(id, owner).cloned()
    }

    async fn change_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: &Actor,
    ) -> Result<StoredKey> {
        let (change, actor) = (change.clone(), actor.clone());
        self.writer.change(move |draft, now| draft.change_key(id, owner, &change, &actor, now)).await
    }

    async fn delete_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<()> {
        self.writer.change(move |draft, _| draft.delete_key(id, owner)).await
    }

    async fn events(&self, id: KeyId, owner: Option<AccountId>) -> Result<Vec<Event>> {
        self.state().key(id, owner)?;
        let lines = self.file.events(id).map_err(|error| {
            self.writer.report_failure(error.to_string());
            StoreError::Unavailable(error.into())
        })?;
        Ok(event::current(&lines, self.clock.now()))
    }
}

#[async_trait]
impl NoticeStore for EmbeddedStore {
    async fn announce(&self, announcement: &Announcement) -> Result<u64> {
        let Announcement { key, kind, .. } = *announcement;
        if kind == NoticeKind::KeyDailyLimit && !self.state().mark_announced(announcement) {
            return Ok(0);
        }
        let (queues, notice) = (self.state().queues(key), announcement.notice());
        let mut dropped = 0;
        if !queues.is_empty() {
            let added = queues.clone();
            dropped = self.writer.change(move |draft, _| draft.add_notice(&added, &notice)).await?;
            queues.into_iter().for_each(|queue| self.state().set_due(queue, self.clock.now()));
        }
        // Marked last: until then, the next charge of the key repeats the announcement.
        if kind == NoticeKind::KeyPaused {
            self.state().mark_announced(announcement);
        }
        Ok(dropped)
    }

    async fn claim_notices(&self, limit: usize) -> Result<Claims> {
        let (now, mut dropped) = (self.clock.now(), 0);
        let expiring = self.state().due_expiry_notices(now);
        for announcement in expiring.iter().flatten() {
            dropped += self.announce(announcement).await?;
        }
        if expiring.is_some() {
            self.state().set_expiry_checked(now);
        }
        let notices = self.state().claim_notices(limit, now);
        Ok(Claims { notices, dropped })
    }

    async fn finish_notice(&self, queue: Queue, result: NoticeResult) -> Result<bool> {
        let NoticeResult { claim, retry_seconds, delivery, .. } = result;
        if !self.state().has_claim(queue, claim) {
            return Ok(false);
        }
        let is_done = retry_seconds.is_none();
        match self.writer.change(move |draft, _| draft.finish_notice(queue, is_done, delivery)).await {
            Err(StoreError::AccountNotFound) => {}
            result => result?,
        }
        let retry_at = retry_seconds.map(|seconds| self.clock.now() + i64::from(seconds) * 1000);
        self.state().end_claim(queue, retry_at);
        Ok(true)
    }

    async fn overdue_ms(&self) -> Result<i64> {
        Ok(self.state().overdue_ms(self.clock.now()))
    }

    async fn contact(&self, id: AccountId) -> Result<ContactStatus> {
        let state = self.state();
        let row = state.account(id)?;
        let (contact, last_deliveries) = (row.account.contact.clone(), row.last_deliveries.clone());
        Ok(ContactStatus { contact, last_deliveries })
    }

    async fn set_contact(&self, id: AccountId, expected: &Contact, contact: &Contact) -> Result<()> {
        let (expected, contact) = (expected.clone(), contact.clone());
        self.writer.change(move |draft, _| draft.set_contact(id, &expected, contact)).await
    }
}
