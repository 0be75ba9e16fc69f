//! A test server stops even if its test process is killed and no destructor runs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::process::is_alive;
use testkit::redis::Redis;
use testkit::wait::eventually;

/// Environment variable set in the child copy of this test, which gets killed.
const CHILD_MARKER: &str = "E2E_KILLED_CHILD";

#[tokio::test]
async fn killed_test_process_leaves_no_server() {
    if std::env::var_os(CHILD_MARKER).is_some() {
        let redis = Redis::start().await;
        println!("server {} in {}", redis.pid(), redis.dir().display());
        return std::future::pending().await;
    }
    let mut child = Command::new(std::env::current_exe().expect("path of the test executable"))
        .args(["--exact", "harness_orphans::killed_test_process_leaves_no_server", "--nocapture"])
        .env(CHILD_MARKER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("second copy of this test starts");
    let (pid, dir) = read_announcement(BufReader::new(child.stdout.take().expect("stdout is piped")));
    assert!(is_alive(&pid));
    child.kill().expect("can kill and reap the child");
    child.wait().expect("can kill and reap the child");
    eventually(Duration::from_secs(10), "orphaned server exits", async || (!is_alive(&pid)).then_some(()))
        .await;
    std::fs::remove_dir_all(dir).expect("leftover directory can be removed");
}

/// Finds the line of the child in the output of the test runner, and returns PID and directory of its server.
fn read_announcement(output: impl BufRead) -> (String, String) {
    let mut lines = output.lines().map_while(Result::ok);
    lines
        .find_map(|line| {
            let (_, rest) = line.split_once("server ")?;
            let (pid, dir) = rest.split_once(" in ")?;
            Some((pid.to_owned(), dir.to_owned()))
        })
        .expect("child starts a server")
}
