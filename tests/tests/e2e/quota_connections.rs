//! Connection floods, oversized requests and HTTP/2 rapid resets on quota-svc's port: resource use stays bounded, and
//! requests of well-behaved clients are served.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use quota_client::wire::{Charge, ChargeRequest, Outcome};
use tempfile::TempDir;
use testkit::http2::{goaway_code, rapid_resets};
use testkit::quota::{Quota, StoreChoice};
use testkit::wait::{SLACK, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of connections in the flood: half are idle, half send one byte per second.
const CONNECTIONS: usize = 1_000;
/// The header timeout of 10 s, plus slack for a busy machine.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(12);

async fn start(wrapper: &[&str]) -> (Quota, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = StoreChoice::File(dir.path().join("quota.redb"));
    let quota = Quota::start_under(wrapper, store, &["--demo-limit", "1000000"]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    (quota, dir)
}

/// Sends a live request, that is, one that a well-behaved client would send, on a new connection. Returns its duration.
async fn live_request(quota: &Quota) -> Duration {
    let demo = Charge { key_sha256: None, demo: Some(true) };
    let started = Instant::now();
    let response = quota.client().charge(&ChargeRequest { charges: vec![demo] }).await.unwrap();
    assert_eq!(response.verdicts[0].outcome, Outcome::Allowed);
    started.elapsed()
}

/// Sends live requests for two seconds. Returns the share of one CPU core that quota-svc used meanwhile, and the
/// duration of the slowest request.
async fn cpu_share(quota: &Quota) -> (f64, Duration) {
    let (before, started, mut slowest) = (quota.service.cpu_time(), Instant::now(), Duration::ZERO);
    let mut pace = interval(Duration::from_millis(250));
    while started.elapsed() < Duration::from_secs(2) {
        pace.tick().await;
        slowest = slowest.max(live_request(quota).await);
    }
    let used = quota.service.cpu_time() - before;
    (used.as_secs_f64() / started.elapsed().as_secs_f64(), slowest)
}

/// How long the server keeps open a connection that sends `first` and then, if `drip`, one header byte per second.
async fn time_until_closed(mut stream: TcpStream, first: &str, drip: bool) -> Duration {
    let opened = Instant::now();
    stream.write_all(first.as_bytes()).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let dripping = async {
        let mut pace = interval(Duration::from_secs(1));
        while drip && writer.write_all(b"x").await.is_ok() {
            pace.tick().await;
        }
        std::future::pending::<()>().await;
    };
    let closed = async { while reader.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {} };
    tokio::select! { () = dripping => {}, () = closed => {} }
    opened.elapsed()
}

#[tokio::test]
async fn load_idle_and_trickling_connections_are_closed_in_time() {
    let (mut quota, _dir) = start(&[]).await;
    let files = quota.service.open_files();
    let mut connections = JoinSet::new();
    let started = Instant::now();
    for i in 0..CONNECTIONS {
        let stream = TcpStream::connect(quota.addr()).await.unwrap();
        let (first, drip) =
            if i % 2 == 0 { ("", false) } else { ("POST /internal/v1/charges HTTP/1.1\r\nX: ", true) };
        connections.spawn(time_until_closed(stream, first, drip));
    }
    eprintln!("{CONNECTIONS} connections opened in {:?}", started.elapsed());
    let (share, slowest) = cpu_share(&quota).await;
    let held = quota.service.open_files() - files;
    eprintln!("{held} open connections: {:.1}% of a core, slowest live request {slowest:?}", share * 100.0);
    assert!(held >= CONNECTIONS * 9 / 10, "only {held} connections are open");
    assert!(share < 0.05, "{share}");
    assert!(slowest < SLACK, "{slowest:?}");
    let open_for = timeout(WAIT_TIMEOUT, connections.join_all()).await.expect("all connections are closed");
    let longest = open_for.iter().max().unwrap();
    eprintln!("the last of {CONNECTIONS} was closed after {longest:?}");
    assert!(*longest < CLOSE_TIMEOUT, "{longest:?}");
    live_request(&quota).await;
    assert!(quota.service.is_running());
}

#[tokio::test]
async fn load_live_requests_are_served_at_64_descriptors() {
    let (quota, _dir) = start(&["prlimit", "--nofile=64"]).await;
    let mut connections = Vec::new();
    for _ in 0..200 {
        connections.push(TcpStream::connect(quota.addr()).await.unwrap());
    }
    let (share, slowest) = cpu_share(&quota).await;
    let files = quota.service.open_files();
    eprintln!("{files} open files: {:.1}% of a core, slowest live request {slowest:?}", share * 100.0);
    assert!(files <= 64 && share < 0.05, "{files} files, {share}");
    assert!(slowest < SLACK, "{slowest:?}");
    assert_eq!(quota.readiness().await.0, 200, "the admin port has descriptors left");
}

/// Sends `head` and then `megabytes` of data, and returns the response once the server has closed the connection.
async fn flood(quota: &Quota, head: String, megabytes: usize, chunked: bool) -> String {
    let stream = TcpStream::connect(quota.addr()).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let writing = tokio::spawn(async move {
        let block = vec![b'a'; 1 << 20];
        let frame = if chunked { ("100000\r\n", "\r\n") } else { ("", "") };
        let mut parts = vec![head.as_bytes()];
        for _ in 0..megabytes {
            parts.extend([frame.0.as_bytes(), &block, frame.1.as_bytes()]);
        }
        for part in parts {
            if writer.write_all(part).await.is_err() {
                return;
            }
        }
        // Keeps the connection open until the server has responded.
        std::future::pending::<()>().await;
    });
    let mut response = Vec::new();
    // The server may reset the connection after its response. The bytes read before that remain.
    let closed = timeout(WAIT_TIMEOUT, reader.read_to_end(&mut response)).await;
    writing.abort();
    assert!(closed.is_ok(), "the server closes the connection");
    String::from_utf8_lossy(&response).into_owned()
}

fn post(path: &str, rest: &str) -> String {
    format!(
        "POST /internal/v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{rest}\r\n"
    )
}

fn status(response: &str) -> &str {
    response.get(9..12).unwrap_or(response)
}

#[tokio::test]
async fn load_oversized_bodies_and_headers_are_not_buffered() {
    let (quota, _dir) = start(&[]).await;
    live_request(&quota).await;
    let (memory, cpu) = (quota.service.peak_rss(), quota.service.cpu_time());
    let content_length = format!("Content-Length: {}\r\n", 200 << 20);
    let chunked = "Transfer-Encoding: chunked\r\n";
    assert_eq!(status(&flood(&quota, post("accounts", &content_length), 200, false).await), "413");
    assert_eq!(status(&flood(&quota, post("accounts", chunked), 200, true).await), "413");
    let charges = flood(&quota, post("charges", chunked), 200, true).await;
    assert_eq!(status(&charges), "400");
    assert!(charges.contains("batch_too_large") && charges.contains("256"), "{charges}");
    let long = "POST /internal/v1/charges HTTP/1.1\r\nHost: localhost\r\nX-Long: ".to_owned();
    let long = flood(&quota, long, 1, false).await;
    assert_eq!(status(&long), "431", "{long}");
    assert!(long.contains(r#""docs":"/openapi.json#headers_too_large""#), "{long}");
    let growth = quota.service.peak_rss() - memory;
    let cpu = quota.service.cpu_time() - cpu;
    eprintln!("600 MB of bodies and 1 MB of headers: peak memory + {} KiB, {cpu:?} of CPU", growth >> 10);
    assert!(growth < 10 << 20, "{growth} bytes");
    live_request(&quota).await;
}

#[tokio::test]
async fn load_http2_rapid_resets_get_goaway_at_low_cost() {
    let (quota, _dir) = start(&[]).await;
    live_request(&quota).await;
    let (memory, cpu) = (quota.service.peak_rss(), quota.service.cpu_time());
    let attack = rapid_resets(20_000);
    for _ in 0..10 {
        let (mut reader, mut writer) = TcpStream::connect(quota.addr()).await.unwrap().into_split();
        let bytes = attack.clone();
        let writing = tokio::spawn(async move { writer.write_all(&bytes).await });
        let mut received = Vec::new();
        // The server may reset the connection after GOAWAY.
        let closed = timeout(WAIT_TIMEOUT, reader.read_to_end(&mut received)).await;
        assert!(closed.is_ok(), "the server closes the connection");
        let _ = writing.await;
        let enhance_your_calm = [0, 0, 0, 11];
        assert_eq!(goaway_code(&received), Some(enhance_your_calm), "{received:?}");
    }
    let (growth, cpu) = (quota.service.peak_rss() - memory, quota.service.cpu_time() - cpu);
    eprintln!("10 × 20,000 resets: peak memory + {} KiB, {cpu:?} of CPU", growth >> 10);
    assert!(growth < 10 << 20, "{growth} bytes");
    assert!(cpu < Duration::from_secs(1), "{cpu:?}");
    let closed = async || (quota.service.open_files() < 40).then_some(());
    eventually(WAIT_TIMEOUT, "the connections are closed", closed).await;
    live_request(&quota).await;
}
