//! Accounts, keys and notices: loads an account, applies a rule to its value, and commits the difference.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_key::ApiKey;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use quota_api::{
    AccountChange, Actor, ClaimedNotice, Contact, Event, ImportReport, KeyChange, Limits, NewSession,
    NoticeResult, Rejection, SetCredential, StoredAccount, UnreadableKey,
};
use tokio::sync::Mutex;

use crate::denial_cache::DenialCache;
use crate::domain::account::Login;
use crate::domain::change::Change;
use crate::domain::event;
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::StoredKey;
use crate::domain::notice::Announcement;
use crate::domain::transfer::ImportAccount;
use crate::domain::value::{AccountValue, KeyDraft, Loaded, Target, row};
use crate::domain::verdict::Subject;
use crate::store::{Result, Store, StoreArgs, StoreError};

/// Accounts per page of a search.
const SEARCH_PAGE: usize = 500;

/// Queues of changes.
const TURNS: usize = 1_024;
/// Announcements, and keys that expire, of which notices are made before each claim.
const NOTICE_BATCH: usize = 32;
/// Accounts of an import that are changed at the same time.
const IMPORTS_AT_ONCE: usize = 128;

/// Changes and reads accounts; [`AccountValue`] has the rules. A change is durable when its method returns, as far as the store can confirm that; but sessions
/// and notices are not confirmed: what a crash loses of them is made again.
pub struct Accounts {
    store: Arc<dyn Store>,
    /// By the hash of the account: its changes queue, so that only those of other processes conflict.
    turns: Vec<Mutex<()>>,
    write_timeout: Duration,
    /// Each change drops those of the keys whose records it has changed.
    pub denials: DenialCache,
    /// That of keys without their own.
    default_limit: u32,
}

/// What was true at a time of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen<T> {
    pub value: T,
    /// ms
    pub now: i64,
}

impl<T> Deref for Seen<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// One page of all accounts with their keys.
#[derive(Debug)]
pub struct AccountPage {
    pub accounts: Vec<AccountValue>,
    /// Accounts of this page that can't be read, and are not in `accounts`.
    pub unreadable: Vec<AccountId>,
    pub total: u64,
    /// Cursor of the next page; `None` on the last page.
    pub next: Option<String>,
    /// The store's time, ms; 0 for an empty page.
    pub now: i64,
}

/// The keys of an account.
#[derive(Debug, Clone, Default)]
pub struct KeyListing {
    /// Oldest first.
    pub keys: Vec<StoredKey>,
    pub unreadable: Vec<UnreadableKey>,
}

/// Claimed notices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    pub notices: Vec<ClaimedNotice>,
    /// Notices that were dropped, because too many of a queue wait.
    pub dropped: u64,
}

impl Deref for Accounts {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl Accounts {
    pub fn new(store: Arc<dyn Store>, limits: Limits, write_timeout: Duration) -> Self {
        let turns = (0..TURNS).map(|_| Mutex::default()).collect();
        Self { store, turns, write_timeout, denials: DenialCache::default(), default_limit: limits.daily }
    }

    /// Opens the store. Connecting to Redis goes on in the background.
    pub fn open(args: &StoreArgs, limits: Limits) -> anyhow::Result<Self> {
        Ok(Self::new(args.open(limits)?, limits, args.write_timeout))
    }

    pub async fn create_account(&self, login: &Login, credential: Option<&str>) -> Result<StoredAccount> {
        let new = |now| StoredAccount::new(login.as_str().to_owned(), credential.map(str::to_owned), now);
        let create = |loaded: &Loaded| {
            let mut value = AccountValue::decode(loaded)?;
            Ok((AccountValue::create(&mut value, new(loaded.now))?, value))
        };
        Ok(self.commit(Target::Account(login.account_id()), &[], true, create).await?.value)
    }

    pub async fn account(&self, id: AccountId) -> Result<Seen<AccountValue>> {
        let loaded = self.load(Target::Account(id), &[], self.deadline()).await?;
        let value = AccountValue::decode(&loaded)?.ok_or(Rejection::AccountNotFound)?;
        Ok(Seen { value, now: loaded.now })
    }

    /// Deletes an account with its keys and sessions. If `expected_credential` is given and is not the current credential, fails
    /// with [`Rejection::CredentialConflict`]. Without it, an unreadable account is deleted, too.
    pub async fn delete_account(&self, id: AccountId, expected_credential: Option<&str>) -> Result<()> {
        let delete = |loaded: &Loaded| match AccountValue::decode(loaded) {
            Err(Rejection::UnreadableAccount { .. }) if expected_credential.is_none() => Ok(((), None)),
            value => {
                value?.ok_or(Rejection::AccountNotFound)?.check_credential(expected_credential)?;
                Ok(((), None))
            }
        };
        self.commit(Target::Account(id), &[], true, delete).await.map(drop)
    }

    pub async fn change_account(
        &self,
        id: AccountId,
        change: &AccountChange,
        actor: &Actor,
    ) -> Result<StoredAccount> {
        let change = |value: &mut AccountValue, now| {
            value.change(change, actor, now);
            Ok(value.account.clone())
        };
        Ok(self.update(Target::Account(id), true, change).await?.value)
    }

    pub async fn set_credential(&self, id: AccountId, change: &SetCredential) -> Result<u32> {
        let set = |value: &mut AccountValue, _| value.set_credential(change);
        Ok(self.update(Target::Account(id), true, set).await?.value)
    }

    pub async fn add_session(&self, id: AccountId, session: &NewSession) -> Result<bool> {
        let add = |value: &mut AccountValue, now| value.add_session(session, now);
        Ok(self.update(Target::Account(id), false, add).await?.value)
    }

    /// Succeeds also if the session is not active.
    pub async fn revoke_session(&self, id: AccountId, session: &str) -> Result<()> {
        let revoke = |value: &mut AccountValue, _| {
            value.sessions.remove(session);
            Ok(())
        };
        match self.update(Target::Account(id), false, revoke).await {
            Err(StoreError::Rejected(Rejection::AccountNotFound)) => Ok(()),
            result => result.map(drop),
        }
    }

    pub async fn create_key(&self, account: AccountId, draft: KeyDraft) -> Result<Seen<StoredKey>> {
        let create = |value: &mut AccountValue, now| value.create_key(draft.clone(), now);
        self.update(Target::Account(account), true, create).await
    }

    pub async fn keys(&self, account: AccountId) -> Result<Seen<KeyListing>> {
        let Seen { value, now } = self.account(account).await?;
        Ok(Seen { value: KeyListing::of(value), now })
    }

    pub async fn key(&self, id: KeyId, owner: Option<AccountId>) -> Result<Seen<StoredKey>> {
        let (value, now) = self.load_owned(id, owner).await?;
        Ok(Seen { value: value.key(id)?.clone(), now })
    }

    pub async fn rotate_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        secret: &ApiKey,
        overlap: u32,
        actor: &Actor,
    ) -> Result<Seen<StoredKey>> {
        self.update_key(id, owner, |value, now| {
            value.rotate_key(id, secret.digest(), secret.hint(), overlap, actor, now)
        })
        .await
    }

    pub async fn change_key(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        change: &KeyChange,
        actor: &Actor,
    ) -> Result<Seen<StoredKey>> {
        self.update_key(id, owner, |value, now| value.change_key(id, change, actor, now)).await
    }

    /// Deletes a key, readable or not.
    pub async fn delete_key(&self, id: KeyId, owner: Option<AccountId>) -> Result<()> {
        let delete = |value: &mut AccountValue, now| value.delete_key(id, now);
        match self.update_key(id, owner, delete).await {
            Err(StoreError::Rejected(Rejection::UnreadableKey { .. })) => {
                let owner = self.search_owner(id).await?;
                self.update_key(id, Some(owner), delete).await.map(drop)
            }
            result => result.map(drop),
        }
    }

    /// Searches all accounts of the shard for one that has this key: its record doesn't name it.
    async fn search_owner(&self, id: KeyId) -> Result<AccountId> {
        let mut cursor = None;
        loop {
            let page = self.store.accounts(cursor.as_deref(), SEARCH_PAGE).await?;
            for account in page.ids.into_iter().filter(|account| account.shard() == id.shard()) {
                let loaded = self.load(Target::Account(account), &[], self.deadline()).await?;
                if loaded.rows.contains_key(&row::key(id)) {
                    return Ok(account);
                }
            }
            let Some(next) = page.next else { return Err(Rejection::KeyNotFound.into()) };
            cursor = Some(next);
        }
    }

    pub async fn events(&self, id: KeyId, owner: Option<AccountId>) -> Result<Vec<Event>> {
        let (value, now) = self.load_owned(id, owner).await?;
        let key = value.key(id)?;
        Ok(event::shown(&self.store.events(id).await?, key.pause_event(), now))
    }

    pub async fn import(&self, accounts: &[ImportAccount]) -> Result<ImportReport> {
        let imports: Vec<_> = accounts.iter().map(|account| self.import_account(account)).collect();
        stream::iter(imports)
            .buffer_unordered(IMPORTS_AT_ONCE)
            .try_fold(ImportReport::default(), async |mut total, report| {
                total += report;
                Ok(total)
            })
            .await
    }

    async fn import_account(&self, account: &ImportAccount) -> Result<ImportReport> {
        let ids: Vec<KeyId> = account.keys.iter().map(|key| key.meta.id()).collect();
        let import = |loaded: &Loaded| {
            let mut value = AccountValue::decode(loaded)?;
            let elsewhere = |id: &&KeyId| !loaded.rows.contains_key(&row::key(**id));
            let taken: BTreeSet<KeyId> = loaded.records.keys().filter(elsewhere).copied().collect();
            let report = AccountValue::import(&mut value, account, &taken, loaded.now);
            Ok((report, value))
        };
        let id = AccountId::of(&account.account.login);
        Ok(self.commit(Target::Account(id), &ids, true, import).await?.value)
    }

    /// See [`Store::accounts`].
    pub async fn page(&self, cursor: Option<&str>, limit: usize) -> Result<AccountPage> {
        let ids = self.store.accounts(cursor, limit).await?;
        let deadline = self.deadline();
        let loads = ids.ids.iter().map(|id| self.store.load(Target::Account(*id), &[], deadline));
        let (mut accounts, mut unreadable, mut now) = (Vec::new(), Vec::new(), 0);
        for (id, loaded) in ids.ids.iter().zip(futures_util::future::join_all(loads).await) {
            let decoded = loaded.and_then(|loaded| {
                now = loaded.as_ref().map_or(now, |loaded| loaded.now);
                Ok(loaded.map(|loaded| AccountValue::decode(&loaded)).transpose()?.flatten())
            });
            match decoded {
                // `None`: it was deleted after it was listed.
                Ok(value) => accounts.extend(value),
                Err(StoreError::Rejected(Rejection::UnreadableAccount { .. })) => unreadable.push(*id),
                Err(error) => return Err(error),
            }
        }
        Ok(AccountPage { accounts, unreadable, total: ids.total, next: ids.next, now })
    }

    pub async fn set_contact(&self, id: AccountId, expected: &Contact, contact: &Contact) -> Result<()> {
        let set = |value: &mut AccountValue, _| value.set_contact(expected, contact);
        self.update(Target::Account(id), true, set).await.map(drop)
    }

    /// The account that has this key; it is `owner`, if that is given.
    async fn load_owned(&self, id: KeyId, owner: Option<AccountId>) -> Result<(AccountValue, i64)> {
        let loaded = self.load(target(id, owner), &[], self.deadline()).await?;
        let value = AccountValue::decode(&loaded)?.ok_or(Rejection::KeyNotFound)?;
        Ok((value, loaded.now))
    }

    async fn update_key<T>(
        &self,
        id: KeyId,
        owner: Option<AccountId>,
        rule: impl Fn(&mut AccountValue, i64) -> Result<T, Rejection>,
    ) -> Result<Seen<T>> {
        match self.update(target(id, owner), true, rule).await {
            Err(StoreError::Rejected(Rejection::AccountNotFound)) => Err(Rejection::KeyNotFound.into()),
            result => result,
        }
    }

    /// Applies a rule to an account that exists, and commits what it changes.
    async fn update<T>(
        &self,
        target: Target,
        confirm: bool,
        rule: impl Fn(&mut AccountValue, i64) -> Result<T, Rejection>,
    ) -> Result<Seen<T>> {
        let update = |loaded: &Loaded| {
            let mut value = AccountValue::decode(loaded)?.ok_or(Rejection::AccountNotFound)?;
            Ok((rule(&mut value, loaded.now)?, Some(value)))
        };
        self.commit(target, &[], confirm, update).await
    }

    /// Commits the difference between what is loaded and the value that `rule` makes of it. After a conflict, it does all that
    /// again until --write-timeout has passed. A change without an effect is confirmed, too: an equal one may have been written
    /// just before, and not be confirmed yet.
    async fn commit<T>(
        &self,
        target: Target,
        others: &[KeyId],
        confirm: bool,
        rule: impl Fn(&Loaded) -> Result<(T, Option<AccountValue>), Rejection>,
    ) -> Result<Seen<T>> {
        let deadline = self.deadline();
        let (Target::Account(AccountId(id)) | Target::Key(KeyId(id))) = target;
        let turn = &self.turns[usize::from(u16::from_le_bytes([id[0], id[1]])) % TURNS];
        let turn = tokio::time::timeout_at(deadline.into(), turn.lock()).await;
        let turn = turn.map_err(|_| out_of_time())?;
        while Instant::now() < deadline {
            let loaded = self.load(target, others, deadline).await?;
            let (result, value) = rule(&loaded)?;
            let change = Change::between(&loaded, value.as_ref());
            if change.is_empty() && !confirm {
                return Ok(Seen { value: result, now: loaded.now });
            }
            let committed = match self.store.commit(&change, confirm, deadline).await {
                Ok(None) => continue,
                Ok(Some(confirmation)) => {
                    // The next change need not wait for the disk.
                    drop(turn);
                    confirmation.await
                }
                Err(error) => Err(error),
            };
            // Even after an error, because the change may have been written.
            change.records.keys().for_each(|key| self.denials.invalidate(&Subject::Key(*key)));
            return committed.map(|()| Seen { value: result, now: loaded.now });
        }
        Err(out_of_time())
    }

    async fn load(&self, target: Target, others: &[KeyId], deadline: Instant) -> Result<Loaded> {
        Ok(self.store.load(target, others, deadline).await?.ok_or(Rejection::KeyNotFound)?)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.write_timeout
    }
}

/// Notices to owners.
impl Accounts {
    /// Makes notices of announcements and of keys that expire, if the owners want them. Then claims the oldest notice of each
    /// channel of up to `limit` accounts where it is due. An account that can't be reached holds up no other. Nothing is confirmed:
    /// a crash that loses a notice restores what it was made of, and one that loses a claim only ends it.
    pub async fn claim_notices(&self, limit: usize) -> Result<Claims> {
        let (mut claims, mut unreachable) = (Claims::default(), None);
        let (announcements, dropped) = self.store.announcements(NOTICE_BATCH).await?;
        claims.dropped += dropped;
        for announcement in announcements {
            let make = |value: &mut AccountValue, now| {
                Ok(Some(value.make_notices(&announcement, self.default_limit, now)))
            };
            let made = self.step(Target::Key(announcement.key), Some(announcement), &mut unreachable, make);
            claims.dropped += made.await?.unwrap_or(0);
        }
        let now = self.store.now().await?;
        for key in self.store.expiring_keys(now, NOTICE_BATCH).await? {
            let add = |value: &mut AccountValue, now| {
                let is_due = value.key(key)?.meta.expiry_notice.is_some_and(|at| at <= now);
                Ok(is_due.then(|| value.add_expiry_notice(key, now)))
            };
            let added = self.step(Target::Key(key), None, &mut unreachable, add);
            claims.dropped += added.await?.unwrap_or(0);
        }
        // Later than the new notices.
        let now = self.store.now().await?;
        for id in self.store.due_accounts(now, limit).await? {
            let claim = |value: &mut AccountValue, now| {
                Ok(Some(value.claim_notices(now)).filter(|claimed| !claimed.is_empty()))
            };
            let claimed = self.step(Target::Account(id), None, &mut unreachable, claim);
            claims.notices.extend(claimed.await?.unwrap_or_default());
        }
        match unreachable {
            Some(error) if claims == Claims::default() => Err(error),
            _ => Ok(claims),
        }
    }

    /// Applies a rule. If it has nothing to do, or the account or the key was deleted or can't be read, corrects the index. An error of
    /// an account that can't be reached is stored in `unreachable`: a part of the store that is unreachable holds up only its own accounts.
    async fn step<T>(
        &self,
        target: Target,
        made: Option<Announcement>,
        unreachable: &mut Option<StoreError>,
        rule: impl Fn(&mut AccountValue, i64) -> Result<Option<T>, Rejection>,
    ) -> Result<Option<T>> {
        let done = match self.update(target, false, rule).await {
            Ok(Seen { value: None, .. }) | Err(StoreError::Rejected(_)) => {
                self.correct_index(target, made).await.map(|()| None)
            }
            result => result.map(|seen| seen.value),
        };
        match done {
            Err(error @ (StoreError::Unavailable(_) | StoreError::Unconfirmed(_))) => {
                *unreachable = Some(error);
                Ok(None)
            }
            result => result,
        }
    }

    /// Corrects the time in the index at which a notice of an account, or that a key expires, is due. Otherwise one that was
    /// deleted, or can't be read, would be looked at again and again. Removes an announcement of which no notice can be made.
    async fn correct_index(&self, target: Target, made: Option<Announcement>) -> Result<()> {
        let deadline = self.deadline();
        let loaded = match self.store.load(target, &[], deadline).await {
            Err(StoreError::Rejected(_)) => None,
            loaded => loaded?,
        };
        let mut change = match (&loaded, target) {
            (Some(loaded), _) => {
                let (account, expected) = (loaded.id, loaded.version);
                Change { account, expected, exists: expected.is_some(), ..Change::default() }
            }
            // No account has the ID of a key; this one is in its shard.
            (None, Target::Key(key)) => Change { account: AccountId(key.0), ..Change::default() },
            (None, Target::Account(_)) => return Ok(()),
        };
        change.made = made;
        let value = loaded.and_then(|loaded| AccountValue::decode(&loaded).ok().flatten());
        match target {
            Target::Account(_) => change.notice_due = Some(value.and_then(|value| value.outbox.due())),
            Target::Key(key) => {
                let notice = value.and_then(|value| value.key(key).ok()?.meta.expiry_notice);
                change.expiry_notices.insert(key, notice);
            }
        }
        self.store.commit(&change, false, deadline).await.map(drop)
    }

    /// Ends a claim: removes its notice, or delays its next attempt by `retry_seconds`, and stores the delivery as the last one.
    /// Returns `false` if the claim is no longer valid.
    pub async fn finish_notice(&self, account: AccountId, result: &NoticeResult) -> Result<bool> {
        let finish = |value: &mut AccountValue, now| Ok(value.finish_notice(result.clone(), now));
        match self.update(Target::Account(account), false, finish).await {
            Err(StoreError::Rejected(_)) => Ok(false),
            finished => Ok(finished?.value),
        }
    }
}

impl KeyListing {
    pub fn of(value: AccountValue) -> Self {
        let mut listing = Self::default();
        for key in value.keys.into_values() {
            match key {
                Ok(key) => listing.keys.push(key),
                Err(unreadable) => listing.unreadable.push(unreadable),
            }
        }
        listing.keys.sort_by_key(|key| (key.meta.created_at, key.meta.id()));
        listing
    }
}

/// The account to load for a key.
fn target(id: KeyId, owner: Option<AccountId>) -> Target {
    owner.map_or(Target::Key(id), Target::Account)
}

fn out_of_time() -> StoreError {
    StoreError::Unavailable("--write-timeout has passed".into())
}
