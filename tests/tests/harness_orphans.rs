//! A server ends with its test process, also when that is killed and no destructor runs.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::redis::Redis;
use e2e::wait::eventually;

/// Set for the copy of this test that is killed.
const VICTIM: &str = "E2E_VICTIM";

#[tokio::test]
async fn a_server_ends_with_a_test_process_that_is_killed() {
    if std::env::var_os(VICTIM).is_some() {
        let redis = Redis::start().await;
        println!("server {} in {}", redis.pid(), redis.dir().display());
        return std::future::pending().await;
    }
    let mut victim = Command::new(std::env::current_exe().expect("this test's file"))
        .args(["--exact", "a_server_ends_with_a_test_process_that_is_killed", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a second copy of this test");
    let (pid, dir) = announced(BufReader::new(victim.stdout.take().expect("stdout is piped")));
    let proc = format!("/proc/{pid}");
    assert!(Path::new(&proc).exists());
    victim.kill().expect("the victim is ours");
    victim.wait().expect("the victim is ours");
    eventually(Duration::from_secs(10), "the orphan has ended", async || (!is_alive(&proc)).then_some(()))
        .await;
    std::fs::remove_dir_all(dir).expect("the folder it left");
}

/// What the victim prints between the lines of the test runner.
fn announced(output: impl BufRead) -> (String, String) {
    let mut lines = output.lines().map_while(Result::ok);
    lines
        .find_map(|line| {
            let (_, rest) = line.split_once("server ")?;
            let (pid, dir) = rest.split_once(" in ")?;
            Some((pid.to_owned(), dir.to_owned()))
        })
        .expect("the victim starts a server")
}

/// A dead process stays in /proc as a zombie until the machine's init, which an orphan belongs to, reaps it.
fn is_alive(proc: &str) -> bool {
    let status = std::fs::read_to_string(format!("{proc}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("Z (zombie)"))
}
