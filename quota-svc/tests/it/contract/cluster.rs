//! Batches in a Cluster: one call per master, whatever happens to slots, records and masters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use quota_api::{Actor, KeyChange, Limits, NewKey, Outcome, Scope};
use quota_svc::accounts::Accounts;
use quota_svc::domain::account::Login;
use quota_svc::domain::id::{AccountId, KeyId};
use quota_svc::domain::time::Clock;
use quota_svc::domain::verdict::{ChargeGroup, Subject};
use quota_svc::store::redis::RedisStore;
use quota_svc::store::{Store, StoreArgs, StoreError};
use testkit::cluster::RedisCluster;
use testkit::redis::{Redis, RedisOptions};
use testkit::wait::{eventually, eventually_ok};

use super::harness::{Harness, draft};

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// So many that each master has some of them.
const KEYS: usize = 30;
const LIMITS: Limits = Limits { daily: 100_000, burst: 50_000, demo: 100_000 };

/// A Cluster, a store in it whose calls are known to be one per master, and keys.
struct Setup {
    cluster: RedisCluster,
    harness: Harness,
    keys: Vec<KeyId>,
}

impl Setup {
    async fn start(options: &RedisOptions, replicas: usize) -> Self {
        let cluster = RedisCluster::start_with(options, 3, replicas).await;
        let harness = Harness::redis_with(&cluster.url(), LIMITS).await;
        let mut keys = Vec::new();
        for _ in 0..KEYS {
            keys.push(harness.key().await);
        }
        let setup = Self { cluster, harness, keys };
        setup.wait_calls(&setup.harness, [1; 3]).await;
        setup
    }

    /// Charges each key once.
    async fn charge_all(&self, harness: &Harness) -> Vec<Outcome> {
        charge(harness, &self.keys.iter().map(|key| (*key, 1)).collect::<Vec<_>>()).await
    }

    async fn assert_used(&self, used: u32) {
        for key in &self.keys {
            let stored = self.harness.store.key(*key, None).await;
            let stored = stored.unwrap_or_else(|error| panic!("key {key}: {error}"));
            assert_eq!(stored.record.used, used);
        }
    }

    /// Waits until a batch takes this number of calls of each master. The keys of the batch are unknown, so nothing is counted.
    async fn wait_calls(&self, harness: &Harness, expected: [u32; 3]) {
        let unknown: Vec<_> = self.keys.iter().map(|key| (KeyId(key.0.map(|byte| !byte)), 1)).collect();
        eventually_ok(WAIT_TIMEOUT, format!("a batch takes {expected:?} calls"), async || {
            let (outcomes, calls) = self.count_calls(charge(harness, &unknown)).await;
            assert_eq!(outcomes, [Outcome::UnknownKey; KEYS]);
            if calls == expected { Ok(()) } else { Err(format!("{calls:?}")) }
        })
        .await;
    }

    /// Runs `charges` and returns its result and the number of charge calls of each master. Probes are not included: they are
    /// sent by text.
    async fn count_calls<T>(&self, charges: impl Future<Output = T>) -> (T, [u32; 3]) {
        let before = self.calls().await;
        let result = charges.await;
        let after = self.calls().await;
        (result, std::array::from_fn(|master| after[master] - before[master]))
    }

    async fn calls(&self) -> [u32; 3] {
        let [first, second, third, ..] = &*self.cluster.nodes else { panic!("three masters") };
        [first.calls("evalsha").await, second.calls("evalsha").await, third.calls("evalsha").await]
    }

    /// The Redis key of a stored record.
    async fn record(&self, key: KeyId) -> String {
        let ending = format!("{key}:k");
        let found = join_all(self.cluster.nodes.iter().map(|node| node.find(&ending))).await;
        found.into_iter().flatten().next().unwrap()
    }

    async fn master_of(&self, key: KeyId) -> usize {
        self.cluster.master_of(&self.record(key).await).await
    }

    async fn cli_on_master(&self, redis_key: &str, command: &[&str]) -> String {
        self.cluster.nodes[self.cluster.master_of(redis_key).await].cli(command).await
    }

    /// Moves the slot of a key, with its Redis keys, to a master.
    async fn move_slot(&self, key: KeyId, to: usize) {
        let (from, slot) = self.begin_migration(key, to).await;
        let (source, target) = (&self.cluster.nodes[from], &self.cluster.nodes[to]);
        let port = target.port().to_string();
        let redis_keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]).await;
        let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        source.cli(&migrate.into_iter().chain(redis_keys.lines()).collect::<Vec<_>>()).await;
        let id = target.cli(&["CLUSTER", "MYID"]).await;
        for node in [target, source, &self.cluster.nodes[3 - from - to]] {
            node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]).await;
        }
    }

    /// Returns the master that has the slot of the key, and the slot.
    async fn begin_migration(&self, key: KeyId, to: usize) -> (usize, String) {
        let from = self.master_of(key).await;
        let (source, target) = (&self.cluster.nodes[from], &self.cluster.nodes[to]);
        let slot = source.cli(&["CLUSTER", "KEYSLOT", &self.record(key).await]).await;
        let (source_id, target_id) =
            (source.cli(&["CLUSTER", "MYID"]).await, target.cli(&["CLUSTER", "MYID"]).await);
        target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await;
        source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await;
        (from, slot)
    }
}

async fn charge(harness: &Harness, counts: &[(KeyId, u32)]) -> Vec<Outcome> {
    let group = |&(key, count)| ChargeGroup { subject: Subject::Key(key), origin: None, count };
    let groups: Vec<_> = counts.iter().map(group).collect();
    let outcomes = harness.store.charge(&groups).await;
    let last = |(outcome, group): (&quota_svc::domain::verdict::GroupOutcome, &ChargeGroup)| {
        outcome.verdict(group.count - 1, &harness.limits).outcome()
    };
    outcomes.iter().zip(&groups).map(last).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_makes_one_call_per_master() {
    let setup = Setup::start(&Redis::options(), 0).await;
    let (outcomes, calls) = setup.count_calls(setup.charge_all(&setup.harness)).await;
    assert_eq!((outcomes, calls), (vec![Outcome::Allowed; KEYS], [1; 3]));
    // A probe of the next store reads two of these Redis keys on each master, and fails because of their type.
    let probed: Vec<_> =
        (0..100).map(|n| format!("{}2:{{{n:x}}}:k", setup.harness.prefix.as_ref().unwrap())).collect();
    for redis_key in &probed {
        setup.cli_on_master(redis_key, &["LPUSH", redis_key, "no string"]).await;
    }
    let other = setup.harness.other_replica(&setup.cluster.url(), LIMITS).await;
    let mut slots: [std::collections::BTreeSet<String>; 3] = Default::default();
    for key in &setup.keys {
        let redis_key = setup.record(*key).await;
        let slot = setup.cluster.nodes[0].cli(&["CLUSTER", "KEYSLOT", &redis_key]).await;
        slots[setup.cluster.master_of(&redis_key).await].insert(slot);
    }
    let (outcomes, calls) = setup.count_calls(setup.charge_all(&other)).await;
    let one_per_slot = slots.map(|slots| slots.len() as u32);
    assert_eq!((outcomes, calls), (vec![Outcome::Allowed; KEYS], one_per_slot));
    for redis_key in &probed {
        setup.cli_on_master(redis_key, &["DEL", redis_key]).await;
    }
    setup.wait_calls(&other, [1; 3]).await;
    assert_eq!(setup.charge_all(&other).await, [Outcome::Allowed; KEYS]);
    setup.assert_used(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn record_of_another_type_fails_its_own_charges_only() {
    let setup = Setup::start(&Redis::options(), 0).await;
    let damaged = setup.harness.key().await;
    let record = setup.record(damaged).await;
    setup.cli_on_master(&record, &["DEL", &record]).await;
    setup.cli_on_master(&record, &["LPUSH", &record, "no string"]).await;
    let mut counts: Vec<_> = setup.keys.iter().map(|key| (*key, 1)).collect();
    counts.insert(0, (damaged, 1));
    let (outcomes, calls) = setup.count_calls(charge(&setup.harness, &counts)).await;
    assert_eq!(outcomes[0], Outcome::Unavailable);
    assert_eq!((&outcomes[1..], calls), (&[Outcome::Allowed; KEYS][..], [1; 3]), "nothing is sent again");
    setup.assert_used(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_slot_map_resends_without_double_count() {
    let setup = Setup::start(&Redis::options(), 0).await;
    let (mut batches, mut resent) = (0, 0);
    for key in &setup.keys {
        // The last master has the highest epoch. Moved to another, a slot could fall back to its old master by gossip.
        if setup.master_of(*key).await == 2 {
            continue;
        }
        setup.move_slot(*key, 2).await;
        let (outcomes, calls) = setup.count_calls(setup.charge_all(&setup.harness)).await;
        assert_eq!(outcomes, [Outcome::Allowed; KEYS], "{calls:?}");
        // The call for all other keys, and that for the moved one, unless the slot map has just been refreshed.
        resent += calls[2] - 1;
        batches += 1;
        for _ in 0..10 {
            assert_eq!(setup.charge_all(&setup.harness).await, [Outcome::Allowed; KEYS]);
            batches += 1;
        }
    }
    assert!(resent > 0, "no charge was sent again");
    setup.assert_used(batches).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_key_of_a_migrating_slot_is_denied() {
    let setup = Setup::start(&Redis::options(), 0).await;
    let known = setup.keys[0];
    let unknown = KeyId(std::array::from_fn(|at| if at == 0 { known.0[0] } else { !known.0[at] }));
    let to = (setup.master_of(known).await + 1) % 3;
    setup.begin_migration(known, to).await;
    let mut counts: Vec<_> = setup.keys.iter().map(|key| (*key, 1)).collect();
    counts.insert(KEYS / 2, (unknown, 1));
    let mut outcomes = charge(&setup.harness, &counts).await;
    assert_eq!(outcomes.remove(KEYS / 2), Outcome::UnknownKey);
    assert_eq!(outcomes, [Outcome::Allowed; KEYS]);
    setup.assert_used(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn charges_sent_to_a_demoted_master_are_counted_once() {
    let setup = Setup::start(&Redis::options(), 1).await;
    let (done, replica) = (AtomicBool::new(false), &setup.cluster.nodes[3]);
    let load = async {
        let mut batches = 0;
        while !done.load(Ordering::SeqCst) {
            assert_eq!(setup.charge_all(&setup.harness).await, [Outcome::Allowed; KEYS], "{batches}");
            batches += 1;
        }
        batches
    };
    let failover = async {
        replica.cli(&["CLUSTER", "FAILOVER"]).await;
        eventually(WAIT_TIMEOUT, "the replica is promoted", async || {
            (replica.info("role").await.unwrap() == "master").then_some(())
        })
        .await;
        let target = replica.calls("evalsha").await + 20;
        eventually(WAIT_TIMEOUT, "20 more batches", async || {
            (replica.calls("evalsha").await >= target).then_some(())
        })
        .await;
        done.store(true, Ordering::SeqCst);
    };
    let (batches, ()) = tokio::join!(load, failover);
    setup.assert_used(batches).await;
}

/// Valkey 9.0 loads an append-only file of such batches into wrong slots (valkey-io/valkey#2995).
#[tokio::test(flavor = "multi_thread")]
async fn batches_are_read_from_the_append_only_file() {
    for options in [Some(Redis::options()), Redis::valkey()] {
        let Some(options) = options else { return };
        let mut setup = Setup::start(&options, 0).await;
        for _ in 0..20 {
            assert_eq!(setup.charge_all(&setup.harness).await, [Outcome::Allowed; KEYS]);
        }
        let mut sizes = Vec::new();
        for node in &mut setup.cluster.nodes {
            let size = node.cli(&["DBSIZE"]).await;
            node.restart().await;
            sizes.push((size, node.cli(&["DBSIZE"]).await));
        }
        assert!(sizes.iter().all(|(before, after)| before == after), "{sizes:?}");
        setup.cluster.wait_healthy().await;
        setup.harness = setup.harness.other_replica(&setup.cluster.url(), LIMITS).await;
        setup.assert_used(20).await;
    }
}

/// A key of the shard that migrates, and what is known of its commits.
struct Changed {
    key: KeyId,
    /// When it expires after the last commit that was applied, and after each later one that may have been.
    expiries: Vec<u32>,
    applied: usize,
    refused: usize,
    unconfirmed: usize,
}

/// Changes the account, the record, the events and the time of a notice, all in one commit.
async fn change_expiry(accounts: &Accounts, changed: &mut Changed, expires_at: u32) {
    let change = format!(r#"{{"name": "expires {expires_at}", "expires_at": {expires_at}}}"#);
    let change = KeyChange::Settings(serde_json::from_str(&change).unwrap());
    match accounts.change_key(changed.key, None, &change, &Actor::Owner).await {
        Ok(_) => {
            changed.expiries = vec![expires_at];
            changed.applied += 1;
        }
        Err(StoreError::Unavailable(_)) => changed.refused += 1,
        Err(StoreError::Unconfirmed(_)) => {
            changed.expiries.push(expires_at);
            changed.unconfirmed += 1;
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// Creates accounts with 10 keys each, all in one shard.
async fn create_shard(accounts: &Accounts, count: usize) -> Vec<KeyId> {
    let logins = (0..).map(|n| Login::parse(&format!("user-{n}")).unwrap());
    let shard = AccountId::of("user-0").shard();
    let logins = logins.filter(|login| login.account_id().shard() == shard).take(count);
    let create = async |login: Login| {
        accounts.create_account(&login, None).await.unwrap();
        let mut keys = Vec::new();
        for _ in 0..10 {
            let key = login.account_id().generate_key().unwrap();
            let draft = draft(&key, NewKey::new("a key", Scope::Full));
            keys.push(accounts.create_key(login.account_id(), draft).await.unwrap().meta.id());
        }
        keys
    };
    let keys: Vec<_> = stream::iter(logins).map(create).buffer_unordered(20).collect().await;
    keys.concat()
}

/// 1,000 API keys move to another master, ten Redis keys at a time.
#[tokio::test(flavor = "multi_thread")]
async fn shard_migrates_without_a_lost_charge_or_half_a_commit() {
    let cluster = RedisCluster::start(2, 0).await;
    let args = StoreArgs { store_timeout: WAIT_TIMEOUT, write_timeout: WAIT_TIMEOUT, ..StoreArgs::default() };
    let store = Arc::new(RedisStore::start(&cluster.url(), &args, LIMITS, Clock::Store).unwrap());
    let connected = async || store.unavailable_reason().is_none().then_some(());
    eventually(WAIT_TIMEOUT, "the store is connected", connected).await;
    let accounts = Accounts::new(store.clone(), LIMITS, WAIT_TIMEOUT);
    let keys = create_shard(&accounts, 100).await;
    assert_eq!(keys.len(), 1_000);

    let ending = format!("{}:k", keys[0]);
    let found = join_all(cluster.nodes.iter().map(|node| node.find(&ending))).await;
    let from = found.iter().position(Option::is_some).unwrap();
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[1 - from]);
    let slot = source.cli(&["CLUSTER", "KEYSLOT", found[from].as_ref().unwrap()]).await;
    let ids = [source.cli(&["CLUSTER", "MYID"]).await, target.cli(&["CLUSTER", "MYID"]).await];
    let charge_part = async |keys: &[KeyId]| {
        let group = |key: &KeyId| ChargeGroup { subject: Subject::Key(*key), origin: None, count: 1 };
        let outcomes = accounts.charge(&keys.iter().map(group).collect::<Vec<_>>()).await.into_iter();
        let outcomes: Vec<_> = outcomes.map(|outcome| outcome.verdict(0, &LIMITS).outcome()).collect();
        assert_eq!(outcomes, [Outcome::Allowed; 50]);
    };
    let (moved, parts) = (AtomicBool::new(false), keys.chunks(50).collect::<Vec<_>>());
    let migration = async {
        target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]).await;
        source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]).await;
        let (port, mut charges) = (target.port().to_string(), vec![0; parts.len()]);
        for part in (0..parts.len()).cycle() {
            let redis_keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).await;
            if redis_keys.is_empty() {
                break;
            }
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            let migrate: Vec<_> = migrate.into_iter().chain(redis_keys.lines()).collect();
            tokio::join!(source.cli(&migrate), charge_part(parts[part]));
            charges[part] += 1;
        }
        for node in [target, source] {
            node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]).await;
        }
        moved.store(true, Ordering::SeqCst);
        charges
    };
    // One key of each account. A commit that can't be made soon is refused.
    let hasty = Accounts::new(store.clone(), LIMITS, Duration::from_millis(200));
    let of = |key: &KeyId| Changed { key: *key, expiries: vec![], applied: 0, refused: 0, unconfirmed: 0 };
    let mut changed: Vec<Changed> = keys.iter().step_by(10).map(of).collect();
    let commits = async {
        let mut expires_at = 4_000_000_000;
        while !moved.load(Ordering::SeqCst) {
            for some in changed.chunks_mut(20) {
                expires_at += 1;
                join_all(some.iter_mut().map(|changed| change_expiry(&hasty, changed, expires_at))).await;
            }
        }
    };
    let (charges, ()) = tokio::join!(migration, commits);
    assert!(charges.iter().sum::<u32>() > 200, "{charges:?}");
    let total = |count: fn(&Changed) -> usize| changed.iter().map(count).sum::<usize>();
    let (applied, refused) = (total(|changed| changed.applied), total(|changed| changed.refused));
    eprintln!("{applied} commits applied, {refused} refused");
    assert!(applied > 0 && refused > 0, "{applied} {refused}");

    join_all(changed.iter_mut().map(|changed| check_commits(&accounts, changed))).await;
    for (part, charges) in parts.iter().zip(charges) {
        for key in join_all(part.iter().map(|key| accounts.key(*key, None))).await {
            assert_eq!(key.unwrap().record.used, charges, "each charge is counted once");
        }
    }
}

/// Checks that the commits have changed the key as a whole or not at all, and that it can be changed again.
async fn check_commits(accounts: &Accounts, changed: &mut Changed) {
    let key = accounts.key(changed.key, None).await.unwrap();
    let expiry = key.record.expires_at;
    let name = expiry.map_or_else(|| "a key".to_owned(), |expiry| format!("expires {expiry}"));
    assert_eq!(key.meta.settings.name, name);
    let is_known = expiry.map_or(changed.applied == 0, |expiry| changed.expiries.contains(&expiry));
    assert!(is_known, "{expiry:?} {:?}", changed.expiries);
    let events_before = accounts.events(changed.key, None).await.unwrap().len() - 1;
    let written = changed.applied..=changed.applied + changed.unconfirmed;
    change_expiry(accounts, changed, 4_100_000_000).await;
    assert_eq!(changed.expiries, [4_100_000_000], "the whole shard is on the target");
    let events_of_one = accounts.events(changed.key, None).await.unwrap().len() - 1 - events_before;
    assert!(
        written.contains(&(events_before / events_of_one)),
        "{events_before} {events_of_one} {written:?}"
    );
}
