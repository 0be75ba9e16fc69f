//! `Service` starts, signals and stops a process and captures its output, tested with a shell script as the service.

use std::process::Command;
use std::time::Duration;

use testkit::process::{BIN_DIR, Service};
use testkit::wait::eventually;

const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Logs a listen address like service-kit, and exits with status 7 on SIGTERM.
const SCRIPT: &str = r#"
    trap 'echo stopping >&2; exit 7' TERM
    echo "arguments $*"
    echo "GREETING=$GREETING CARGO=$CARGO" >&2
    echo '{"level":"INFO","message":"listening","server":"admin","addr":"127.0.0.1:1234"}' >&2
    while :; do sleep 0.01; done
"#;

/// Runs a shell script as the service. `spawn_under` requires an existing binary, so it gets the test executable, which
/// the script never runs.
fn script(source: &str) -> Service {
    let test = std::env::current_exe().expect("path of the test executable");
    let path = test.to_str().expect("UTF-8 path");
    Service::spawn_under(&["sh", "-c", source], path, &["--flag"], &[("GREETING", "hi")])
}

#[tokio::test]
async fn listen_addr_and_output_are_captured() {
    let mut service = script(SCRIPT);
    assert_eq!(service.listen_addr("admin").await, ([127, 0, 0, 1], 1234).into());
    assert!(
        service.logs().contains("GREETING=hi CARGO=\n"),
        "the service gets only the given variables: {}",
        service.logs()
    );
    let printed = async || service.stdout().contains("arguments --log-format json --flag").then_some(());
    eventually(WAIT_TIMEOUT, "arguments are printed", printed).await;
    assert!(service.rss() > 100_000 && service.open_files() >= 3 && service.cpu_time() < WAIT_TIMEOUT);
}

#[tokio::test]
async fn sigterm_allows_clean_exit() {
    let mut service = script(SCRIPT);
    service.listen_addr("admin").await;
    assert!(service.is_running());
    service.term();
    assert_eq!(service.wait_exit(WAIT_TIMEOUT).await.code(), Some(7));
    eventually(WAIT_TIMEOUT, "last log line", async || service.logs().contains("stopping").then_some(()))
        .await;
}

#[tokio::test]
async fn sigkill_prevents_clean_exit() {
    let mut service = script(SCRIPT);
    service.listen_addr("admin").await;
    service.kill();
    assert_eq!(service.wait_exit(WAIT_TIMEOUT).await.code(), None, "terminated by a signal");
    assert!(!service.logs().contains("stopping"));
}

#[tokio::test]
#[should_panic(expected = "exited at start")]
async fn exit_at_start_fails_test_immediately() {
    script("echo no store >&2; exit 1").listen_addr("admin").await;
}

#[test]
#[should_panic(expected = "no-such-binary is missing")]
fn missing_binary_is_named() {
    let _service = Service::spawn("no-such-binary", &[], &[]);
}

/// Starts a second copy of the test above, because a test must not change its own environment.
#[test]
fn missing_binary_is_looked_up_in_bin_dir() {
    let empty = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    let mut copy = Command::new(test);
    copy.args(["--exact", "missing_binary_is_named", "--nocapture"]);
    let output = copy.env(BIN_DIR, empty.path()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let missing = format!("{} is missing", empty.path().join("no-such-binary").display());
    assert!(String::from_utf8_lossy(&text).contains(&missing), "{}", String::from_utf8_lossy(&text));
}
