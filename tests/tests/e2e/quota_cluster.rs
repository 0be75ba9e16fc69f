//! A Redis Cluster that loses a master or moves a slot: only the lost master's keys fail, and redirects are followed.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use quota_client::wire::{Charge, Outcome, Verdict};
use quota_client::{ClientError, QuotaClient};
use testkit::cluster::RedisCluster;
use testkit::loadgen::Load;
use testkit::quota::{Quota, TestKey};
use testkit::wait::{SLACK, eventually_ok};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time of a charge in quota-svc (`--store-timeout`).
const STORE_TIMEOUT: Duration = Duration::from_millis(250);

async fn outcomes(client: &QuotaClient, keys: &[TestKey; 3]) -> Vec<Outcome> {
    let batch: Vec<_> = keys.iter().flat_map(|key| key.charges(1)).collect();
    let started = Instant::now();
    let verdicts = client.charge(&batch).await.unwrap();
    assert!(started.elapsed() < STORE_TIMEOUT + SLACK, "{:?}", started.elapsed());
    verdicts.iter().map(|verdict| verdict.outcome()).collect()
}

/// The outcome that all charges of a call have in common, or all outcomes, or the error.
fn outcome_of_all(result: &Result<Vec<Verdict>, ClientError>) -> String {
    match result {
        Ok(verdicts) => {
            let mut outcomes: Vec<_> = verdicts.iter().map(|v| format!("{:?}", v.outcome())).collect();
            outcomes.dedup();
            outcomes.join(", ")
        }
        Err(error) => error.to_string(),
    }
}

async fn wait_all_allowed(client: &QuotaClient, keys: &[TestKey; 3]) {
    eventually_ok(WAIT_TIMEOUT, "charges on every master are allowed", async || {
        let outcomes = outcomes(client, keys).await;
        if outcomes == [Outcome::Allowed; 3] { Ok(()) } else { Err(format!("{outcomes:?}")) }
    })
    .await;
}

#[tokio::test]
async fn dead_cluster_master_fails_only_its_own_charges() {
    let mut cluster = RedisCluster::start(3, 0).await;
    for node in &cluster.nodes {
        // With the default, `yes`, the whole cluster stops when one master is down.
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let mut quota = Quota::start_with(&cluster, &["--burst-limit", "60000"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let (client, keys) = (quota.client(), quota.key_on_each_master(&cluster).await);
    assert_eq!(outcomes(&client, &keys).await, [Outcome::Allowed; 3]);
    cluster.nodes[2].freeze();
    for _ in 0..3 {
        let expected = [Outcome::Allowed, Outcome::Allowed, Outcome::Unavailable];
        assert_eq!(outcomes(&client, &keys).await, expected, "a frozen master does not affect the others");
    }
    cluster.nodes[2].thaw();
    wait_all_allowed(&client, &keys).await;
    cluster.nodes[1].stop();
    let expected = [Outcome::Allowed, Outcome::Unavailable, Outcome::Allowed];
    let dead = Instant::now();
    // The outcomes are the same before and after the other nodes detect the failure, which takes a second.
    while dead.elapsed() < Duration::from_secs(3) {
        assert_eq!(outcomes(&client, &keys).await, expected, "after {:?}", dead.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (status, body) = quota.readiness().await;
    assert_eq!(status, 503, "{body}");
    cluster.nodes[1].restart().await;
    let back = Instant::now();
    wait_all_allowed(&client, &keys).await;
    eprintln!(
        "allowed again {:?} after the master's restart (Redis waits 2 s before it rejoins)",
        back.elapsed()
    );
    quota.wait_ready(WAIT_TIMEOUT).await;
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

#[tokio::test]
async fn cluster_slot_migration_fails_no_charge() {
    let cluster = RedisCluster::start(3, 0).await;
    let limits = ["--burst-limit", "60000", "--daily-limit", "1000000", "--demo-limit", "1000000"];
    let flags = [&limits[..], &["--store-timeout", "5s"]].concat();
    let quota = Quota::start_with(&cluster, &flags).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let key = quota.new_key().await;
    // A batch also has a charge on each master, and one of the demo. So the key shares a call with another one, wherever it is.
    let others = quota.key_on_each_master(&cluster).await;
    let (client, mut batch) = (quota.client(), key.charges(2));
    batch.extend(others.iter().flat_map(|other| other.charges(1)));
    batch.push(Charge::Demo);
    let load = Load::start(4, move || {
        let (client, batch) = (client.clone(), batch.clone());
        async move { outcome_of_all(&client.charge(&batch).await) }
    });
    let wait_for_calls = async |when: &str| {
        let target = load.completed() + 50;
        let enough = async || if load.completed() >= target { Ok(()) } else { Err(load.completed()) };
        eventually_ok(WAIT_TIMEOUT, format!("50 more calls {when}"), enough).await;
    };
    let redis_key = key.record(&cluster.nodes).await;
    let from = cluster.master_of(&redis_key).await;
    let to = (from + 1) % 3;
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    let slot = source.cli(&["CLUSTER", "KEYSLOT", &redis_key]).await;
    let (source_id, target_id) =
        (source.cli(&["CLUSTER", "MYID"]).await, target.cli(&["CLUSTER", "MYID"]).await);
    wait_for_calls("before the migration").await;
    target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await;
    source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await;
    wait_for_calls("while the slot is migrating").await;
    let port = target.port().to_string();
    let shard = source.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]).await;
    let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    source.cli(&migrate.into_iter().chain(shard.lines()).collect::<Vec<_>>()).await;
    wait_for_calls("after the shard was moved and before the slot is moved (ASK)").await;
    assert_eq!(key.fetch(&quota.client()).await.id, key.key.id, "the key is readable during the migration");
    for node in [target, source, &cluster.nodes[(from + 2) % 3]] {
        node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).await;
    }
    wait_for_calls("after the slot was moved (MOVED)").await;
    let report = load.stop().await;
    eprintln!("{report}");
    assert_eq!(report.count("Allowed"), report.samples.len(), "{report}");
    assert_eq!(cluster.master_of(&redis_key).await, to);
    assert_eq!(
        key.fetch(&quota.client()).await.used_today as usize,
        2 * report.samples.len(),
        "each charge is counted once"
    );
    for other in &others {
        let counted = other.fetch(&quota.client()).await.used_today as usize;
        assert_eq!(counted, report.samples.len(), "each charge of the other keys is counted once");
    }
    assert!(!quota.service.logs().contains("panic"));
}
