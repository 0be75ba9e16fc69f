//! Writes that fail: a rejected change has no effect, a confirmed one is on disk, and the store recovers.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_key::ApiKey;
use futures_util::future::join_all;
use quota_api::KeyChange;
use quota_api::{
    AccountAction, AccountChange, Actor, Channel, Contact, Delivery, Event, EventKind, KeyState, Limits,
    NewKey, Outcome, Scope, SetCredential, StateChange, StoredAccount,
};
use quota_svc::accounts::Accounts;
use quota_svc::domain::account::Login;
use quota_svc::domain::id::{AccountId, KeyId};
use quota_svc::domain::key::StoredKey;
use quota_svc::domain::notice::CLAIM_MS;
use quota_svc::domain::transfer::ImportAccount;
use quota_svc::store::StoreError;
use redb::StorageBackend;
use testkit::wait::eventually;

use super::harness::{Harness, draft, has_session, new_session, rename};
use super::notices::{account_and_key, notice_result, pause, webhook_contact};

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const SESSION: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// Runs with a fault that are made at the same time. Most of their time is spent waiting for the store to recover.
const CONCURRENT_RUNS: usize = 16;

/// Storage in memory whose writes fail on demand. Its clones share the data.
#[derive(Debug, Clone, Default)]
pub struct FaultyDisk {
    bytes: Arc<Mutex<Vec<u8>>>,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    /// Number of writes, resizes and syncs so far.
    writes: AtomicUsize,
    /// The first of them that fails, and the first after it that succeeds; equal if none fails.
    first: AtomicUsize,
    end: AtomicUsize,
}

impl FaultyDisk {
    pub fn fail_all_writes(&self, fail: bool) {
        self.faults.first.store(0, Ordering::SeqCst);
        self.faults.end.store(if fail { usize::MAX } else { 0 }, Ordering::SeqCst);
    }

    /// Fails `count` writes, after `skip` more that succeed.
    fn fail_writes(&self, skip: usize, count: usize) {
        let first = self.faults.writes.load(Ordering::SeqCst) + skip;
        self.faults.first.store(first, Ordering::SeqCst);
        self.faults.end.store(first.saturating_add(count), Ordering::SeqCst);
    }

    /// Whether the fault of [`FaultyDisk::fail_writes`] has occurred.
    fn has_failed(&self) -> bool {
        self.faults.writes.load(Ordering::SeqCst) > self.faults.first.load(Ordering::SeqCst)
    }

    /// A copy without faults: what a restart after a crash would find.
    pub fn copy(&self) -> Self {
        let bytes = self.bytes.lock().unwrap().clone();
        Self { bytes: Arc::new(Mutex::new(bytes)), faults: Arc::default() }
    }

    pub fn store(&self) -> Harness {
        let disk = self.clone();
        Harness::on_backend(LIMITS, move || disk.clone())
    }

    fn check_fault(&self) -> io::Result<()> {
        let write = self.faults.writes.fetch_add(1, Ordering::SeqCst);
        let failing = self.faults.first.load(Ordering::SeqCst)..self.faults.end.load(Ordering::SeqCst);
        if failing.contains(&write) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.lock().unwrap();
        let stored = bytes.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(stored.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_fault()?;
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    /// A failed sync is ambiguous: the data may be on disk. Here it always is.
    fn sync_data(&self) -> io::Result<()> {
        self.check_fault()
    }

    /// A failed write leaves half of the data on disk.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let fault = self.check_fault();
        let written = if fault.is_ok() { data.len() } else { data.len() / 2 };
        let mut bytes = self.bytes.lock().unwrap();
        bytes[offset as usize..offset as usize + written].copy_from_slice(&data[..written]);
        fault
    }
}

pub const LIMITS: Limits = Limits { daily: 100, burst: 10, demo: 10 };

/// One change of every kind, in an order in which all succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    CreateAccount,
    CreateKey,
    Deactivate,
    Reactivate,
    Rename,
    SetLimit,
    Rotate,
    AddSession,
    SetCredential,
    /// Charges until the key is paused.
    Pause,
    Resume,
    Import,
    SetContact,
    Suspend,
    Restore,
    DeleteKey,
    DeleteAccount,
}

pub const STEPS: [Step; 17] = [
    Step::CreateAccount,
    Step::CreateKey,
    Step::Deactivate,
    Step::Reactivate,
    Step::Rename,
    Step::SetLimit,
    Step::Rotate,
    Step::AddSession,
    Step::SetCredential,
    Step::Pause,
    Step::Resume,
    Step::Import,
    Step::SetContact,
    Step::Suspend,
    Step::Restore,
    Step::DeleteKey,
    Step::DeleteAccount,
];

/// The account and the key that the steps change, its copy, and the key that they import.
pub struct Subjects {
    login: Login,
    key: ApiKey,
    rotated: ApiKey,
    imported: ApiKey,
}

impl Subjects {
    pub fn new() -> Self {
        let login = Login::parse("ada").unwrap();
        let key = || login.account_id().generate_key().unwrap();
        Self { key: key(), rotated: key(), imported: key(), login }
    }

    fn account(&self) -> AccountId {
        self.login.account_id()
    }

    fn key(&self) -> KeyId {
        KeyId::of(&self.key.digest())
    }

    pub async fn run(&self, step: Step, harness: &Harness) -> Result<(), StoreError> {
        let (store, account, key) = (&harness.store, self.account(), self.key());
        let change = async |change: KeyChange| {
            store.change_key(key, Some(account), &change, &Actor::Operator).await.map(drop)
        };
        match step {
            Step::CreateAccount => store.create_account(&self.login, None).await.map(drop),
            Step::CreateKey => {
                store.create_key(account, draft(&self.key, NewKey::new("a key", Scope::Full))).await.map(drop)
            }
            Step::Deactivate => change(KeyChange::State(StateChange::Deactivate)).await,
            Step::Reactivate => change(KeyChange::State(StateChange::Reactivate)).await,
            Step::Rename => change(rename("renamed")).await,
            Step::SetLimit => change(KeyChange::DailyLimit(Some(50))).await,
            Step::Rotate => {
                let actor = Actor::Owner;
                store.rotate_key(key, Some(account), &self.rotated, 600, &actor).await.map(drop)
            }
            Step::AddSession => store.add_session(account, &new_session(SESSION, 60, None)).await.map(drop),
            Step::SetCredential => {
                let (credential, keep_session) = ("hash".to_owned(), Some(SESSION.to_owned()));
                let change = SetCredential { credential, keep_session, ..SetCredential::default() };
                store.set_credential(account, &change).await.map(drop)
            }
            Step::Pause => self.pause(harness).await,
            Step::Resume => change(KeyChange::State(StateChange::Resume)).await,
            Step::Import => store.import(&[self.backup().await]).await.map(drop),
            Step::SetContact => store.set_contact(account, &Contact::default(), &webhook_contact()).await,
            Step::Suspend => {
                let reason = Some("abuse".to_owned());
                let change = AccountChange { action: AccountAction::Suspend, reason };
                store.change_account(account, &change, &Actor::Operator).await.map(drop)
            }
            Step::Restore => {
                let change = AccountChange::new(AccountAction::Restore);
                store.change_account(account, &change, &Actor::Operator).await.map(drop)
            }
            Step::DeleteKey => store.delete_key(key, Some(account)).await,
            Step::DeleteAccount => store.delete_account(account, None).await.map(drop),
        }
    }

    async fn pause(&self, harness: &Harness) -> Result<(), StoreError> {
        let verdicts = harness.charge_key(self.key(), u32::from(LIMITS.burst) + 1).await;
        match verdicts.last().unwrap().outcome() {
            Outcome::BurstExceeded | Outcome::Paused => Ok(()),
            Outcome::Unavailable => Err(StoreError::Unavailable("charge".into())),
            other => panic!("{other:?}"),
        }
    }

    /// The account with another key, as an export of another store has it.
    async fn backup(&self) -> ImportAccount {
        let other = Harness::embedded();
        other.store.create_account(&self.login, None).await.unwrap();
        let key = other
            .store
            .create_key(self.account(), draft(&self.imported, NewKey::new("a key", Scope::Full)))
            .await
            .unwrap();
        let account = other.store.account(self.account()).await.unwrap().value.account;
        ImportAccount { account, keys: vec![key.value] }
    }

    async fn snapshot(&self, store: &Accounts) -> Snapshot {
        let account = store.account(self.account()).await.ok().map(|seen| seen.value.account);
        let session = has_session(store, self.account(), SESSION).await;
        Snapshot {
            account,
            session,
            keys: store.keys(self.account()).await.map(|listing| listing.value.keys).unwrap_or_default(),
        }
    }

    /// Also has the events, which can't be read while the store file can't be reopened.
    pub async fn full_snapshot(&self, store: &Accounts) -> (Snapshot, Vec<Vec<Event>>) {
        let snapshot = self.snapshot(store).await;
        let events = snapshot.keys.iter().map(|key| store.events(key.meta.id(), None));
        let events = join_all(events).await.into_iter().map(Result::unwrap).collect();
        (snapshot, events)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    account: Option<StoredAccount>,
    session: bool,
    keys: Vec<StoredKey>,
}

async fn wait_available(store: &Accounts) {
    eventually(WAIT_TIMEOUT, "the store recovers", async || {
        store.unavailable_reason().is_none().then_some(())
    })
    .await;
}

/// Every kind of change is rejected while writes fail, and works afterward. Charges are unavailable meanwhile.
pub async fn rejected_changes_have_no_effect(harness: &Harness, fail_writes: impl AsyncFn(bool)) {
    let (subjects, store) = (Subjects::new(), &*harness.store);
    for step in STEPS {
        let before = subjects.snapshot(store).await;
        fail_writes(true).await;
        let result = subjects.run(step, harness).await;
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "{step:?}: {result:?}");
        if step != Step::Pause {
            assert_eq!(subjects.snapshot(store).await, before, "{step:?}");
        }
        let is_active = |key: &&StoredKey| key.record.state == KeyState::Active && !key.record.suspended;
        if let Some(active) = before.keys.iter().find(is_active) {
            assert_eq!(harness.outcome(active.meta.id()).await, Outcome::Unavailable, "{step:?}");
        }
        fail_writes(false).await;
        wait_available(store).await;
        subjects.run(step, harness).await.unwrap_or_else(|error| panic!("{step:?}: {error}"));
        assert_ne!(subjects.snapshot(store).await, before, "{step:?}");
    }
}

/// Changes of the outbox are rejected while writes fail, and a rejected one loses no notice.
pub async fn failed_writes_lose_no_notice(harness: &Harness, fail_writes: impl AsyncFn(bool)) {
    let store = &*harness.store;
    let rejected = async |result: Result<(), StoreError>| {
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
        fail_writes(false).await;
        wait_available(store).await;
    };
    let (account, key) = account_and_key(harness).await;
    let delivered =
        |claim| notice_result(Channel::Webhook, claim, None, Some(Delivery { at: 1, error: None }));
    pause(harness, key).await;
    fail_writes(true).await;
    rejected(store.claim_notices(10).await.map(drop)).await;
    let claimed = store.claim_notices(10).await.unwrap().notices;
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    fail_writes(true).await;
    rejected(store.finish_notice(account, &delivered(claimed[0].claim)).await.map(drop)).await;
    assert_eq!(store.account(account).await.unwrap().outbox.last_deliveries.len(), 0);
    harness.advance(CLAIM_MS);
    let again = store.claim_notices(10).await.unwrap().notices;
    assert_eq!((again.len(), &again[0].notice), (1, &claimed[0].notice));
    assert!(store.finish_notice(account, &delivered(again[0].claim)).await.unwrap());
    harness.advance(CLAIM_MS);
    assert_eq!(store.claim_notices(10).await.unwrap().notices, []);
}

/// Makes all steps with a fault that begins after `skip` writes. Returns whether the fault occurred.
async fn run_with_fault(skip: usize, count: usize) -> bool {
    let (disk, subjects) = (FaultyDisk::default(), Subjects::new());
    let harness = disk.store();
    let store = &*harness.store;
    disk.fail_writes(skip, count);
    for step in STEPS {
        let context = format!("{step:?} with {count} failed writes after {skip}");
        let before = subjects.snapshot(store).await;
        let Err(error) = subjects.run(step, &harness).await else { continue };
        assert!(matches!(error, StoreError::Unavailable(_)), "{context}: {error}");
        assert!(disk.has_failed(), "{context}: {error}");
        if step != Step::Pause {
            assert_eq!(subjects.snapshot(store).await, before, "{context}: the rejected change is visible");
        }
        let crashed = disk.copy();
        if count == usize::MAX {
            disk.fail_all_writes(false);
        }
        wait_available(store).await;
        let recovered = subjects.full_snapshot(store).await;
        assert_on_disk(&disk, &subjects, &recovered, &context).await;
        subjects.run(step, &harness).await.unwrap_or_else(|error| panic!("{context}, again: {error}"));
        let after = subjects.full_snapshot(store).await;
        let expected_pauses = usize::from(matches!(
            step,
            Step::Pause | Step::Resume | Step::Import | Step::SetContact | Step::Suspend | Step::Restore
        ));
        assert_eq!(pauses(&after), expected_pauses, "{context}");
        let crashed = subjects.full_snapshot(&crashed.store().store).await;
        let whole = [&before, &recovered.0, &after.0].contains(&&crashed.0);
        assert!(whole, "{context}: half of the change survived a crash: {crashed:?}");
    }
    let end = subjects.full_snapshot(store).await;
    assert_on_disk(&disk, &subjects, &end, "after all steps").await;
    disk.has_failed()
}

/// Every confirmed change is on disk.
async fn assert_on_disk(
    disk: &FaultyDisk,
    subjects: &Subjects,
    expected: &(Snapshot, Vec<Vec<Event>>),
    context: &str,
) {
    let restarted = disk.copy().store();
    assert_eq!(subjects.full_snapshot(&restarted.store).await, *expected, "{context}: after a restart");
}

fn pauses((_, events): &(Snapshot, Vec<Vec<Event>>)) -> usize {
    events.iter().flatten().filter(|event| event.kind == EventKind::Paused).count()
}

/// Every other run has one failed write, the others a disk that stays full.
#[tokio::test]
async fn embedded_store_recovers_from_a_fault_at_each_write() {
    for first in (0..).step_by(CONCURRENT_RUNS) {
        let count = |skip: usize| if skip.is_multiple_of(2) { 1 } else { usize::MAX };
        let runs = (first..first + CONCURRENT_RUNS).map(|skip| run_with_fault(skip, count(skip)));
        if !join_all(runs).await.contains(&true) {
            assert!(first > STEPS.len(), "every step writes");
            return;
        }
    }
}
