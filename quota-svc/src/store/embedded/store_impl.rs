//! Implements `Store` for [`EmbeddedStore`]: reads the state in memory, or changes it and waits for the commit.

use crate::domain::event::{Actor, EventKind};
use crate::store::ImportReport;
use async_trait::async_trait;

use super::EmbeddedStore;
use crate::domain::account::{Account, Login};
use crate::domain::event::Event;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, KeyMeta, StoredKey};
use crate::domain::record::KeyRecord;
use crate::domain::verdict::{ChargeGroup, GroupOutcome};
use crate::store::{
    CredentialChange, ImportAccount, KeptSessions, KeyDraft, KeyListing, Page, Store, StoreError,
};

#[async_trait]
impl Store for EmbeddedStore {
    async fn charge(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        self.charge_batch(groups).await
    }

    async fn now(&self) -> Result<i64, StoreError> {
        Ok(self.clock.now())
    }

    fn unavailable_reason(&self) -> Option<String> {
        self.writer.failure()
    }

    async fn create_account(&self, login: &Login, credential: Option<&str>) -> Result<Account, StoreError> {
        let (login, credential) = (login.clone(), credential.map(str::to_owned));
        let credential_version = u32::from(credential.is_some());
        self.change(move |draft, created_at| {
            draft.create_account(Account { login, created_at, credential, credential_version })
        })
        .await
    }

    async fn account(&self, id: AccountId) -> Result<Account, StoreError> {
        self.state().account(id).map(|stored| stored.account.clone())
    }

    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<Page<Account>, StoreError> {
        self.state().accounts(cursor, limit)
    }

    async fn delete_account(
        &self,
        id: AccountId,
        expected_credential: Option<&str>,
    ) -> Result<Vec<KeyId>, StoreError> {
        let expected = expected_credential.map(str::to_owned);
        self.change(move |draft, _| draft.delete_account(id, expected.as_deref())).await
    }

    async fn set_credential(&self, id: AccountId, change: &CredentialChange<'_>) -> Result<u32, StoreError> {
        let CredentialChange { credential, expected_version, expected_credential, keep } = *change;
        let (credential, expected) = (credential.to_owned(), expected_credential.map(str::to_owned));
        let (keep_all, kept) = match keep {
            KeptSessions::None => (false, None),
            KeptSessions::One(session) => (false, Some(session.to_owned())),
            KeptSessions::All => (true, None),
        };
        self.change(move |draft, _| {
            let keep = match &kept {
                Some(session) => KeptSessions::One(session),
                None if keep_all => KeptSessions::All,
                None => KeptSessions::None,
            };
            let expected_credential = expected.as_deref();
            let credential = &credential;
            draft.set_credential(
                id,
                &CredentialChange { credential, expected_version, expected_credential, keep },
            )
        })
        .await
    }

    async fn add_session(
        &self,
        id: AccountId,
        session: &str,
        ttl_seconds: u32,
        expected_credential: Option<&str>,
    ) -> Result<(), StoreError> {
        let (session, expected) = (session.to_owned(), expected_credential.map(str::to_owned));
        let ttl_ms = i64::from(ttl_seconds) * 1000;
        self.change(move |draft, now| draft.add_session(id, &session, now + ttl_ms, expected.as_deref(), now))
            .await
    }

    async fn has_session(&self, id: AccountId, session: &str) -> Result<bool, StoreError> {
        let now = self.clock.now();
        Ok(self.state().account(id)?.sessions.get(session).is_some_and(|expires_at| *expires_at > now))
    }

    async fn revoke_session(&self, id: AccountId, session: &str) -> Result<(), StoreError> {
        let session = session.to_owned();
        self.change(move |draft, _| draft.revoke_session(id, &session)).await
    }

    async fn create_key(&self, account: AccountId, draft: KeyDraft) -> Result<StoredKey, StoreError> {
        let KeyDraft { name, digest, hint, scope, daily_limit, actor } = draft;
        self.change(move |draft, now| {
            let meta = KeyMeta { account, name, hint, digest, created_at: now };
            let record = KeyRecord::new(scope, daily_limit, now);
            draft.create_key(StoredKey { meta, record }, EventKind::Created, actor, now)
        })
        .await
    }

    async fn keys(&self, account: AccountId) -> Result<KeyListing, StoreError> {
        self.state().keys(account)
    }

    async fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<StoredKey, StoreError> {
        self.state().key(id, owner).cloned()
    }

    async fn change_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: Option<Actor>,
    ) -> Result<StoredKey, StoreError> {
        let change = change.clone();
        self.change(move |draft, now| draft.change_key(id, owner, &change, actor, now)).await
    }

    async fn delete_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<(), StoreError> {
        self.change(move |draft, _| draft.delete_key(id, owner)).await
    }

    async fn events(&self, id: KeyId, owner: Option<AccountId>) -> Result<Vec<Event>, StoreError> {
        self.state().key(id, owner)?;
        let lines = self.file.events(id).map_err(|error| {
            self.writer.report_failure(error.to_string());
            StoreError::Unavailable(error.to_string())
        })?;
        let now = self.clock.now();
        let events = lines.iter().filter_map(|line| Event::from_line(line));
        Ok(events.filter(|event| event.is_current(now)).collect())
    }

    async fn import(&self, accounts: &[ImportAccount]) -> Result<ImportReport, StoreError> {
        let accounts = accounts.to_vec();
        self.change(move |draft, now| draft.import(&accounts, now)).await
    }
}
