//! A service's process is found, heard, signalled and ended as tests rely on, shown with a shell script in its place.

use std::time::Duration;

use e2e::process::Service;
use e2e::wait::eventually;

const SOON: Duration = Duration::from_secs(10);

/// Says where it listens, as service-kit does, and ends with status 7 on SIGTERM.
const SCRIPT: &str = r#"
    trap 'echo stopping >&2; exit 7' TERM
    echo "arguments $*"
    echo "GREETING=$GREETING CARGO=$CARGO" >&2
    echo '{"level":"INFO","message":"listening","server":"admin","addr":"127.0.0.1:1234"}' >&2
    while :; do sleep 0.01; done
"#;

/// The shell runs the script; the "binary" is this test's own file, which it never starts.
fn script(source: &str) -> Service {
    let this = std::env::current_exe().expect("this test's file");
    let name = this.file_name().and_then(|name| name.to_str()).expect("cargo's names are plain");
    Service::spawn_under(&["sh", "-c", source], &format!("deps/{name}"), &["--flag"], &[("GREETING", "hi")])
}

#[tokio::test]
async fn the_address_is_read_from_the_log_and_output_is_kept() {
    let mut service = script(SCRIPT);
    assert_eq!(service.listening("admin").await, ([127, 0, 0, 1], 1234).into());
    assert!(service.logs().contains("GREETING=hi CARGO=\n"), "only what was given: {}", service.logs());
    let printed = async || service.stdout().contains("arguments --log-format json --flag").then_some(());
    eventually(SOON, "its arguments", printed).await;
    assert!(service.rss() > 100_000 && service.open_files() >= 3 && service.cpu_time() < SOON);
}

#[tokio::test]
async fn sigterm_lets_it_end_by_itself() {
    let mut service = script(SCRIPT);
    service.listening("admin").await;
    assert!(service.is_running());
    service.term();
    assert_eq!(service.wait_exit(SOON).await.code(), Some(7));
    eventually(SOON, "its last words", async || service.logs().contains("stopping").then_some(())).await;
}

#[tokio::test]
async fn a_kill_leaves_no_time_for_last_words() {
    let mut service = script(SCRIPT);
    service.listening("admin").await;
    service.kill();
    assert_eq!(service.wait_exit(SOON).await.code(), None, "ended by a signal");
    assert!(!service.logs().contains("stopping"));
}

#[tokio::test]
#[should_panic(expected = "ended at start")]
async fn a_service_that_ends_at_start_fails_the_test_at_once() {
    script("echo no store >&2; exit 1").listening("admin").await;
}

#[test]
#[should_panic(expected = "run `cargo build --workspace --bins` first")]
fn a_binary_that_was_not_built_is_named_with_the_remedy() {
    let _service = Service::spawn("no-such-binary", &[], &[]);
}
