//! Pauses are announced although the processes that announce and deliver them are killed.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use quota_client::wire::{Contact, NewAccount, NewKey, Scope, Webhook};
use testkit::cluster::RedisCluster;
use testkit::process::Service;
use testkit::quota::{Quota, StoreChoice};
use testkit::redis::Redis;
use testkit::wait::eventually;
use testkit::webhook::{OK, Receiver};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const LIMITS: [&str; 2] = ["--burst-limit", "1"];

/// Starts the quota-svc of a lookup-svc, which charges.
async fn start_charging(store: &StoreChoice) -> Quota {
    let quota = Quota::start_with(store.clone(), &LIMITS).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    quota
}

/// A dashboard-api and its quota-svc.
struct Dashboard {
    quota: Quota,
    service: Service,
}

impl Dashboard {
    async fn start(store: &StoreChoice, session_key: &str) -> Self {
        let quota = start_charging(store).await;
        let open = ["--webhook-allow-http", "--webhook-allow-network", "127.0.0.0/8", "--insecure-cookies"];
        let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        let other = ["--quota-url", quota.url(), "--session-key-file", session_key];
        let mut service = Service::spawn("dashboard-api", &[&ports[..], &other, &open].concat(), &[]);
        service.listen_addr("dashboard").await;
        Self { quota, service }
    }
}

/// Pauses a key and kills a process right after, as often as `kills` says: in turn the one that charges, and those that
/// deliver. The key stays in use. Returns the number of messages per key.
async fn kill_during_pauses(store: StoreChoice, kills: usize) -> BTreeMap<String, usize> {
    let dir = tempfile::tempdir().unwrap();
    let session_key = dir.path().join("session.key");
    std::fs::write(&session_key, [7; 32]).unwrap();
    let session_key = session_key.to_str().unwrap();
    let receiver = Receiver::start(OK).await;
    let (mut charging, mut dashboard) =
        (start_charging(&store).await, Dashboard::start(&store, session_key).await);
    let mut expected = Vec::new();
    for round in 0..kills {
        let client = dashboard.quota.client();
        let new = NewAccount { login: format!("owner-{round}"), credential: None };
        let account = client.create_account(&new).await.unwrap();
        let webhook = Webhook { url: receiver.url(), secret: "whsec_eA==".to_owned(), enabled: true };
        client.set_contact(&account.id, &Contact { webhook: Some(webhook), mail: None }).await.unwrap();
        let key = client.create_key(&account.id, &NewKey::new("in use", Scope::Ip)).await.unwrap();
        let digest = api_key::ApiKey::parse(&key.secret).unwrap().digest().to_hex();
        let charge = quota_client::wire::Charge { key_sha256: Some(digest), demo: None };
        let batch = quota_client::wire::ChargeRequest { charges: vec![charge; 2] };
        charging.client().charge(&batch).await.unwrap();
        if round % 2 == 0 {
            charging.service.kill();
            charging = start_charging(&store).await;
        } else {
            dashboard.service.kill();
            dashboard.quota.service.kill();
            dashboard = Dashboard::start(&store, session_key).await;
        }
        expected.push(key.key.id.clone());
        eventually(WAIT_TIMEOUT, "the owner is told", async || {
            // Fails while the store is busy; the next one succeeds.
            let _ = charging.client().charge(&batch).await;
            let told = receiver.received().iter().any(|message| message.body.contains(&key.key.id));
            told.then_some(())
        })
        .await;
    }
    let messages = receiver.received();
    let count = |id: &String| messages.iter().filter(|message| message.body.contains(id.as_str())).count();
    expected.iter().map(|id| (id.clone(), count(id))).collect()
}

fn print_duplicates(counts: &BTreeMap<String, usize>) {
    let total: usize = counts.values().sum();
    println!("{} pauses, {} duplicates", counts.len(), total - counts.len());
}

#[tokio::test]
async fn pauses_are_announced_through_kills() {
    let redis = Redis::start().await;
    print_duplicates(&kill_during_pauses(StoreChoice::from(&redis), 4).await);
}

#[tokio::test]
async fn slow_pauses_are_announced_through_forty_kills_on_redis_and_cluster() {
    let redis = Redis::start().await;
    print_duplicates(&kill_during_pauses(StoreChoice::from(&redis), 40).await);
    let cluster = RedisCluster::start(3, 0).await;
    print_duplicates(&kill_during_pauses(StoreChoice::from(&cluster), 40).await);
}
