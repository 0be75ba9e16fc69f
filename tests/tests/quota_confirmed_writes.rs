//! Changes to accounts and keys are confirmed before the response: on a replica with WAIT, and on disk with WAITAOF
//! if the server supports it.

use std::process::Command;
use std::time::{Duration, Instant};

use e2e::quota::Quota;
use e2e::redis::Redis;
use e2e::tools;
use e2e::wait::eventually_ok;
use quota_client::wire::{NewAccount, Outcome};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

fn account(login: &str) -> NewAccount {
    NewAccount { login: login.to_owned(), credential: None }
}

#[tokio::test]
async fn unconfirmed_change_gets_503_and_delays_no_charge() {
    let master = Redis::options().appendonly().start().await;
    let replica_of = format!("replicaof 127.0.0.1 {}", master.port());
    let replica = Redis::options().directive(&replica_of).start().await;
    eventually_ok(WAIT_TIMEOUT, "the replica is in sync", async || {
        let link = replica.info("master_link_status").await?;
        if link == "up" { Ok(()) } else { Err(link) }
    })
    .await;
    let quota = Quota::start_with(&master, &["--write-timeout", "700ms"]).await;
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
    replica.freeze();
    let started = Instant::now();
    let unconfirmed = account("unconfirmed");
    let (created, charged) = tokio::join!(client.create_account(&unconfirmed), key.charge(&client, 1));
    let error = created.unwrap_err();
    assert_eq!((error.status(), error.code()), (Some(503), Some("not_confirmed")));
    assert!(started.elapsed() < Duration::from_millis(700 + 500), "{:?}", started.elapsed());
    assert_eq!(charged, [Outcome::Allowed], "charges don't wait for a confirmation");
    replica.thaw();
    eventually_ok(WAIT_TIMEOUT, "the replica confirms again", async || {
        attempt += 1;
        client.create_account(&account(&format!("late-{attempt}"))).await
    })
    .await;
}

#[tokio::test]
async fn frozen_replica_fails_no_change_if_confirmation_is_off() {
    let master = Redis::start().await;
    let replica_of = format!("replicaof 127.0.0.1 {}", master.port());
    let replica = Redis::options().directive(&replica_of).start().await;
    let quota = Quota::start_with(&master, &["--confirm-writes", "off"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    replica.freeze();
    quota.client().create_account(&account("quick")).await.unwrap();
}

/// A server that supports WAITAOF: Redis 7.2 or later, or any Valkey.
fn server_with_waitaof() -> Option<String> {
    let version = Command::new("redis-server").arg("--version").output().ok()?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let version: Vec<u32> =
        version.split_once("v=")?.1.split(['.', ' ']).take(2).flat_map(str::parse).collect();
    if version.as_slice() >= [7, 2].as_slice() {
        return Some("redis-server".to_owned());
    }
    let valkey = tools::optional_tool("valkey-server");
    if valkey.is_none() {
        tools::announce_skip("no server with WAITAOF (Redis 7.2+, Valkey) is installed");
    }
    Some(valkey?.display().to_string())
}

#[tokio::test]
async fn change_is_confirmed_on_disk_with_waitaof() {
    let Some(server) = server_with_waitaof() else { return };
    let redis = Redis::options().server(&server).appendonly().start().await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let waitaof_calls = async || {
        let stats = redis.cli(&["INFO", "commandstats"]).await;
        stats.lines().find_map(|line| {
            line.strip_prefix("cmdstat_waitaof:calls=")?.split(',').next()?.parse::<u32>().ok()
        })
    };
    let before = waitaof_calls().await.unwrap_or(0);
    quota.client().create_account(&account("on-disk")).await.unwrap();
    assert!(waitaof_calls().await.unwrap_or(0) > before, "the change was confirmed by WAITAOF");
}
