//! A Redis Cluster that loses a shard or moves a slot: only what lives there is touched, redirections are followed.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use e2e::cluster::RedisCluster;
use e2e::loadgen::Load;
use e2e::quota::{Quota, StoreChoice, TestKey, outcome_of};
use e2e::wait::eventually_ok;
use quota_client::QuotaClient;
use quota_client::wire::{ChargeRequest, Outcome};

const PATIENCE: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_millis(250);
const SLACK: Duration = Duration::from_millis(350);

/// A key on each of the three masters, in the masters' order.
async fn a_key_on_each(cluster: &RedisCluster, quota: &Quota, prefix: &str) -> [TestKey; 3] {
    let mut keys = [const { None }; 3];
    while keys.iter().any(Option::is_none) {
        let key = quota.new_key().await;
        let master = cluster.master_of(&key.redis_name(prefix, "k")).await;
        keys[master] = Some(key);
    }
    keys.map(Option::unwrap)
}

async fn outcomes(client: &QuotaClient, keys: &[TestKey; 3]) -> Vec<Outcome> {
    let batch = ChargeRequest { charges: keys.iter().flat_map(|key| key.charges(1).charges).collect() };
    let asked = Instant::now();
    let verdicts = client.charge(&batch).await.unwrap().verdicts;
    assert!(asked.elapsed() < DEADLINE + SLACK, "{:?}", asked.elapsed());
    verdicts.iter().map(|verdict| verdict.outcome).collect()
}

async fn all_allowed(client: &QuotaClient, keys: &[TestKey; 3]) {
    eventually_ok(PATIENCE, "every shard is served", async || {
        let outcomes = outcomes(client, keys).await;
        if outcomes == [Outcome::Allowed; 3] { Ok(()) } else { Err(format!("{outcomes:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_dead_shard_of_a_cluster_makes_only_its_own_charges_unavailable() {
    let mut cluster = RedisCluster::start(3, 0).await;
    for node in &cluster.nodes {
        // What operations.md asks for: otherwise the whole cluster stops with one shard.
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let store = StoreChoice::from(&cluster);
    let mut quota = Quota::start_with(store.clone(), &["--burst-limit", "60000"]).await;
    quota.wait_ready(PATIENCE).await;
    let (client, keys) = (quota.client(), a_key_on_each(&cluster, &quota, store.prefix()).await);
    assert_eq!(outcomes(&client, &keys).await, [Outcome::Allowed; 3]);
    cluster.nodes[2].freeze();
    for _ in 0..3 {
        let frozen = [Outcome::Allowed, Outcome::Allowed, Outcome::Unavailable];
        assert_eq!(outcomes(&client, &keys).await, frozen, "a shard that hangs holds nobody else up");
    }
    cluster.nodes[2].thaw();
    all_allowed(&client, &keys).await;
    cluster.nodes[1].stop();
    let expected = [Outcome::Allowed, Outcome::Unavailable, Outcome::Allowed];
    let dead = Instant::now();
    // Before the other nodes notice (a second) and after: the same.
    while dead.elapsed() < Duration::from_secs(3) {
        assert_eq!(outcomes(&client, &keys).await, expected, "after {:?}", dead.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (status, why) = quota.readiness().await;
    assert_eq!(status, 503, "{why}");
    cluster.nodes[1].restart().await;
    let back = Instant::now();
    all_allowed(&client, &keys).await;
    eprintln!("served again {:?} after the shard was back (Redis lets it rest for 2 s)", back.elapsed());
    quota.wait_ready(PATIENCE).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn a_slot_of_a_cluster_that_moves_under_load_is_noticed_by_nobody() {
    let cluster = RedisCluster::start(3, 0).await;
    let store = StoreChoice::from(&cluster);
    let flags = ["--burst-limit", "60000", "--daily-limit", "1000000", "--store-timeout", "5s"];
    let quota = Quota::start_with(store.clone(), &flags).await;
    quota.wait_ready(PATIENCE).await;
    let key = quota.new_key().await;
    let (client, batch) = (quota.client(), key.charges(2));
    let load = Load::start(4, move || {
        let (client, batch) = (client.clone(), batch.clone());
        async move { outcome_of(&client.charge(&batch).await) }
    });
    let more = async |what: &str| {
        let wanted = load.completed() + 50;
        let more = async || if load.completed() >= wanted { Ok(()) } else { Err(load.completed()) };
        eventually_ok(PATIENCE, format!("calls {what}"), more).await;
    };
    let name = key.redis_name(store.prefix(), "k");
    let from = cluster.master_of(&name).await;
    let to = (from + 1) % 3;
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    let slot = source.cli(&["CLUSTER", "KEYSLOT", &name]).await;
    let (source_id, target_id) =
        (source.cli(&["CLUSTER", "MYID"]).await, target.cli(&["CLUSTER", "MYID"]).await);
    more("before").await;
    target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await;
    source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await;
    more("while the slot is announced to move").await;
    let port = target.port().to_string();
    let names = ["k", "m", "e"].map(|letter| key.redis_name(store.prefix(), letter));
    let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS", &names[0], &names[1], &names[2]];
    source.cli(&migrate).await;
    more("while the key is there and the slot is not (ASK)").await;
    assert_eq!(key.now(&quota.client()).await.id, key.key.id, "the key can be read meanwhile");
    for node in [target, source, &cluster.nodes[(from + 2) % 3]] {
        node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).await;
    }
    more("after (MOVED)").await;
    let report = load.stop().await;
    eprintln!("{report}");
    assert_eq!(report.count("Allowed"), report.samples.len(), "{report}");
    assert_eq!(cluster.master_of(&name).await, to);
    assert_eq!(
        key.now(&quota.client()).await.used_today as usize,
        2 * report.samples.len(),
        "each counted once"
    );
    assert!(!quota.service.logs().contains("panic"));
}
