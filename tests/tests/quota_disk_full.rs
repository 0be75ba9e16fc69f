//! Redis whose disk is full (MISCONF): clear errors, a metric to alert on, recovery by itself.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use e2e::quota::{Quota, outcome_of};
use e2e::redis::Redis;
use e2e::tools;
use e2e::wait::{eventually, eventually_ok};
use quota_client::wire::{NewAccount, Outcome};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// A file system of 1 MB; unmounted when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        if run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs"], dir.path()) {
            return Some(Self(dir));
        }
        tools::announce_skip(
            "a file system of 1 MB can't be mounted (that takes root): a full disk can't be had",
        );
        None
    }

    fn fill(&self) {
        let filler = self.0.path().join("filler");
        let mut size = 1 << 20;
        // The last page too: what remains must not hold even one more command.
        while size > 0 {
            let whole = fs::read(&filler).unwrap_or_default().len() + size;
            size = if fs::write(&filler, vec![0; whole]).is_ok() { size } else { size / 2 };
        }
    }

    fn make_room(&self) {
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
async fn a_full_disk_under_redis_refuses_clearly_and_ends_by_itself_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else { return };
    let dir = format!("dir {}", disk.0.path().display());
    let redis = Redis::options().appendonly().directive(&dir).start().await;
    let mut quota = Quota::start(&redis).await;
    quota.wait_ready(PATIENCE).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
    assert_eq!(quota.metric("quota_store_up", "").await, 1.0);
    disk.fill();
    let mut allowed = 1;
    eventually_ok(PATIENCE, "Redis refuses to write", async || {
        let outcome = outcome_of(&client.charge(&key.charges(1)).await);
        allowed += u32::from(outcome == "Allowed");
        if outcome == "Unavailable" { Ok(()) } else { Err(outcome) }
    })
    .await;
    eventually(PATIENCE, "readiness says so", async || (quota.readiness().await.0 == 503).then_some(()))
        .await;
    eventually(PATIENCE, "the metric says so", async || {
        (quota.metric("quota_store_up", "").await == 0.0).then_some(())
    })
    .await;
    assert!(quota.metric("quota_charges_total", "unavailable").await > 0.0);
    assert!(quota.service.logs().contains("MISCONF"), "{}", quota.service.logs());
    let account = NewAccount { login: "new".to_owned(), credential: None };
    let refused = client.create_account(&account).await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (Some(503), Some("store_unavailable")));
    disk.make_room();
    let room = Instant::now();
    quota.wait_ready(PATIENCE).await;
    eprintln!("ready again {:?} after there was room (Redis itself looks once a second)", room.elapsed());
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
    let create = async || client.create_account(&account).await;
    eventually_ok(PATIENCE, "accounts can be created again", create).await;
    assert!(key.now(&client).await.used_today > allowed, "what was answered was counted");
    assert!(quota.service.is_running() && !quota.service.logs().contains("panic"));
}
