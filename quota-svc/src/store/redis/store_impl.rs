//! Implements `Store` for [`RedisStore`]: forwards to the methods in the other files.

use crate::domain::event::Actor;
use crate::store::ImportReport;
use async_trait::async_trait;

use super::RedisStore;
use crate::domain::account::{Account, Login};
use crate::domain::event::Event;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::{KeyChange, StoredKey};
use crate::domain::verdict::{ChargeGroup, GroupOutcome};
use crate::store::{CredentialChange, ImportAccount, KeyDraft, KeyListing, Page, Store, StoreError};

#[async_trait]
impl Store for RedisStore {
    async fn charge(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        self.charge_batch(groups).await
    }

    async fn now(&self) -> Result<i64, StoreError> {
        self.operation().read_now().await
    }

    fn unavailable_reason(&self) -> Option<String> {
        let reason = self.charges.unavailable_reason().or_else(|| self.others.unavailable_reason());
        match reason.or_else(|| self.writes.unavailable_reason()) {
            None => {
                self.settings.pass();
                None
            }
            Some(reason) => Some(self.settings.rejection().unwrap_or(reason)),
        }
    }

    fn unsafe_settings(&self) -> Option<String> {
        self.settings.unsafe_settings()
    }

    async fn create_account(&self, login: &Login, credential: Option<&str>) -> Result<Account, StoreError> {
        let credential = credential.map(str::to_owned);
        let credential_version = u32::from(credential.is_some());
        // `add_account` replaces `created_at` with the store's time.
        let account = Account { login: login.clone(), created_at: 0, credential, credential_version };
        self.operation().add_account(&account).await
    }

    async fn account(&self, id: AccountId) -> Result<Account, StoreError> {
        self.operation().read_account(id).await
    }

    async fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<Page<Account>, StoreError> {
        self.operation().read_accounts(cursor, limit).await
    }

    async fn delete_account(
        &self,
        id: AccountId,
        expected_credential: Option<&str>,
    ) -> Result<Vec<KeyId>, StoreError> {
        self.operation().remove_account(id, expected_credential).await
    }

    async fn set_credential(&self, id: AccountId, change: &CredentialChange<'_>) -> Result<u32, StoreError> {
        self.operation().replace_credential(id, change).await
    }

    async fn add_session(
        &self,
        id: AccountId,
        session: &str,
        ttl_seconds: u32,
        expected_credential: Option<&str>,
    ) -> Result<(), StoreError> {
        self.operation().session(id, session, Some(ttl_seconds), expected_credential).await.map(drop)
    }

    async fn has_session(&self, id: AccountId, session: &str) -> Result<bool, StoreError> {
        self.operation().session(id, session, None, None).await
    }

    async fn revoke_session(&self, id: AccountId, session: &str) -> Result<(), StoreError> {
        self.operation().delete_session(id, session).await
    }

    async fn create_key(&self, account: AccountId, draft: KeyDraft) -> Result<StoredKey, StoreError> {
        self.operation().add_key(account, draft).await
    }

    async fn keys(&self, account: AccountId) -> Result<KeyListing, StoreError> {
        self.operation().read_keys(account).await
    }

    async fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<StoredKey, StoreError> {
        self.operation().read_key(id, owner).await
    }

    async fn change_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: Option<Actor>,
    ) -> Result<StoredKey, StoreError> {
        self.operation().apply_change(id, owner, change, actor).await
    }

    async fn delete_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<(), StoreError> {
        self.operation().remove_key(id, owner).await
    }

    async fn events(&self, id: KeyId, owner: Option<AccountId>) -> Result<Vec<Event>, StoreError> {
        self.operation().read_events(id, owner).await
    }

    async fn import(&self, accounts: &[ImportAccount]) -> Result<ImportReport, StoreError> {
        self.bulk_operation().import_all(accounts).await
    }
}
