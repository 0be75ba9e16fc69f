//! Changes of accounts and keys are confirmed before they are answered: by a replica, and by the disk where the
//! server can say so.

use std::process::Command;
use std::time::{Duration, Instant};

use e2e::quota::Quota;
use e2e::redis::Redis;
use e2e::tools;
use e2e::wait::eventually_ok;
use quota_client::wire::{NewAccount, Outcome};

const PATIENCE: Duration = Duration::from_secs(20);

fn account(login: &str) -> NewAccount {
    NewAccount { login: login.to_owned(), credential: None }
}

#[tokio::test]
async fn a_change_that_no_replica_has_is_not_answered_as_made_and_charges_do_not_wait_for_it() {
    let master = Redis::options().appendonly().start().await;
    let replica_of = format!("replicaof 127.0.0.1 {}", master.port());
    let replica = Redis::options().directive(&replica_of).start().await;
    eventually_ok(PATIENCE, "the replica is in step", async || {
        let link = replica.info("master_link_status").await?;
        if link == "up" { Ok(()) } else { Err(link) }
    })
    .await;
    let quota = Quota::start_with(&master, &["--write-timeout", "700ms"]).await;
    quota.wait_ready(PATIENCE).await;
    let client = quota.client();
    let mut attempt = 0;
    // A replica that was just attached acknowledges for the first time within a second.
    eventually_ok(PATIENCE, "the replica confirms", async || {
        attempt += 1;
        client.create_account(&account(&format!("early-{attempt}"))).await
    })
    .await;
    let key = quota.new_key().await;
    replica.freeze();
    let asked = Instant::now();
    let unconfirmed = account("unconfirmed");
    let (refused, charged) = tokio::join!(client.create_account(&unconfirmed), key.charge(&client, 1));
    let refused = refused.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (Some(503), Some("not_confirmed")));
    assert!(asked.elapsed() < Duration::from_millis(700 + 500), "{:?}", asked.elapsed());
    assert_eq!(charged, [Outcome::Allowed], "charges are not confirmed");
    replica.thaw();
    eventually_ok(PATIENCE, "the replica confirms again", async || {
        attempt += 1;
        client.create_account(&account(&format!("late-{attempt}"))).await
    })
    .await;
}

#[tokio::test]
async fn without_confirmation_a_frozen_replica_holds_nothing_up() {
    let master = Redis::start().await;
    let replica_of = format!("replicaof 127.0.0.1 {}", master.port());
    let replica = Redis::options().directive(&replica_of).start().await;
    let quota = Quota::start_with(&master, &["--confirm-writes", "off"]).await;
    quota.wait_ready(PATIENCE).await;
    replica.freeze();
    quota.client().create_account(&account("quick")).await.unwrap();
}

/// A server that has WAITAOF: Redis 7.2 or later, or any Valkey.
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
        tools::announce_skip("no server with WAITAOF (Redis 7.2+, Valkey) is on this machine");
    }
    Some(valkey?.display().to_string())
}

#[tokio::test]
async fn where_the_server_has_waitaof_a_change_is_on_disk_when_it_is_answered() {
    let Some(server) = server_with_waitaof() else { return };
    let redis = Redis::options().server(&server).appendonly().start().await;
    let quota = Quota::start(&redis).await;
    quota.wait_ready(PATIENCE).await;
    let calls = async || {
        let stats = redis.cli(&["INFO", "commandstats"]).await;
        stats.lines().find_map(|line| {
            line.strip_prefix("cmdstat_waitaof:calls=")?.split(',').next()?.parse::<u32>().ok()
        })
    };
    let before = calls().await.unwrap_or(0);
    quota.client().create_account(&account("on-disk")).await.unwrap();
    assert!(calls().await.unwrap_or(0) > before, "the change was confirmed by WAITAOF");
}
