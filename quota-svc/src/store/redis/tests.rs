//! Loads, commits and confirmations on real servers.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use quota_api::{NoticeKind, Rejection, Scope, Verdict};
use testkit::cluster::RedisCluster;
use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::redis::{Redis, RedisOptions};
use testkit::wait::eventually;

use super::*;
use crate::domain::change::RecordChange;
use crate::domain::record::{HEAD_BYTES, KeyRecord, decode, encode, encode_head};
use crate::domain::verdict::Subject;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Noon of a day in 2024, ms.
const NOW: i64 = 20_000 * 86_400_000 + 43_200_000;
const ACCOUNT: AccountId = AccountId([5; 16]);
/// A key in the shard of the account.
const KEY: KeyId = KeyId([5 + 64; 16]);
const LIMITS: Limits = Limits { daily: 100, burst: 20, demo: 10 };

async fn store(url: &str) -> RedisStore {
    let args = StoreArgs { write_timeout: TIMEOUT, store_timeout: TIMEOUT, ..StoreArgs::default() };
    let clock = Clock::Manual(Arc::new(AtomicI64::new(NOW)));
    let store = RedisStore::start(url, &args, LIMITS, clock).unwrap();
    let connected = async || store.unavailable_reason().is_none().then_some(());
    eventually(TIMEOUT, "the store is connected", connected).await;
    store
}

fn deadline() -> Instant {
    Instant::now() + TIMEOUT
}

fn change(expected: Option<[u8; 8]>) -> Change {
    Change {
        account: ACCOUNT,
        expected,
        exists: true,
        rows: Default::default(),
        records: Default::default(),
        events: Vec::new(),
        expiry_notices: Default::default(),
        notice_due: None,
        made: None,
    }
}

fn record() -> KeyRecord {
    KeyRecord { account: ACCOUNT, ..KeyRecord::new(Scope::Full, None, NOW) }
}

/// A new account with a key.
fn creation() -> Change {
    let mut creation = change(None);
    creation.rows.insert("account".to_owned(), Some(b"\xff\0row".to_vec()));
    creation.rows.insert(format!("k:{KEY}"), Some(b"meta".to_vec()));
    creation.records.insert(KEY, RecordChange::New(encode(&record())));
    creation.events = vec![(KEY, "first".to_owned()), (KEY, "second".to_owned())];
    creation.expiry_notices.insert(KEY, Some(NOW + 1));
    creation.notice_due = Some(Some(NOW - 1));
    creation
}

/// Commits with a confirmation. Returns whether it was written.
async fn commit(store: &RedisStore, change: &Change) -> Result<bool> {
    match store.commit(change, true, deadline()).await? {
        Some(confirmation) => confirmation.await.map(|()| true),
        None => Ok(false),
    }
}

async fn load(store: &RedisStore) -> Loaded {
    store.load(Target::Account(ACCOUNT), &[], deadline()).await.unwrap().unwrap()
}

async fn charge(store: &RedisStore, count: u32, origin: Option<u128>) -> GroupOutcome {
    let group = ChargeGroup { subject: Subject::Key(KEY), origin, count };
    store.charge(&[group]).await.remove(0)
}

/// A change of the key to a new record, as it is loaded now.
async fn key_change(store: &RedisStore, edit: impl FnOnce(&mut KeyRecord), clears_window: bool) -> Change {
    let loaded = load(store).await;
    let mut record = decode(&loaded.records[&KEY]).unwrap();
    let (expected, old) = (encode_head(&record), record.origins.clone());
    edit(&mut record);
    let origins = (record.origins != old).then(|| record.origins.clone());
    let mut change = change(loaded.version);
    let head = encode_head(&record);
    change.records.insert(KEY, RecordChange::Changed { expected, head, clears_window, origins });
    change
}

async fn fulfills_the_contract(store: &RedisStore) {
    let missing = load(store).await;
    assert_eq!((missing.version, missing.now, missing.rows.len()), (None, NOW, 0));
    assert_eq!(store.load(Target::Key(KEY), &[], deadline()).await.unwrap(), None);

    let creation = creation();
    assert!(commit(store, &creation).await.unwrap());
    assert!(!commit(store, &creation).await.unwrap(), "it exists by now");
    let loaded = load(store).await;
    let rows = creation.rows.iter().map(|(name, row)| (name.clone(), row.clone().unwrap()));
    assert_eq!(loaded.rows, rows.collect());
    assert_eq!(decode(&loaded.records[&KEY]), Ok(record()));
    assert_eq!(store.load(Target::Key(KEY), &[], deadline()).await.unwrap().unwrap(), loaded);
    let other = AccountId([5 + 128; 16]);
    let for_other = store.load(Target::Account(other), &[KEY], deadline()).await.unwrap().unwrap();
    assert_eq!((for_other.version, for_other.records), (None, loaded.records.clone()));
    assert_eq!(store.events(KEY).await.unwrap(), ["second", "first"]);
    let page = store.accounts(None, 10).await.unwrap();
    assert_eq!((page.ids, page.total, page.next), (vec![ACCOUNT], 1, None));
    assert_eq!(store.due_accounts(NOW, 10).await.unwrap(), [ACCOUNT]);
    assert_eq!(store.due_accounts(NOW - 2, 10).await.unwrap(), []);
    assert_eq!(store.expiring_keys(NOW, 10).await.unwrap(), []);
    assert_eq!(store.expiring_keys(NOW + 1, 10).await.unwrap(), [KEY]);
    assert_eq!(store.overdue_ms().await.unwrap(), 1);

    heads_change_beside_charges(store).await;

    let mut deletion = change(load(store).await.version);
    deletion.exists = false;
    deletion.records.insert(KEY, RecordChange::Deleted);
    assert!(commit(store, &deletion).await.unwrap());
    assert_eq!(load(store).await, missing);
    assert_eq!(store.accounts(None, 10).await.unwrap().total, 0);
    assert_eq!(store.events(KEY).await.unwrap(), Vec::<String>::new());
    assert_eq!(store.due_accounts(NOW, 10).await.unwrap(), []);
    assert_eq!(store.expiring_keys(NOW + 1, 10).await.unwrap(), []);
}

async fn heads_change_beside_charges(store: &RedisStore) {
    let counted = |outcome: GroupOutcome| match outcome {
        GroupOutcome::Counted(counts) => (counts.used, counts.burst_exceeded),
        other => panic!("{other:?}"),
    };
    let (allowed, wrong) = (Some(u128::MAX - 7), Some(7));
    assert_eq!(counted(charge(store, 3, None).await), (3, false));
    let restriction = key_change(store, |record| record.origins = vec![1, u128::MAX - 7], false).await;
    assert_eq!(counted(charge(store, 9, None).await), (12, false), "charged after the load");
    assert!(commit(store, &restriction).await.unwrap());
    assert!(!commit(store, &restriction).await.unwrap(), "the version is another one");
    assert_eq!(charge(store, 1, wrong).await, GroupOutcome::Denied(Verdict::WrongOrigin));
    assert_eq!(charge(store, 1, None).await, GroupOutcome::Denied(Verdict::WrongOrigin));
    assert_eq!(counted(charge(store, 1, allowed).await), (13, false));
    let stored = decode(&load(store).await.records[&KEY]).unwrap();
    assert_eq!((stored.used, stored.window.len, stored.origins.len()), (13, 13, 2));
    assert!(stored.window.ring.iter().take(13).all(|at| *at == NOW as u32), "{:?}", stored.window);

    // A charge pauses the key between the load and the commit.
    let outdated = key_change(store, |record| record.daily_limit = Some(5), false).await;
    assert_eq!(counted(charge(store, 8, allowed).await), (20, true));
    assert!(!commit(store, &outdated).await.unwrap(), "the head is another one");
    assert!(matches!(charge(store, 1, allowed).await, GroupOutcome::Paused { .. }));
    let mut resumption = key_change(
        store,
        |record| {
            record.state = quota_api::KeyState::Active;
            record.origins = Vec::new();
        },
        true,
    )
    .await;
    resumption.rows = [("account".to_owned(), None), ("sessions".to_owned(), Some(b"s".to_vec()))].into();
    resumption.events = (0..150).map(|n| (KEY, n.to_string())).collect();
    assert!(commit(store, &resumption).await.unwrap());
    assert_eq!(counted(charge(store, 19, None).await), (39, false));
    let loaded = load(store).await;
    let stored = decode(&loaded.records[&KEY]).unwrap();
    assert_eq!((stored.used, stored.window.len, stored.origins.len()), (39, 19, 0));
    let names: Vec<_> = loaded.rows.keys().cloned().collect();
    assert_eq!(names, [format!("k:{KEY}"), "sessions".to_owned()]);
    let events = store.events(KEY).await.unwrap();
    assert_eq!((events.len(), &*events[0]), (100, "149"));
}

#[tokio::test]
async fn account_is_loaded_as_it_was_committed() {
    let redis = Redis::start().await;
    fulfills_the_contract(&store(&redis.url()).await).await;
    let left = redis.cli(&["KEYS", "*"]).await;
    assert!(
        left.ends_with(":n") && left.lines().count() == 1,
        "only the list of announcements is left: {left}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn account_in_a_cluster_is_loaded_as_it_was_committed() {
    let cluster = RedisCluster::start(3, 0).await;
    fulfills_the_contract(&store(&cluster.url()).await).await;
}

/// While some of an account's Redis keys have moved, it can't be loaded or changed, but nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn commit_during_a_migration_writes_all_or_nothing() {
    let cluster = RedisCluster::start(2, 0).await;
    let store = store(&cluster.url()).await;
    commit(&store, &creation()).await.unwrap();
    let account = store.redis_keys.account(ACCOUNT);
    let source = cluster.master_of(account.as_str()).await;
    let (slot, target) = (account.slot().to_string(), &cluster.nodes[1 - source]);
    let source = &cluster.nodes[source];
    let (source_id, target_id) =
        (source.cli(&["CLUSTER", "MYID"]).await, target.cli(&["CLUSTER", "MYID"]).await);
    target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await;
    source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await;
    let edit = async || key_change(&store, |record| record.daily_limit = Some(5), true).await;
    assert!(commit(&store, &edit().await).await.unwrap(), "all Redis keys are on the source");
    let (before, outdated) = (load(&store).await, edit().await);
    let soon = || Instant::now() + Duration::from_millis(300);
    let (outdated_too, mut refused) = (Change { expected: Some([0; 8]), ..creation() }, 0);
    let redis_keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
    for redis_key in redis_keys.lines() {
        let port = target.port().to_string();
        source.cli(&["MIGRATE", "127.0.0.1", &port, redis_key, "0", "5000"]).await;
        match store.load(Target::Account(ACCOUNT), &[], soon()).await {
            Ok(loaded) => assert_eq!(loaded.as_ref(), Some(&before)),
            Err(StoreError::Unavailable(_)) => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
        let committed = store.commit(&outdated_too, true, soon()).await;
        assert!(matches!(committed, Ok(None) | Err(StoreError::Unavailable(_) | StoreError::Unconfirmed(_))));
    }
    assert!(refused > 0, "the account and its record move one after the other");
    assert_eq!(load(&store).await, before, "all Redis keys are on the target");
    assert!(commit(&store, &outdated).await.unwrap());
    for node in [target, source] {
        node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).await;
    }
    assert!(!commit(&store, &outdated).await.unwrap());
    assert!(commit(&store, &edit().await).await.unwrap());
}

#[tokio::test]
async fn refused_commit_writes_nothing() {
    let redis = Redis::start().await;
    let store = store(&redis.url()).await;
    commit(&store, &creation()).await.unwrap();
    let before = load(&store).await;
    let mut change = key_change(&store, |record| record.daily_limit = Some(5), true).await;
    change.rows.insert("outbox".to_owned(), Some(b"o".to_vec()));
    change.notice_due = Some(Some(1));
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = commit(&store, &change).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let queue = store.redis_keys.of_shard(ACCOUNT.shard(), "q");
    redis.cli(&["SET", queue.as_str(), "damaged"]).await;
    let error = commit(&store, &change).await.unwrap_err();
    assert!(matches!(error, StoreError::InvalidData(_)), "{error:?}");
    assert_eq!(load(&store).await, before);
    redis.cli(&["DEL", queue.as_str()]).await;
    assert!(commit(&store, &change).await.unwrap());
}

#[tokio::test]
async fn data_of_a_wrong_type_is_unreadable_and_can_be_deleted() {
    let redis = Redis::start().await;
    let store = store(&redis.url()).await;
    commit(&store, &creation()).await.unwrap();
    let redis_keys = &store.redis_keys;
    let (account, record, events) =
        (redis_keys.account(ACCOUNT), redis_keys.record(KEY), redis_keys.events(KEY));
    let damage = async |redis_key: &redis_keys::RedisKey, command: &str| {
        redis.cli(&["DEL", redis_key.as_str()]).await;
        redis.cli(&[command, redis_key.as_str(), "damaged"]).await;
    };
    damage(&events, "SET").await;
    damage(&record, "LPUSH").await;
    let loaded = load(&store).await;
    assert_eq!(loaded.records[&KEY], Vec::<u8>::new());
    let by_key = store.load(Target::Key(KEY), &[], deadline()).await;
    assert!(
        matches!(&by_key, Err(StoreError::Rejected(Rejection::UnreadableKey { id, .. })) if *id == KEY.to_string()),
        "{by_key:?}"
    );
    let mut change = change(loaded.version);
    change.events.push((KEY, "lost".to_owned()));
    assert!(commit(&store, &change).await.unwrap(), "only the event is lost");
    redis.cli(&["DEL", record.as_str()]).await;
    assert_eq!(load(&store).await.records.len(), 0);

    damage(&account, "SET").await;
    let unreadable = store.load(Target::Account(ACCOUNT), &[], deadline()).await;
    assert!(
        matches!(&unreadable, Err(StoreError::Rejected(Rejection::UnreadableAccount { id })) if *id == ACCOUNT.to_string()),
        "{unreadable:?}"
    );
    assert!(matches!(commit(&store, &creation()).await, Err(StoreError::InvalidData(_))));
    let deletion = Change { exists: false, expected: None, ..change };
    assert!(commit(&store, &deletion).await.unwrap());
    assert_eq!(load(&store).await.version, None);
    assert_eq!(store.accounts(None, 10).await.unwrap().total, 0);
}

#[tokio::test]
async fn listing_has_every_account_once() {
    let redis = Redis::start().await;
    let store = store(&redis.url()).await;
    let ids: Vec<_> = (0..100).map(|n| AccountId([n; 16])).collect();
    for id in &ids {
        let creation = Change { account: *id, ..change(None) };
        store.commit(&creation, false, deadline()).await.unwrap().unwrap().await.unwrap();
    }
    let (mut listed, mut next) = (Vec::new(), None);
    for page in 0.. {
        let accounts = store.accounts(next.as_deref(), 7).await.unwrap();
        assert!(accounts.total == 100 && accounts.ids.len() < 40 && page < 20, "{accounts:?}");
        listed.extend(accounts.ids);
        next = accounts.next;
        if next.is_none() {
            break;
        }
    }
    listed.sort_unstable();
    assert_eq!(listed, ids);
    assert!(matches!(store.accounts(Some("64:0"), 7).await, Err(StoreError::InvalidCursor)));
}

#[tokio::test]
async fn damaged_announcements_and_times_are_removed() {
    let redis = Redis::start().await;
    let store = store(&redis.url()).await;
    let list = store.redis_keys.of_shard(ACCOUNT.shard(), "n");
    let announcement =
        |at| Announcement { at, key: KEY, kind: NoticeKind::KeyDailyLimit, limit: 20, used: 20 };
    redis.cli(&["RPUSH", list.as_str(), "0"]).await;
    for entry in [&announcement(1).to_string(), "damaged", &announcement(2).to_string()] {
        redis.cli(&["LPUSHX", list.as_str(), entry]).await;
    }
    for (letter, member) in [("q", "damaged"), ("x", &*ACCOUNT.to_string().repeat(2))] {
        let set = store.redis_keys.of_shard(ACCOUNT.shard(), letter);
        redis.cli(&["ZADD", set.as_str(), "-inf", member]).await;
    }
    assert_eq!(store.announcements(10).await.unwrap(), (vec![announcement(1), announcement(2)], 0));
    assert_eq!(store.announcements(1).await.unwrap().0, [announcement(1)]);
    assert_eq!(store.due_accounts(NOW, 10).await.unwrap(), []);
    assert_eq!(store.expiring_keys(NOW, 10).await.unwrap(), []);
    assert_eq!(store.overdue_ms().await.unwrap(), NOW - 1);
    redis.cli(&["DEL", list.as_str()]).await;
    assert_eq!(redis.cli(&["DBSIZE"]).await, "0");
}

/// A server, its replica, which is in sync, and a store that has made confirmed writes on both connections.
async fn replicated(options: RedisOptions) -> (Redis, Redis, FaultProxy, RedisStore) {
    let master = options.clone().start().await;
    let replica = options.directive(&format!("replicaof 127.0.0.1 {}", master.port())).start().await;
    let acknowledges =
        async || (master.try_cli(&["WAIT", "1", "100"]).await.as_deref() == Ok("1")).then_some(());
    eventually(TIMEOUT, "the replica acknowledges writes", acknowledges).await;
    let proxy = FaultProxy::start(master.addr());
    let store = store(&format!("redis://{}", proxy.addr())).await;
    assert!(commit(&store, &creation()).await.unwrap());
    assert!(commit(&store, &update(&store).await).await.unwrap());
    (master, replica, proxy, store)
}

/// A change of the account, as it is loaded now.
async fn update(store: &RedisStore) -> Change {
    let rows = [("account".to_owned(), Some(b"new".to_vec()))].into();
    Change { rows, ..change(load(store).await.version) }
}

/// The responses are delayed until the server has confirmed.
async fn confirms_in_one_round_trip(options: RedisOptions, command: &str) {
    let (master, _replica, proxy, store) = replicated(options).await;
    let update = update(&store).await;
    let waits = master.calls(command).await;
    proxy.set(Fault::Delay(TIMEOUT));
    let confirmed = async {
        let confirmed = async || (master.calls(command).await > waits).then_some(());
        eventually(TIMEOUT / 2, "the confirmation arrives before the reply to the commit", confirmed).await;
        proxy.set(Fault::None);
    };
    let (written, ()) = tokio::join!(commit(&store, &update), confirmed);
    assert!(written.unwrap());
    assert_eq!(master.calls(command).await, waits + 1);
}

#[tokio::test]
async fn commit_is_confirmed_on_a_replica_in_one_round_trip() {
    confirms_in_one_round_trip(Redis::options(), "wait").await;
}

#[tokio::test]
async fn commit_is_confirmed_on_disk_in_one_round_trip() {
    let Some(valkey) = Redis::valkey() else { return };
    confirms_in_one_round_trip(valkey, "waitaof").await;
}

/// The server has lost its scripts, so the confirmation arrives before the commit that is sent as text.
#[tokio::test]
async fn commit_that_is_sent_again_is_confirmed_again() {
    let (master, _replica, _proxy, store) = replicated(Redis::options()).await;
    let update = update(&store).await;
    let waits = master.calls("wait").await;
    master.cli(&["SCRIPT", "FLUSH"]).await;
    assert!(commit(&store, &update).await.unwrap());
    assert_eq!(master.calls("wait").await, waits + 2);
}

#[tokio::test]
async fn commit_after_the_loss_of_the_replica_needs_no_confirmation() {
    let (master, mut replica, _proxy, store) = replicated(Redis::options()).await;
    replica.stop();
    let detached = async || (master.info("connected_slaves").await.as_deref() == Ok("0")).then_some(());
    eventually(TIMEOUT, "the replica is gone", detached).await;
    for pipelined in [1, 1, 0, 0] {
        let (update, waits) = (update(&store).await, master.calls("wait").await);
        assert!(commit(&store, &update).await.unwrap());
        assert_eq!(master.calls("wait").await, waits + pipelined);
    }
}

#[tokio::test]
async fn commit_after_a_conflict_is_confirmed() {
    let (master, _replica, _proxy, store) = replicated(Redis::options()).await;
    for _ in 0..5 {
        let waits = master.calls("wait").await;
        assert!(!commit(&store, &creation()).await.unwrap());
        assert!(commit(&store, &update(&store).await).await.unwrap());
        assert!(master.calls("wait").await > waits);
    }
}

/// The list is deleted instead of moved: the script can't tell the difference.
#[tokio::test]
async fn announcement_is_made_later_if_its_list_has_moved() {
    let redis = Redis::start().await;
    let store = store(&redis.url()).await;
    assert!(commit(&store, &creation()).await.unwrap());
    let limit = key_change(&store, |record| record.daily_limit = Some(10), false).await;
    assert!(commit(&store, &limit).await.unwrap());
    let list = store.redis_keys.of_shard(ACCOUNT.shard(), "n");
    let announced = async || {
        let announced = store.announcements(10).await.unwrap().0.into_iter();
        announced.map(|each| (each.kind, each.limit, each.used)).collect::<Vec<_>>()
    };
    redis.cli(&["DEL", list.as_str()]).await;
    charge(&store, 8, None).await;
    assert_eq!(announced().await, []);
    redis.cli(&["RPUSH", list.as_str(), "0"]).await;
    charge(&store, 1, None).await;
    assert_eq!(announced().await, [(NoticeKind::KeyDailyLimit80, 10, 9)]);

    redis.cli(&["DEL", list.as_str()]).await;
    charge(&store, 12, None).await;
    redis.cli(&["RPUSH", list.as_str(), "0"]).await;
    for _ in 0..2 {
        let record = decode(&load(&store).await.records[&KEY]).unwrap();
        assert_eq!((record.state, record.unannounced, record.level), (quota_api::KeyState::Paused, false, 2));
        let expected = [(NoticeKind::KeyPaused, 20, 0), (NoticeKind::KeyDailyLimit, 10, 10)];
        assert_eq!(announced().await, expected);
    }
}

#[tokio::test]
async fn oldest_announcement_of_a_shard_goes_when_there_are_too_many() {
    let redis = Redis::start().await;
    let store = store(&redis.url()).await;
    assert!(commit(&store, &creation()).await.unwrap());
    let list = store.redis_keys.of_shard(ACCOUNT.shard(), "n");
    let nth = |at| Announcement { at, key: KEY, kind: NoticeKind::KeyPaused, limit: 20, used: 0 };
    let entries: Vec<String> = (0..1_000).map(|at| nth(at).to_string()).collect();
    let push = ["LPUSHX", list.as_str()].into_iter().chain(entries.iter().map(String::as_str));
    redis.cli(&push.collect::<Vec<_>>()).await;
    charge(&store, 21, None).await;
    assert_eq!(store.overdue_ms().await.unwrap(), NOW - 1);
    let (announcements, dropped) = store.announcements(2_000).await.unwrap();
    assert_eq!((announcements.len(), dropped, announcements[0]), (1_000, 1, nth(1)));
    assert_eq!(announcements[999], nth(NOW));
    assert_eq!(store.announcements(1).await.unwrap(), (vec![nth(1)], 0), "the count was taken");
}

/// The replica is frozen, so the confirmation of the first write ends only when it continues.
#[tokio::test]
async fn write_does_not_wait_for_the_confirmation_of_another() {
    let master = Redis::start().await;
    let replica = Redis::options().directive(&format!("replicaof 127.0.0.1 {}", master.port())).start().await;
    let attached = async || (master.info("connected_slaves").await.as_deref() == Ok("1")).then_some(());
    eventually(TIMEOUT, "the replica is attached", attached).await;
    let store = store(&master.url()).await;
    let synced = async || (replica.info("master_link_status").await.as_deref() == Ok("up")).then_some(());
    eventually(TIMEOUT, "the replica is in sync", synced).await;
    assert!(commit(&store, &creation()).await.unwrap());
    replica.freeze();
    let mut confirmations = Vec::new();
    for _ in 0..20 {
        let change = change(load(&store).await.version);
        let mut confirmation = store.commit(&change, true, deadline()).await.unwrap().unwrap();
        // Starts to wait before the next write.
        assert!((&mut confirmation).now_or_never().is_none(), "the replica is frozen");
        confirmations.push(confirmation);
    }
    let waits_before = master.calls("wait").await;
    replica.thaw();
    try_join_all(confirmations).await.unwrap();
    let waits = master.calls("wait").await - waits_before;
    assert!(waits <= 3, "{waits} confirmations of 20 writes");
}

#[tokio::test]
async fn account_in_valkey_is_confirmed_on_disk() {
    let Some(valkey) = Redis::valkey() else { return };
    let valkey = valkey.start().await;
    fulfills_the_contract(&store(&valkey.url()).await).await;
    assert!(valkey.calls("waitaof").await > 3);
}

#[tokio::test]
async fn write_without_confirmation_in_time_is_unconfirmed() {
    let (master, replica, _proxy, store) = replicated(Redis::options()).await;
    let update = update(&store).await;
    let soon = |ms| Instant::now() + Duration::from_millis(ms);
    replica.freeze();
    let confirmation = store.commit(&update, true, soon(500)).await.unwrap().unwrap();
    let unconfirmed = confirmation.await;
    assert!(matches!(unconfirmed, Err(StoreError::Unconfirmed(_))), "{unconfirmed:?}");
    let unsent = store.commit(&update, true, Instant::now()).await;
    assert!(matches!(unsent, Err(StoreError::Unavailable(_))));
    master.freeze();
    let sent = store.commit(&update, true, soon(100)).await;
    assert!(matches!(sent, Err(StoreError::Unconfirmed(_) | StoreError::Unavailable(_))));
    master.thaw();
    replica.thaw();
}

#[test]
fn head_has_what_the_check_compares() {
    assert_eq!(encode(&record())[..HEAD_BYTES], encode_head(&record()));
}

#[test]
fn cursor_is_parsed_and_malformed_text_is_not() {
    for (text, cursor) in [("0:0", (0, 0)), ("63:345", (63, 345)), ("5:18446744073709551615", (5, u64::MAX))]
    {
        assert_eq!(parse_cursor(text), Some(cursor));
    }
    for malformed in ["", "5", "64:0", "-1:0", "1:", "1:x", "1:2:3", "abc"] {
        assert_eq!(parse_cursor(malformed), None, "{malformed}");
    }
}
