//! Pauses are announced although the processes that announce and deliver them are killed, or the store fails over.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::time::Duration;

use e2e::notices::{Dashboard, LIMITS, Owners, WEBHOOKS, start_charging};
use quota_client::{QuotaClient, QuotaToken};
use testkit::cluster::RedisCluster;
use testkit::process::Service;
use testkit::quota::StoreChoice;
use testkit::redis::Redis;
use testkit::sentinel::SentinelSet;
use testkit::wait::{eventually, eventually_ok};
use testkit::webhook::{OK, SILENT};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// A claim of a killed process ends after a minute.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(90);
/// Failovers of the Sentinel set, and keys that are paused before each.
const FAILOVERS: usize = 5;
const KEYS: usize = 10;

/// Pauses a key and kills a process right after, as often as `kills` says: in turn the one that charges, and those that
/// deliver. The key stays in use until its owner is told. Every kill whose number can be divided by `interrupt` is made during
/// a delivery: the message has arrived, but its result is not reported.
async fn kill_during_pauses(store: StoreChoice, kills: usize, interrupt: usize) {
    let mut owners = Owners::new().await;
    let (mut charging, mut dashboard) = (start_charging(&store).await, Dashboard::start(&store).await);
    for kill in 1..=kills {
        owners.receiver.answer(if kill % interrupt == 0 { SILENT } else { OK });
        owners.add(&dashboard.quota.client(), 1).await;
        owners.charge_untold(&charging.client(), 2).await;
        if kill % interrupt == 0 {
            owners.wait_until_told(WAIT_TIMEOUT, &charging.client()).await;
        }
        if kill % 2 == 1 {
            charging.service.kill();
            charging = start_charging(&store).await;
        } else {
            dashboard.service.kill();
            dashboard.quota.service.kill();
            owners.receiver.answer(OK);
            dashboard = Dashboard::start(&store).await;
        }
        owners.wait_until_told(WAIT_TIMEOUT, &charging.client()).await;
    }
    println!("{}", owners.wait_for_duplicates(CLAIM_TIMEOUT, kills / interrupt).await);
}

#[tokio::test]
async fn pauses_are_announced_through_kills() {
    let redis = Redis::start().await;
    kill_during_pauses(StoreChoice::from(&redis), 4, 5).await;
}

#[tokio::test]
async fn slow_pauses_are_announced_through_forty_kills_on_redis_and_cluster() {
    let redis = Redis::start().await;
    kill_during_pauses(StoreChoice::from(&redis), 40, 4).await;
    let cluster = RedisCluster::start(3, 0).await;
    kill_during_pauses(StoreChoice::from(&cluster), 40, 4).await;
}

/// `ip-lookup` with the embedded store: one process that charges, announces and delivers.
async fn start_standalone(data: &Path) -> (Service, QuotaClient) {
    let any = "127.0.0.1:0";
    let ports = ["--listen", any, "--dashboard-listen", any, "--quota-listen", any, "--admin-listen", any];
    let other = ["--data-dir", data.to_str().unwrap(), "--log-level", "info"];
    let mut service = Service::spawn("ip-lookup", &[&ports[..], &other, &LIMITS, &WEBHOOKS].concat(), &[]);
    let url = format!("http://{}", service.listen_addr("quota").await);
    let token = eventually_ok(WAIT_TIMEOUT, "the token is written", async || {
        QuotaToken::load(&data.join("quota-token"))
    })
    .await;
    (service, QuotaClient::new(&url, Duration::from_secs(10)).unwrap().with_token(&token))
}

#[tokio::test]
async fn slow_pauses_are_announced_through_twenty_kills_of_ip_lookup() {
    let data = tempfile::tempdir().unwrap();
    let mut owners = Owners::new().await;
    let (mut service, mut client) = start_standalone(data.path()).await;
    for kill in 1..=20 {
        owners.receiver.answer(if kill % 4 == 0 { SILENT } else { OK });
        owners.add(&client, 1).await;
        owners.charge_untold(&client, 2).await;
        if kill % 4 == 0 {
            owners.wait_until_told(WAIT_TIMEOUT, &client).await;
        }
        service.kill();
        owners.receiver.answer(OK);
        (service, client) = start_standalone(data.path()).await;
        owners.wait_until_told(WAIT_TIMEOUT, &client).await;
    }
    println!("{}", owners.wait_for_duplicates(CLAIM_TIMEOUT, 5).await);
}

/// Waits until the replica has what the master has now.
async fn wait_replicated(set: &SentinelSet, master: usize) {
    let offset = async |server: &Redis, field| Some(server.info(field).await.ok()?.parse::<u64>().unwrap());
    let written = offset(&set.servers[master], "master_repl_offset").await.unwrap();
    eventually(WAIT_TIMEOUT, "the replica is in sync", async || {
        let read = offset(&set.servers[1 - master], "slave_repl_offset").await?;
        (read >= written).then_some(())
    })
    .await;
}

#[tokio::test]
async fn slow_pauses_are_announced_through_sentinel_failovers() {
    let mut set = SentinelSet::start().await;
    let store = StoreChoice::from(&set);
    let mut owners = Owners::new().await;
    let (charging, dashboard) = (start_charging(&store).await, Dashboard::start(&store).await);
    for _ in 0..FAILOVERS {
        let master = set.master().await;
        owners.add(&dashboard.quota.client(), KEYS).await;
        wait_replicated(&set, master).await;
        owners.charge_untold(&charging.client(), 2).await;
        set.servers[master].stop();
        set.wait_for_master(1 - master).await;
        owners.wait_until_told(WAIT_TIMEOUT, &charging.client()).await;
        set.servers[master].restart().await;
        eventually(WAIT_TIMEOUT, "the former master is a replica", async || {
            let link = set.servers[master].info("master_link_status").await;
            link.is_ok_and(|link| link == "up").then_some(())
        })
        .await;
    }
    println!("{}", owners.wait_for_duplicates(WAIT_TIMEOUT, 0).await);
}
