//! Reloading a large geo database: the memory of the old one is returned, and a new one that would exceed the memory limit
//! is rejected.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::lookup::{Lookup, WAIT_TIMEOUT};
use testkit::mmdb::{Builder, Value};
use testkit::wait::eventually;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;

/// Replaces the database with one of `SIZE` bytes: records that differ, because the builder stores equal ones once.
fn replace(dir: &Path, epoch: u64) {
    let filler = "x".repeat(2 << 20);
    let mut database = Builder::new("city").build_epoch(epoch).record_size(32);
    for network in 0..SIZE / (2 * MIB) {
        let filler = Value::from(format!("{network}{filler}").as_str());
        let record = Value::map([("city", Value::from("Berlin")), ("filler", filler)]);
        database = database.add(&format!("192.0.{network}.0/24"), &record);
    }
    fs::write(dir.join("new"), database.finish()).unwrap();
    fs::rename(dir.join("new"), dir.join("city.mmdb")).unwrap();
}

/// Starts lookup-svc with the directory, which has a database. Checks it at an interval that lets idle threads end.
async fn start(wrapper: &[&str], dir: &TempDir) -> Lookup {
    replace(dir.path(), 1);
    let flags = ["--geo-db", dir.path().to_str().unwrap(), "--geo-check-interval", "1200ms"];
    Lookup::start_under(wrapper, "http://127.0.0.1:9", &flags, &[]).await
}

/// Waits until the log has `count` lines that contain `text`.
async fn wait_log(lookup: &Lookup, text: &str, count: usize) {
    eventually(WAIT_TIMEOUT, format!("{count} log lines contain {text:?}"), async || {
        (lookup.service.logs().matches(text).count() >= count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn memory_of_replaced_database_is_returned_to_the_system() {
    let dir = tempfile::tempdir().unwrap();
    let lookup = start(&[], &dir).await;
    let before = lookup.service.rss();
    replace(dir.path(), 2);
    wait_log(&lookup, "geo file loaded", 2).await;
    eventually(WAIT_TIMEOUT, "one database is in memory", async || {
        (lookup.service.rss() < before + SIZE / 2).then_some(())
    })
    .await;
}

/// A control group with a memory limit, deleted when dropped. Its processes must have ended.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn create() -> Self {
        let version_1 = Path::new("/sys/fs/cgroup/memory");
        let parent = if version_1.is_dir() { version_1 } else { Path::new("/sys/fs/cgroup") };
        let group = Self(parent.join(format!("ip-lookup-test-{}", std::process::id())));
        fs::create_dir(&group.0).unwrap();
        group
    }

    fn file(&self, version_2: &str, version_1: &str) -> PathBuf {
        let path = self.0.join(version_2);
        if path.exists() { path } else { self.0.join(version_1) }
    }

    fn set_limit(&self, bytes: u64) {
        fs::write(self.file("memory.max", "memory.limit_in_bytes"), bytes.to_string()).unwrap();
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).unwrap();
    }
}

#[tokio::test]
async fn as_root_database_above_memory_limit_is_rejected_until_it_fits() {
    let (dir, group) = (tempfile::tempdir().unwrap(), MemoryGroup::create());
    let enter_group = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
    let lookup = start(&["sh", "-c", enter_group, group.0.to_str().unwrap()], &dir).await;
    group.set_limit(lookup.service.rss() + SIZE / 4);
    replace(dir.path(), 2);
    wait_log(&lookup, "MiB of free memory, but the memory limit leaves only", 1).await;
    assert!(lookup.metrics().await.contains("\ngeo_files_rejected 1\n"), "{}", lookup.metrics().await);
    group.set_limit(lookup.service.rss() + 3 * SIZE);
    wait_log(&lookup, "geo file loaded", 2).await;
    drop(lookup);
}
