//! `ip-lookup`: the first minute of a newcomer, and what can go wrong in it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::time::Duration;

use e2e::http;
use e2e::process::Service;
use e2e::redis::Redis;
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(20);

fn start(data: &Path, flags: &[&str]) -> Service {
    let data = data.to_str().unwrap();
    let any = "127.0.0.1:0";
    let ports = ["--listen", any, "--dashboard-listen", any, "--quota-listen", any, "--admin-listen", any];
    let flags = [&["--data-dir", data, "--log-level", "info"], &ports[..], flags].concat();
    Service::spawn("ip-lookup", &flags, &[])
}

/// Waits for the welcome and gives what it says.
async fn welcome(service: &mut Service) -> String {
    service.listening("lookup").await;
    e2e::wait::eventually_ok(PATIENCE, "the welcome is printed", async || {
        let text = service.stdout();
        if text.contains("Stop with Ctrl-C") { Ok(text) } else { Err(service.logs()) }
    })
    .await
}

/// Runs a line of the welcome as it is printed.
async fn run(line: &str) -> serde_json::Value {
    let output = tokio::process::Command::new("sh").args(["-c", line]).output().await.unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn fails(mut service: Service) -> String {
    let status = service.wait_exit(PATIENCE).await;
    assert!(!status.success(), "{status}: {}", service.logs());
    service.logs()
}

#[tokio::test]
async fn the_first_start_prints_lines_that_work_and_the_second_prints_no_secret() {
    let data = tempfile::tempdir().unwrap();
    let mut service = start(data.path(), &[]);
    let text = welcome(&mut service).await;
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| line.starts_with("curl ")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    let own = run(lines[0]).await;
    assert_eq!((&own["ip"], &own["http_protocol"]), (&"127.0.0.1".into(), &"HTTP/1.1".into()), "{own}");
    let other = run(lines[1]).await;
    assert_eq!((&other["ip"], &other["country"]), (&"203.0.113.7".into(), &"JP".into()), "{other}");
    let dashboard = text.lines().find_map(|line| line.trim().strip_prefix("Dashboard")).unwrap().trim();
    let page = http::client().get(dashboard).send().await.unwrap();
    assert_eq!(page.status(), 200);
    let word =
        |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap().trim().to_owned();
    let body = serde_json::json!({"login": word("Account"), "password": word("Password")}).to_string();
    let signed_in = http::client()
        .post(format!("{dashboard}/api/v1/session"))
        .header("content-type", "application/json")
        .header("origin", dashboard)
        .header("x-csrf-token", "1")
        .body(body)
        .send()
        .await
        .unwrap();
    assert!(signed_in.status().is_success(), "{} {}", signed_in.status(), signed_in.text().await.unwrap());
    service.signal(Signal::INT);
    assert!(service.wait_exit(PATIENCE).await.success(), "{}", service.logs());

    let mut again = start(data.path(), &[]);
    let text = welcome(&mut again).await;
    assert!(!text.contains("ipl_") && !text.contains("Password"), "{text}");
    assert!(!again.logs().contains("ipl_"));
}

#[tokio::test]
async fn it_runs_on_redis_too() {
    let (data, redis) = (tempfile::tempdir().unwrap(), Redis::start().await);
    let mut service = start(data.path(), &["--redis-url", &redis.url()]);
    let text = welcome(&mut service).await;
    let line = text.lines().map(str::trim).find(|line| line.starts_with("curl ")).unwrap();
    assert_eq!(run(line).await["status"], "success");
    assert!(!data.path().join("store.redb").exists());
    assert!(redis.cli(&["DBSIZE"]).await.trim().parse::<u32>().unwrap() > 0);
}

#[tokio::test]
async fn a_redis_that_is_started_later_is_waited_for() {
    let (data, mut redis) = (tempfile::tempdir().unwrap(), Redis::start().await);
    redis.stop();
    let mut service = start(data.path(), &["--redis-url", &redis.url()]);
    service.listening("lookup").await;
    redis.restart().await;
    let text = welcome(&mut service).await;
    assert!(text.contains("This is the first start"), "{text}");
}

#[tokio::test]
async fn a_second_instance_on_the_same_folder_says_so() {
    let data = tempfile::tempdir().unwrap();
    let mut first = start(data.path(), &[]);
    welcome(&mut first).await;
    let complaint = fails(start(data.path(), &[])).await;
    assert!(complaint.contains("in use by another process"), "{complaint}");
}

#[tokio::test]
async fn a_port_in_use_says_which_and_what_to_do() {
    let data = tempfile::tempdir().unwrap();
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let flags = [
        "--data-dir",
        data.path().to_str().unwrap(),
        "--admin-listen",
        "127.0.0.1:0",
        "--quota-listen",
        "127.0.0.1:0",
    ];
    let flags = [&flags[..], &["--dashboard-listen", "127.0.0.1:0", "--listen", &addr]].concat();
    let complaint = fails(Service::spawn("ip-lookup", &flags, &[])).await;
    assert!(complaint.contains(&addr) && complaint.contains("choose another"), "{complaint}");
}

#[tokio::test]
async fn a_damaged_file_and_a_folder_that_cannot_be_written_are_told_apart() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("store.redb"), b"this is no store").unwrap();
    let complaint = fails(start(data.path(), &[])).await;
    assert!(complaint.contains("damaged or no store file"), "{complaint}");
    assert_eq!(
        std::fs::read(data.path().join("store.redb")).unwrap(),
        b"this is no store",
        "nothing is lost"
    );
    let complaint = fails(start(Path::new("/proc/nowhere"), &[])).await;
    assert!(complaint.contains("--data-dir"), "{complaint}");
}
