//! A full disk under Redis (MISCONF) and under the embedded store: clear errors, a metric that shows the outage,
//! automatic recovery without a lost change. And a store file that disappears.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quota_client::wire::{KeyState, NewAccount, NewKey, Outcome, Scope, SettingsChange, StateChange};
use tempfile::TempDir;
use testkit::quota::{Quota, StoreChoice, first_outcome};
use testkit::redis::Redis;
use testkit::tools;
use testkit::wait::{eventually, eventually_ok};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A small file system, unmounted on drop.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(megabytes: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        if run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs"], dir.path()) {
            return Some(Self(dir));
        }
        let strict = std::env::var_os(tools::STRICT).is_some();
        assert!(!strict, "a small file system for the full disk can't be mounted, but ./test requires it");
        tools::announce_skip("a small file system for the full disk can't be mounted (needs root)");
        None
    }

    fn fill(&self) {
        let filler = self.0.path().join("filler");
        let mut size = 1 << 20;
        // Fills the last page too, so that not even one more command fits.
        while size > 0 {
            let total = fs::read(&filler).unwrap_or_default().len() + size;
            size = if fs::write(&filler, vec![0; total]).is_ok() { size } else { size / 2 };
        }
    }

    fn free_space(&self) {
        fs::remove_file(self.0.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &["-l"], self.0.path());
    }
}

fn run(program: &str, args: &[&str], path: &Path) -> bool {
    let status = Command::new(program).args(args).arg(path).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[tokio::test]
async fn as_root_redis_with_full_disk_is_unavailable_until_space_is_free() {
    let Some(disk) = SmallDisk::mount(1) else { return };
    let dir = format!("dir {}", disk.0.path().display());
    let redis = Redis::options().appendonly().directive(&dir).start().await;
    let mut quota = Quota::start(&redis).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
    assert_eq!(quota.metric("quota_store_up", "").await, 1.0);
    disk.fill();
    let mut allowed = 1;
    eventually_ok(WAIT_TIMEOUT, "Redis rejects writes", async || {
        let outcome = first_outcome(&client.charge(&key.charges(1)).await);
        allowed += u32::from(outcome == "Allowed");
        if outcome == "Unavailable" { Ok(()) } else { Err(outcome) }
    })
    .await;
    eventually(WAIT_TIMEOUT, "readiness fails", async || (quota.readiness().await.0 == 503).then_some(()))
        .await;
    eventually(WAIT_TIMEOUT, "the metric shows the outage", async || {
        (quota.metric("quota_store_up", "").await == 0.0).then_some(())
    })
    .await;
    assert!(quota.metric("quota_charges_total", "unavailable").await > 0.0);
    assert!(quota.service.logs().contains("MISCONF"), "{}", quota.service.logs());
    let account = NewAccount { login: "new".to_owned(), credential: None };
    let error = client.create_account(&account).await.unwrap_err();
    assert_eq!((error.status(), error.code()), (Some(503), Some("store_unavailable")));
    disk.free_space();
    let freed = Instant::now();
    quota.wait_ready(WAIT_TIMEOUT).await;
    eprintln!(
        "ready again {:?} after space was freed (Redis itself checks once per second)",
        freed.elapsed()
    );
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
    let create = async || client.create_account(&account).await;
    eventually_ok(WAIT_TIMEOUT, "accounts can be created again", create).await;
    assert!(key.fetch(&client).await.used_today > allowed, "every allowed charge was counted");
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}

/// Reads `/readyz` until it is 503, and returns its body.
async fn wait_not_ready(quota: &Quota) -> String {
    eventually(WAIT_TIMEOUT, "readiness fails", async || {
        let (status, body) = quota.readiness().await;
        (status == 503).then_some(body)
    })
    .await
}

#[tokio::test]
async fn removed_store_file_turns_readiness_off_and_is_not_created_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    let quota = Quota::start_with(StoreChoice::File(path.clone()), &[]).await;
    fs::remove_file(&path).unwrap();
    let reason = wait_not_ready(&quota).await;
    assert!(reason.contains("store.redb was removed or replaced"), "{reason}");
    assert!(!path.exists());
}

#[tokio::test]
async fn as_root_embedded_store_on_full_disk_recovers_and_keeps_every_change() {
    let Some(disk) = SmallDisk::mount(8) else { return };
    let store = StoreChoice::File(disk.0.path().join("store.redb"));
    let mut quota = Quota::start_with(store.clone(), &["--burst-limit", "20"]).await;
    let client = quota.client();
    let [leaked, burst, other] = [quota.new_key().await, quota.new_key().await, quota.new_key().await];
    let account = client.account(&other.account).await.unwrap();
    assert_eq!(other.charge(&client, 3).await, [Outcome::Allowed; 3]);
    let name = |n: usize| format!("{n} {}", "long ".repeat(11));
    let rename = async |n| client.change_key(&other.key.id, None, &SettingsChange::rename(&name(n))).await;
    rename(0).await.unwrap();
    disk.fill();

    // Each change takes some of the space that redb has reserved in its file, until nothing is left.
    let mut renamed = 1;
    let error = loop {
        match rename(renamed).await {
            Ok(_) => renamed += 1,
            Err(error) => break error,
        }
        assert!(renamed < 10_000, "the disk is full");
    };
    assert_eq!((error.status(), error.code()), (Some(503), Some("store_unavailable")));
    assert_eq!(
        client.change_state(&leaked.key.id, None, StateChange::Deactivate).await.unwrap_err().status(),
        Some(503)
    );
    assert_eq!(burst.charge(&client, 21).await, [Outcome::Unavailable; 21]);
    let new = NewKey::new("new", Scope::Full);
    assert_eq!(client.create_key(&account.id, &new).await.unwrap_err().status(), Some(503));
    assert!(wait_not_ready(&quota).await.contains("space"), "{:?}", quota.readiness().await);
    assert_eq!(leaked.fetch(&client).await.state, KeyState::Active, "the rejected change has no effect");
    assert_eq!(client.keys(&account.id).await.unwrap().keys.len(), 1, "the rejected key does not exist");

    disk.free_space();
    quota.wait_ready(WAIT_TIMEOUT).await;
    assert_eq!(other.charge(&client, 1).await, [Outcome::Allowed]);
    client.change_state(&leaked.key.id, None, StateChange::Deactivate).await.unwrap();
    assert_eq!(burst.charge(&client, 21).await[20], Outcome::BurstExceeded);
    let created = client.create_key(&account.id, &new).await.unwrap();
    quota.service.kill();

    let quota = Quota::start_with(store, &["--burst-limit", "20"]).await;
    let client = quota.client();
    assert_eq!(leaked.charge(&client, 1).await, [Outcome::Inactive], "the confirmed change is on disk");
    assert_eq!(burst.charge(&client, 1).await, [Outcome::Paused]);
    assert_eq!(client.key(&created.key.id, None).await.unwrap().key.state, KeyState::Active);
    assert_eq!(other.fetch(&client).await.settings.name, name(renamed - 1).trim());
    assert!(other.fetch(&client).await.used_today >= 3);
}
