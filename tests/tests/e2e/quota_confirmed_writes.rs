//! Changes to accounts and keys are confirmed before the response: on a replica with WAIT, and on disk with WAITAOF
//! if the server supports it. Valkey does; the Redis of older distributions does not.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use quota_client::wire::{
    Contact, NewAccount, NewKey, NewSession, Outcome, Scope, SessionKind, StateChange, Webhook,
};
use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::quota::{Quota, StoreChoice};
use testkit::redis::{Redis, RedisOptions};
use testkit::wait::{SLACK, eventually_ok};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

fn account(login: &str) -> NewAccount {
    NewAccount { login: login.to_owned(), credential: None }
}

/// A master and its replica, which is in sync.
async fn start_pair(options: RedisOptions) -> (Redis, Redis) {
    let master = options.clone().start().await;
    let replica = options.directive(&format!("replicaof 127.0.0.1 {}", master.port())).start().await;
    eventually_ok(WAIT_TIMEOUT, "the replica is in sync", async || {
        let link = replica.info("master_link_status").await?;
        if link == "up" { Ok(()) } else { Err(link) }
    })
    .await;
    (master, replica)
}

#[tokio::test]
async fn unconfirmed_change_gets_503_and_delays_no_charge() {
    check_unconfirmed_change(Redis::options().appendonly()).await;
}

#[tokio::test]
async fn unconfirmed_change_on_valkey_gets_503_and_delays_no_charge() {
    let Some(valkey) = Redis::valkey() else { return };
    check_unconfirmed_change(valkey).await;
}

async fn check_unconfirmed_change(options: RedisOptions) {
    let (master, replica) = start_pair(options).await;
    let quota = Quota::start_with(&master, &["--write-timeout", "700ms", "--burst-limit", "1"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let client = quota.client();
    let mut attempt = 0;
    // A new replica sends its first acknowledgment within a second. Until then, changes get 503.
    eventually_ok(WAIT_TIMEOUT, "the replica confirms", async || {
        attempt += 1;
        client.create_account(&account(&format!("early-{attempt}"))).await
    })
    .await;
    let key = quota.new_key().await;
    let (url, secret) = ("https://hooks.example/x".to_owned(), "whsec_eA==".to_owned());
    let contact =
        Contact { webhook: Some(Webhook { url, secret, enabled: true, muted: [].into() }), mail: None };
    client.set_contact(&key.account, Contact::default(), contact).await.unwrap();
    replica.freeze();
    let started = Instant::now();
    let unconfirmed = account("unconfirmed");
    let (created, charged) = tokio::join!(client.create_account(&unconfirmed), key.charge(&client, 1));
    let error = created.unwrap_err();
    assert_eq!((error.status(), error.code()), (Some(503), Some("not_confirmed")));
    assert!(started.elapsed() < Duration::from_millis(700) + SLACK, "{:?}", started.elapsed());
    assert_eq!(charged, [Outcome::Allowed], "charges don't wait for a confirmation");
    assert_eq!(key.charge(&client, 1).await, [Outcome::BurstExceeded]);
    assert_eq!(client.claim_notices(1).await.unwrap().len(), 1, "notices don't wait for a confirmation");
    replica.thaw();
    eventually_ok(WAIT_TIMEOUT, "the replica confirms again", async || {
        attempt += 1;
        client.create_account(&account(&format!("late-{attempt}"))).await
    })
    .await;
}

#[tokio::test]
async fn change_is_confirmed_on_disk_with_waitaof() {
    let Some(valkey) = Redis::valkey() else { return };
    let redis = valkey.start().await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let before = redis.calls("waitaof").await;
    quota.client().create_account(&account("on-disk")).await.unwrap();
    assert!(redis.calls("waitaof").await > before, "the change was confirmed by WAITAOF");
}

#[tokio::test]
async fn session_checks_do_not_wait_for_a_confirmation() {
    check_session_checks(Redis::options().appendonly()).await;
}

#[tokio::test]
async fn session_checks_on_valkey_do_not_wait_for_a_confirmation() {
    let Some(valkey) = Redis::valkey() else { return };
    check_session_checks(valkey).await;
}

async fn check_session_checks(options: RedisOptions) {
    let (master, replica) = start_pair(options).await;
    let quota = Quota::start_with(&master, &["--write-timeout", "5s"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    let session = NewSession {
        kind: SessionKind::Session,
        id_sha256: "ab".repeat(32),
        ttl_seconds: 600,
        expected_credential: None,
    };
    client.create_session(&key.account, &session).await.unwrap();
    replica.freeze();
    let (writer, id) = (quota.client(), key.key.id.clone());
    let change = tokio::spawn(async move { writer.change_state(&id, None, StateChange::Deactivate).await });
    eventually_ok(WAIT_TIMEOUT, "the change waits for its confirmation", async || {
        match master.info("blocked_clients").await?.as_str() {
            "0" => Err("no client is blocked".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    assert!(client.session_account(&key.account, &session.id_sha256).await.unwrap().is_some());
    client.keys(&key.account).await.unwrap();
    assert!(!change.is_finished(), "the confirmation is still missing");
    assert_eq!(change.await.unwrap().unwrap_err().code(), Some("not_confirmed"));
}

#[tokio::test]
async fn write_timeout_covers_all_steps_of_a_change() {
    check_write_timeout(Redis::options()).await;
}

#[tokio::test]
async fn write_timeout_covers_all_steps_of_a_change_on_valkey() {
    let Some(valkey) = Redis::valkey() else { return };
    check_write_timeout(valkey).await;
}

async fn check_write_timeout(options: RedisOptions) {
    let redis = options.start().await;
    let proxy = FaultProxy::start(redis.addr());
    let store = StoreChoice::url(format!("redis://{}", proxy.addr()));
    let flags = ["--write-timeout", "1200ms", "--store-timeout", "5s"];
    let quota = Quota::start_with(store, &flags).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    // Each step is fast enough alone, but a creation loads the account and then commits.
    proxy.set(Fault::Delay(Duration::from_millis(900)));
    let new = NewKey::new("slow", Scope::Full);
    let error = client.create_key(&key.account, &new).await.expect_err("too slow");
    assert_eq!(error.status(), Some(503));
}
