//! Redis with a full disk (MISCONF): clear errors, a metric that shows the outage, automatic recovery.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quota_client::wire::{NewAccount, Outcome};
use tempfile::TempDir;
use testkit::quota::{Quota, first_outcome};
use testkit::redis::Redis;
use testkit::tools;
use testkit::wait::{eventually, eventually_ok};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A 1 MB file system, unmounted on drop.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        if run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs"], dir.path()) {
            return Some(Self(dir));
        }
        tools::announce_skip("a 1 MB file system for the full disk can't be mounted (needs root)");
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
async fn redis_with_full_disk_is_unavailable_until_space_is_free() {
    let Some(disk) = SmallDisk::mount() else { return };
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
