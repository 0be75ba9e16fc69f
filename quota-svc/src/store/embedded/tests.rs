use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use quota_api::{KeyState, Limits, NoticeKind, Rejection, Scope, Verdict};
use redb::StorageBackend;
use testkit::wait::eventually;

use super::{EmbeddedStore, OpenError};
use crate::domain::change::{Change, RecordChange};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::notice::Announcement;
use crate::domain::record::{KeyRecord, decode, encode, encode_head};
use crate::domain::time::{Clock, MS_PER_DAY};
use crate::domain::value::{Loaded, Target, row};
use crate::domain::verdict::{ChargeGroup, GroupOutcome, Subject};
use crate::store::{Result, Store, StoreError};

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
const NOW: i64 = 20_000 * MS_PER_DAY;
const LIMITS: Limits = Limits { daily: 100, burst: 10, demo: 10 };
const ACCOUNT: AccountId = AccountId([1; 16]);
const OTHER_ACCOUNT: AccountId = AccountId([2; 16]);
const KEY: KeyId = KeyId([1; 16]);
const OTHER_KEY: KeyId = KeyId([2; 16]);
/// Runs with a fault that are made at the same time. Most of their time is spent waiting for the store to recover.
const CONCURRENT_RUNS: usize = 16;

/// Storage in memory whose writes wait or fail on demand. Its clones share the data.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<DiskState>);

#[derive(Debug, Default)]
struct DiskState {
    bytes: Mutex<Vec<u8>>,
    /// Number of writes, resizes and syncs so far.
    writes: AtomicUsize,
    /// Those that fail.
    failing: Mutex<Range<usize>>,
    blocked: Mutex<bool>,
    unblocked: Condvar,
    panics: AtomicBool,
    /// Whether a write waits until it is unblocked.
    is_waiting: AtomicBool,
}

impl Disk {
    fn store(&self) -> EmbeddedStore {
        let disk = self.clone();
        let clock = Clock::Manual(Arc::new(AtomicI64::new(NOW)));
        EmbeddedStore::with_backend(move || disk.clone(), LIMITS, clock).unwrap()
    }

    /// A store that reads what is on disk now, as after a crash.
    fn restarted(&self) -> EmbeddedStore {
        let copy = Self::default();
        *copy.0.bytes.lock().unwrap() = self.0.bytes.lock().unwrap().clone();
        copy.store()
    }

    /// Fails `count` writes, after `skip` more that succeed.
    fn fail_writes(&self, skip: usize, count: usize) {
        let first = self.0.writes.load(Ordering::SeqCst) + skip;
        *self.0.failing.lock().unwrap() = first..first.saturating_add(count);
    }

    fn block(&self, block: bool) {
        *self.0.blocked.lock().unwrap() = block;
        self.0.unblocked.notify_all();
    }

    /// Waits until a transaction has been put together and is being written.
    async fn wait_blocked(&self) {
        let is_waiting = async || self.0.is_waiting.load(Ordering::SeqCst).then_some(());
        eventually(WAIT_TIMEOUT, "a write is blocked", is_waiting).await;
    }

    fn check_fault(&self) -> io::Result<()> {
        assert!(!self.0.panics.load(Ordering::SeqCst), "an injected panic");
        let blocked = self.0.blocked.lock().unwrap();
        self.0.is_waiting.store(*blocked, Ordering::SeqCst);
        drop(self.0.unblocked.wait_while(blocked, |blocked| *blocked).unwrap());
        let write = self.0.writes.fetch_add(1, Ordering::SeqCst);
        let fails = self.0.failing.lock().unwrap().contains(&write);
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.bytes.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.bytes.lock().unwrap();
        let stored = bytes.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(stored.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_fault()?;
        self.0.bytes.lock().unwrap().resize(len as usize, 0);
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
        let mut bytes = self.0.bytes.lock().unwrap();
        bytes[offset as usize..offset as usize + written].copy_from_slice(&data[..written]);
        fault
    }
}

fn record() -> KeyRecord {
    KeyRecord { account: ACCOUNT, ..KeyRecord::new(Scope::Full, None, NOW) }
}

/// A change of nothing yet.
fn change(loaded: &Loaded) -> Change {
    Change {
        account: loaded.id,
        expected: loaded.version,
        exists: true,
        rows: BTreeMap::new(),
        records: BTreeMap::new(),
        events: Vec::new(),
        expiry_notices: BTreeMap::new(),
        notice_due: None,
        made: None,
    }
}

/// Creates the account with a key: rows, a record, an event and entries of both indexes.
fn creation(loaded: &Loaded) -> Change {
    let rows = [(row::ACCOUNT.to_owned(), Some(b"head".to_vec())), (row::key(KEY), Some(b"meta".to_vec()))];
    Change {
        rows: rows.into(),
        records: [(KEY, RecordChange::New(encode(&record())))].into(),
        events: vec![(KEY, "1 created".to_owned()), (KEY, "2 renamed".to_owned())],
        expiry_notices: [(KEY, Some(NOW + 5))].into(),
        notice_due: Some(Some(NOW - 3)),
        ..change(loaded)
    }
}

/// A change of the record of [`KEY`], with an event.
fn record_change(loaded: &Loaded, edit: impl FnOnce(&mut KeyRecord)) -> Change {
    let before = decode(&loaded.records[&KEY]).unwrap();
    let mut after = before.clone();
    edit(&mut after);
    let changed = RecordChange::Changed {
        expected: encode_head(&before),
        head: encode_head(&after),
        clears_window: after.window != before.window,
        origins: (after.origins != before.origins).then_some(after.origins),
    };
    let events = vec![(KEY, "3 changed".to_owned())];
    Change { records: [(KEY, changed)].into(), events, ..change(loaded) }
}

fn deletion(loaded: &Loaded) -> Change {
    let records = [(KEY, RecordChange::Deleted)].into();
    Change { exists: false, records, ..change(loaded) }
}

async fn load(store: &EmbeddedStore, account: AccountId) -> Loaded {
    store.load(Target::Account(account), &[], Instant::now()).await.unwrap().unwrap()
}

async fn key_record(store: &EmbeddedStore) -> KeyRecord {
    decode(&load(store, ACCOUNT).await.records[&KEY]).unwrap()
}

/// Returns whether the change was written.
async fn commit(store: &EmbeddedStore, change: &Change) -> Result<bool> {
    match store.commit(change, true, Instant::now() + WAIT_TIMEOUT).await? {
        Some(confirmation) => confirmation.await.map(|()| true),
        None => Ok(false),
    }
}

async fn created(disk: &Disk) -> EmbeddedStore {
    let store = disk.store();
    assert!(commit(&store, &creation(&load(&store, ACCOUNT).await)).await.unwrap());
    store
}

async fn charge(store: &EmbeddedStore, key: KeyId, count: u32) -> GroupOutcome {
    store.charge(&[ChargeGroup { subject: Subject::Key(key), origin: None, count }]).await[0]
}

async fn pause(store: &EmbeddedStore) -> Result<()> {
    match charge(store, KEY, u32::from(LIMITS.burst) + 1).await {
        GroupOutcome::Unavailable => Err(StoreError::Unavailable("charge".into())),
        GroupOutcome::Counted(counts) if counts.burst_exceeded => Ok(()),
        GroupOutcome::Paused { .. } => Ok(()),
        other => panic!("{other:?}"),
    }
}

async fn wait_available(store: &EmbeddedStore) {
    let is_available = async || store.unavailable_reason().is_none().then_some(());
    eventually(WAIT_TIMEOUT, "the store recovers", is_available).await;
}

/// All that a store has, except the events.
type Snapshot =
    (BTreeMap<String, Vec<u8>>, BTreeMap<KeyId, Vec<u8>>, Vec<AccountId>, Vec<KeyId>, Vec<AccountId>);

async fn snapshot(store: &EmbeddedStore) -> Snapshot {
    let loaded = store.load(Target::Account(ACCOUNT), &[KEY], Instant::now()).await.unwrap().unwrap();
    let (due, expiring) =
        (store.due_accounts(i64::MAX, 9).await.unwrap(), store.expiring_keys(i64::MAX, 9).await.unwrap());
    (loaded.rows, loaded.records, due, expiring, store.accounts(None, 9).await.unwrap().ids)
}

async fn full_snapshot(store: &EmbeddedStore) -> (Snapshot, Vec<String>) {
    (snapshot(store).await, store.events(KEY).await.unwrap())
}

#[tokio::test]
async fn restart_gives_back_rows_records_events_indexes_and_counters() {
    let disk = Disk::default();
    let store = created(&disk).await;
    assert!(matches!(charge(&store, KEY, 3).await, GroupOutcome::Counted(counts) if counts.used == 3));
    store.charge(&[ChargeGroup { subject: Subject::Demo, origin: None, count: 2 }]).await;
    store.close().await;
    let restarted = disk.restarted();
    assert_eq!(full_snapshot(&restarted).await, full_snapshot(&store).await);
    assert_eq!(key_record(&restarted).await.used, 3);
    assert_eq!(restarted.events(KEY).await.unwrap(), ["2 renamed", "1 created"]);
    assert_eq!(restarted.demo_used().await.unwrap(), 2);
    assert_eq!(restarted.overdue_ms().await.unwrap(), 3);
    assert_eq!(restarted.due_accounts(NOW - 4, 9).await.unwrap(), []);
    assert_eq!(restarted.expiring_keys(NOW + 4, 9).await.unwrap(), []);
    assert_eq!(restarted.expiring_keys(NOW + 5, 9).await.unwrap(), [KEY]);
    let later = Change {
        expiry_notices: [(KEY, Some(NOW + 6))].into(),
        notice_due: Some(None),
        ..change(&load(&restarted, ACCOUNT).await)
    };
    assert!(commit(&restarted, &later).await.unwrap());
    assert_eq!(
        (restarted.expiring_keys(NOW + 5, 9).await.unwrap(), restarted.overdue_ms().await.unwrap()),
        (vec![], 0)
    );
}

#[tokio::test]
async fn key_target_loads_its_account_and_other_records() {
    let store = created(&Disk::default()).await;
    let load = async |target, others: &[KeyId]| store.load(target, others, Instant::now()).await.unwrap();
    assert_eq!(load(Target::Key(OTHER_KEY), &[]).await, None);
    let loaded = load(Target::Key(KEY), &[OTHER_KEY]).await.unwrap();
    assert_eq!((loaded.id, loaded.rows.len(), loaded.now), (ACCOUNT, 2, NOW));
    assert_eq!(loaded.records, [(KEY, encode(&record()))].into());
    let other = load(Target::Account(OTHER_ACCOUNT), &[KEY]).await.unwrap();
    assert_eq!((other.version, other.rows.len(), other.records), (None, 0, loaded.records));
}

#[tokio::test]
async fn commit_after_another_one_is_a_conflict() {
    let store = created(&Disk::default()).await;
    let loaded = load(&store, ACCOUNT).await;
    let rename = Change { rows: [("a".to_owned(), Some(vec![1]))].into(), ..change(&loaded) };
    assert!(commit(&store, &rename).await.unwrap());
    let before = full_snapshot(&store).await;
    assert!(!commit(&store, &Change { notice_due: Some(None), ..rename }).await.unwrap());
    assert!(!commit(&store, &creation(&Loaded { version: None, ..loaded.clone() })).await.unwrap());
    assert_eq!(full_snapshot(&store).await, before);
    // An account that was deleted and created again is another one.
    assert!(commit(&store, &deletion(&load(&store, ACCOUNT).await)).await.unwrap());
    assert!(commit(&store, &creation(&load(&store, ACCOUNT).await)).await.unwrap());
    assert!(!commit(&store, &deletion(&loaded)).await.unwrap());
}

#[tokio::test]
async fn pause_between_load_and_commit_is_a_conflict() {
    let store = created(&Disk::default()).await;
    let loaded = load(&store, ACCOUNT).await;
    pause(&store).await.unwrap();
    let before = full_snapshot(&store).await;
    assert!(!commit(&store, &record_change(&loaded, |record| record.daily_limit = Some(5))).await.unwrap());
    assert_eq!(full_snapshot(&store).await, before);
    let loaded = load(&store, ACCOUNT).await;
    assert!(commit(&store, &record_change(&loaded, |record| record.daily_limit = Some(5))).await.unwrap());
    let record = key_record(&store).await;
    assert_eq!((record.state, record.daily_limit), (KeyState::Paused, Some(5)));
}

#[tokio::test]
async fn new_record_that_exists_is_a_conflict() {
    let store = created(&Disk::default()).await;
    let import = creation(&load(&store, OTHER_ACCOUNT).await);
    let before = full_snapshot(&store).await;
    assert!(!commit(&store, &import).await.unwrap());
    assert_eq!(full_snapshot(&store).await, before);
    assert_eq!(load(&store, OTHER_ACCOUNT).await.version, None);
}

#[tokio::test]
async fn second_change_of_an_account_or_key_in_a_transaction_is_a_conflict() {
    let disk = Disk::default();
    let store = disk.store();
    disk.block(true);
    let rows = [(row::ACCOUNT.to_owned(), Some(vec![]))].into();
    let unrelated = Change { rows, ..change(&load(&store, AccountId([3; 16])).await) };
    let [first, second] =
        [load(&store, ACCOUNT).await, load(&store, OTHER_ACCOUNT).await].map(|loaded| creation(&loaded));
    // These wait while the disk is blocked, and are then in one transaction.
    let queued = async {
        disk.wait_blocked().await;
        let unblock = async { disk.block(false) };
        tokio::join!(commit(&store, &first), commit(&store, &first), commit(&store, &second), unblock)
    };
    let (unrelated, (created, again, same_key, ())) = tokio::join!(commit(&store, &unrelated), queued);
    assert!(unrelated.unwrap() && created.unwrap());
    assert_eq!((again.unwrap(), same_key.unwrap()), (false, false));
    assert_eq!(store.accounts(None, 9).await.unwrap().ids, [ACCOUNT, AccountId([3; 16])]);
    assert_eq!(store.events(KEY).await.unwrap().len(), 2);
}

#[tokio::test]
async fn changed_record_has_a_new_head_and_origins_and_an_empty_window() {
    let disk = Disk::default();
    let store = created(&disk).await;
    charge(&store, KEY, 3).await;
    let change = record_change(&load(&store, ACCOUNT).await, |record| {
        (record.scope, record.suspended, record.origins) = (Scope::Ip, true, vec![7, 8]);
        record.window = Default::default();
    });
    assert!(commit(&store, &change).await.unwrap());
    let record = key_record(&store).await;
    assert_eq!((record.scope, record.suspended, &record.origins[..]), (Scope::Ip, true, &[7, 8][..]));
    assert_eq!((record.used, record.window.used(NOW)), (3, 0));
    assert_eq!(key_record(&disk.restarted()).await, record);
}

/// Commits a change of the record, and runs `meanwhile` while it is being written.
async fn commit_during(
    disk: &Disk,
    store: &EmbeddedStore,
    edit: impl FnOnce(&mut KeyRecord),
    meanwhile: impl AsyncFnOnce(),
) {
    let change = record_change(&load(store, ACCOUNT).await, edit);
    disk.block(true);
    let other = async {
        disk.wait_blocked().await;
        tokio::join!(meanwhile(), async { disk.block(false) })
    };
    let (committed, _) = tokio::join!(commit(store, &change), other);
    assert!(committed.unwrap());
    store.close().await;
    assert_eq!(
        full_snapshot(&disk.restarted()).await,
        full_snapshot(store).await,
        "the disk is as the memory"
    );
}

#[tokio::test]
async fn charge_during_a_commit_keeps_its_count() {
    let disk = Disk::default();
    let store = created(&disk).await;
    let edit = |record: &mut KeyRecord| record.daily_limit = Some(5);
    let charge = async || {
        charge(&store, KEY, 3).await;
    };
    commit_during(&disk, &store, edit, charge).await;
    let record = key_record(&store).await;
    assert_eq!((record.used, record.daily_limit, record.window.used(NOW)), (3, Some(5), 3));
}

#[tokio::test]
async fn pause_during_a_commit_stays_unless_the_commit_changes_the_state() {
    let set_limit: fn(&mut KeyRecord) = |record| record.daily_limit = Some(50);
    let deactivate: fn(&mut KeyRecord) = |record| {
        (record.state, record.state_since) = (KeyState::Inactive, NOW - 1);
    };
    let edits =
        [(set_limit, (KeyState::Paused, NOW, Some(50))), (deactivate, (KeyState::Inactive, NOW - 1, None))];
    for (edit, expected) in edits {
        let disk = Disk::default();
        let store = created(&disk).await;
        commit_during(&disk, &store, edit, async || pause(&store).await.unwrap()).await;
        let record = key_record(&store).await;
        assert_eq!((record.state, record.state_since, record.daily_limit), expected);
        assert_eq!((record.used, record.paused_at), (10, NOW));
    }
}

#[tokio::test]
async fn commit_that_is_not_written_by_its_deadline_is_unconfirmed() {
    let disk = Disk::default();
    let store = disk.store();
    disk.block(true);
    let creation = creation(&load(&store, ACCOUNT).await);
    let result = store.commit(&creation, true, Instant::now() + Duration::from_millis(50)).await;
    assert!(matches!(result.err(), Some(StoreError::Unconfirmed(_))));
    disk.block(false);
    eventually(WAIT_TIMEOUT, "the change is made", async || load(&store, ACCOUNT).await.version).await;
}

#[test]
fn empty_file_is_an_error_and_a_missing_one_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    let open = || EmbeddedStore::open(&path, LIMITS, Clock::default());
    std::fs::write(&path, "").unwrap();
    assert!(matches!(open().err(), Some(OpenError::Empty(empty)) if empty == path));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "it is left as it is");
    std::fs::remove_file(&path).unwrap();
    open().unwrap();
}

#[tokio::test]
async fn removed_or_replaced_file_makes_the_store_fail_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let [path, elsewhere] = ["store.redb", "elsewhere"].map(|name| dir.path().join(name));
    let store = EmbeddedStore::open(&path, LIMITS, Clock::default()).unwrap();
    let creation = creation(&load(&store, ACCOUNT).await);
    let fails = async || {
        let reason = eventually(WAIT_TIMEOUT, "the store fails", async || store.unavailable_reason()).await;
        assert!(reason.contains("was removed or replaced"), "{reason}");
        assert_eq!(charge(&store, KEY, 1).await, GroupOutcome::Unavailable);
    };
    std::fs::rename(&path, &elsewhere).unwrap();
    assert!(matches!(commit(&store, &creation).await, Err(StoreError::Unavailable(_))), "at once");
    fails().await;
    assert!(!path.exists(), "no new file is created");
    std::fs::copy(&elsewhere, &path).unwrap();
    let result = store.save().await;
    assert!(matches!(result, Err(StoreError::Unavailable(_))), "a copy is another file: {result:?}");
    fails().await;
    std::fs::rename(&elsewhere, &path).unwrap();
    wait_available(&store).await;
    assert!(commit(&store, &creation).await.unwrap());
}

#[tokio::test]
async fn panic_of_the_writer_thread_makes_the_store_fail_for_good() {
    let disk = Disk::default();
    let store = created(&disk).await;
    disk.0.panics.store(true, Ordering::SeqCst);
    let deletion = deletion(&load(&store, ACCOUNT).await);
    for _ in 0..2 {
        assert!(matches!(commit(&store, &deletion).await, Err(StoreError::Unavailable(_))));
        assert_eq!(charge(&store, KEY, 1).await, GroupOutcome::Unavailable);
    }
    store.failed().await;
    assert!(store.unavailable_reason().is_some());
}

#[tokio::test]
async fn unreadable_record_is_unavailable_returned_as_it_is_and_deletable() {
    let disk = Disk::default();
    let store = created(&disk).await;
    let unreadable = {
        let mut bytes = encode(&record());
        bytes[2] = 9;
        bytes
    };
    let add = |id, bytes: &[u8]| (id, RecordChange::New(bytes.to_vec()));
    let records = [add(OTHER_KEY, &unreadable), add(KeyId([3; 16]), b"short")].into();
    let rows = [(row::key(OTHER_KEY), Some(b"meta".to_vec()))].into();
    let change = Change { rows, records, ..change(&load(&store, ACCOUNT).await) };
    assert!(commit(&store, &change).await.unwrap());
    for store in [&store, &disk.restarted()] {
        assert_eq!(charge(store, OTHER_KEY, 1).await, GroupOutcome::Unavailable);
        let loaded = store.load(Target::Key(OTHER_KEY), &[], Instant::now()).await.unwrap().unwrap();
        assert_eq!((loaded.id, &loaded.records[&OTHER_KEY]), (ACCOUNT, &unreadable));
        let short = store.load(Target::Key(KeyId([3; 16])), &[], Instant::now()).await;
        assert!(matches!(short, Err(StoreError::Rejected(Rejection::UnreadableKey { .. }))));
        let delete = Change { records: [(OTHER_KEY, RecordChange::Deleted)].into(), ..self::change(&loaded) };
        assert!(commit(store, &delete).await.unwrap());
        assert_eq!(charge(store, OTHER_KEY, 1).await, GroupOutcome::Denied(Verdict::UnknownKey));
    }
}

#[tokio::test]
async fn accounts_are_listed_in_pages_by_id() {
    let store = Disk::default().store();
    for id in [3, 1, 2] {
        let rows = [(row::ACCOUNT.to_owned(), Some(vec![]))].into();
        let create = Change { rows, ..change(&load(&store, AccountId([id; 16])).await) };
        assert!(commit(&store, &create).await.unwrap());
    }
    let first = store.accounts(None, 2).await.unwrap();
    assert_eq!((first.ids, first.total), (vec![ACCOUNT, OTHER_ACCOUNT], 3));
    let last = store.accounts(first.next.as_deref(), 1).await.unwrap();
    assert_eq!((last.ids, last.next), (vec![AccountId([3; 16])], None));
    assert!(matches!(store.accounts(Some("x"), 1).await, Err(StoreError::InvalidCursor)));
}

#[tokio::test]
async fn announcement_is_on_disk_with_its_pause() {
    let disk = Disk::default();
    let store = created(&disk).await;
    pause(&store).await.unwrap();
    let paused = Announcement { at: NOW, key: KEY, kind: NoticeKind::KeyPaused, limit: 10, used: 0 };
    assert_eq!(store.announcements(10).await.unwrap(), (vec![paused], 0));
    drop(store);
    let store = disk.store();
    assert_eq!(store.announcements(10).await.unwrap(), (vec![paused], 0));
    let made = Change { made: Some(paused), ..change(&load(&store, ACCOUNT).await) };
    for _ in 0..2 {
        assert!(commit(&store, &made).await.unwrap(), "the second time, it is gone");
    }
    drop(store);
    assert_eq!(disk.store().announcements(10).await.unwrap(), (Vec::new(), 0));
}

/// One of every kind of write, in an order in which all succeed. `Ok(false)`: there is none with this number.
async fn run_step(store: &EmbeddedStore, step: usize) -> Result<bool> {
    let loaded = store.load(Target::Account(ACCOUNT), &[KEY], Instant::now()).await?.unwrap();
    let change = match step {
        0 => creation(&loaded),
        1 => record_change(&loaded, |record| (record.daily_limit, record.origins) = (Some(50), vec![7])),
        2 => record_change(&loaded, |record| record.origins.clear()),
        3 => return pause(store).await.map(|()| true),
        4 => record_change(&loaded, |record| {
            (record.state, record.window) = (KeyState::Active, Default::default());
        }),
        5 => Change { expiry_notices: [(KEY, None)].into(), notice_due: Some(None), ..change(&loaded) },
        6 => Change {
            rows: [(row::key(KEY), None)].into(),
            records: [(KEY, RecordChange::Deleted)].into(),
            ..change(&loaded)
        },
        7 => Change { exists: false, ..change(&loaded) },
        _ => return Ok(false),
    };
    assert!(commit(store, &change).await?);
    Ok(true)
}

/// Runs all steps with a fault that begins after `skip` writes. Returns whether the fault occurred.
async fn run_with_fault(skip: usize, count: usize) -> bool {
    let disk = Disk::default();
    let store = disk.store();
    disk.fail_writes(skip, count);
    let mut failed = false;
    for step in 0.. {
        let context = format!("step {step} with {count} failed writes after {skip}");
        let before = snapshot(&store).await;
        match run_step(&store, step).await {
            Ok(true) => continue,
            Ok(false) => break,
            Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{context}: {error}"),
        }
        failed = true;
        if step != 3 {
            assert_eq!(snapshot(&store).await, before, "{context}: the rejected change is visible");
        }
        if count == usize::MAX && step > 0 {
            assert_eq!(charge(&store, KEY, 1).await, GroupOutcome::Unavailable, "{context}");
        }
        let crashed = snapshot(&disk.restarted()).await;
        disk.fail_writes(0, 0);
        wait_available(&store).await;
        let recovered = full_snapshot(&store).await;
        assert_eq!(full_snapshot(&disk.restarted()).await, recovered, "{context}: after a restart");
        assert!(run_step(&store, step).await.unwrap(), "{context}");
        let after = snapshot(&store).await;
        assert!(
            [before, recovered.0, after].contains(&crashed),
            "{context}: half of a change survived a crash"
        );
    }
    assert_eq!(full_snapshot(&disk.restarted()).await, Default::default());
    failed
}

/// Every other run has one failed write, the others a disk that stays full.
#[tokio::test]
async fn store_recovers_from_a_fault_at_each_write() {
    for first in (0..).step_by(CONCURRENT_RUNS) {
        let count = |skip: usize| if skip.is_multiple_of(2) { 1 } else { usize::MAX };
        let runs = (first..first + CONCURRENT_RUNS).map(|skip| run_with_fault(skip, count(skip)));
        if !join_all(runs).await.contains(&true) {
            assert!(first > 8, "every step writes");
            return;
        }
    }
}
