//! Floods of connections, giant requests and rapid resets on quota-svc's port: bounded, and live requests are served.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use e2e::quota::{Quota, StoreChoice};
use e2e::wait::eventually;
use quota_client::wire::{Charge, ChargeRequest, Outcome};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

const PATIENCE: Duration = Duration::from_secs(20);
/// Idle and dripping connections, half of each (faults.md says 5,000; two cores are shared here).
const CROWD: usize = 1_000;
/// `--header-timeout`, and what a busy machine may add.
const CLOSED_WITHIN: Duration = Duration::from_secs(12);

async fn start(wrapper: &[&str]) -> (Quota, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = StoreChoice::File(dir.path().join("quota.redb"));
    let quota = Quota::start_under(wrapper, store, &["--demo-limit", "1000000"]).await;
    quota.wait_ready(PATIENCE).await;
    (quota, dir)
}

/// A live request on a connection of its own, and how long it took.
async fn live(quota: &Quota) -> Duration {
    let demo = Charge { key_sha256: None, demo: Some(true) };
    let started = Instant::now();
    let answer = quota.client().charge(&ChargeRequest { charges: vec![demo] }).await.unwrap();
    assert_eq!(answer.verdicts[0].outcome, Outcome::Allowed);
    started.elapsed()
}

/// The share of one processor that the service takes over two seconds in which live requests go on, and the slowest
/// of those.
async fn share_of_cpu(quota: &Quota) -> (f64, Duration) {
    let (before, started, mut slowest) = (quota.service.cpu_time(), Instant::now(), Duration::ZERO);
    let mut pace = interval(Duration::from_millis(250));
    while started.elapsed() < Duration::from_secs(2) {
        pace.tick().await;
        slowest = slowest.max(live(quota).await);
    }
    let used = quota.service.cpu_time() - before;
    (used.as_secs_f64() / started.elapsed().as_secs_f64(), slowest)
}

/// How long the server leaves a connection open that sends `first` and then, where there is a `drip`, a byte of a
/// header each second.
async fn time_until_closed(mut stream: TcpStream, first: &str, drip: bool) -> Duration {
    let opened = Instant::now();
    stream.write_all(first.as_bytes()).await.unwrap();
    let (mut from, mut to) = stream.split();
    let dripping = async {
        let mut pace = interval(Duration::from_secs(1));
        while drip && to.write_all(b"x").await.is_ok() {
            pace.tick().await;
        }
        std::future::pending::<()>().await;
    };
    let closed = async { while from.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {} };
    tokio::select! { () = dripping => {}, () = closed => {} }
    opened.elapsed()
}

#[tokio::test]
async fn load_a_crowd_of_idle_and_dripping_connections_is_closed_in_time_while_live_requests_are_served() {
    let (mut quota, _dir) = start(&[]).await;
    let files = quota.service.open_files();
    let mut crowd = JoinSet::new();
    let began = Instant::now();
    for i in 0..CROWD {
        let stream = TcpStream::connect(quota.addr()).await.unwrap();
        let (first, drip) =
            if i % 2 == 0 { ("", false) } else { ("POST /internal/v1/charges HTTP/1.1\r\nX: ", true) };
        crowd.spawn(time_until_closed(stream, first, drip));
    }
    eprintln!("{CROWD} connections opened in {:?}", began.elapsed());
    let (share, slowest) = share_of_cpu(&quota).await;
    let held = quota.service.open_files() - files;
    eprintln!(
        "{held} connections held: {:.1} % of a processor, slowest live request {slowest:?}",
        share * 100.0
    );
    assert!(held >= CROWD * 9 / 10, "the crowd is connected: {held}");
    assert!(share < 0.05, "{share}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let open_for = timeout(PATIENCE, crowd.join_all()).await.expect("all are closed");
    let longest = open_for.iter().max().unwrap();
    eprintln!("the last of {CROWD} was closed after {longest:?}");
    assert!(*longest < CLOSED_WITHIN, "{longest:?}");
    live(&quota).await;
    assert!(quota.service.is_running());
}

#[tokio::test]
async fn load_with_64_descriptors_it_neither_spins_nor_stops_serving() {
    let (quota, _dir) = start(&["prlimit", "--nofile=64"]).await;
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(TcpStream::connect(quota.addr()).await.unwrap());
    }
    let (share, slowest) = share_of_cpu(&quota).await;
    let files = quota.service.open_files();
    eprintln!("{files} files open: {:.1} % of a processor, slowest live request {slowest:?}", share * 100.0);
    assert!(files <= 64 && share < 0.05, "{files} files, {share}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    assert_eq!(quota.readiness().await.0, 200, "the admin port has descriptors left");
}

/// Sends `head` and then so many megabytes, and gives what the server answered, up to its closing the connection.
async fn flood(quota: &Quota, head: String, megabytes: usize, chunked: bool) -> String {
    let stream = TcpStream::connect(quota.addr()).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    let writing = tokio::spawn(async move {
        let block = vec![b'a'; 1 << 20];
        let frame = if chunked { ("100000\r\n", "\r\n") } else { ("", "") };
        let mut parts = vec![head.as_bytes()];
        for _ in 0..megabytes {
            parts.extend([frame.0.as_bytes(), &block, frame.1.as_bytes()]);
        }
        for part in parts {
            if to.write_all(part).await.is_err() {
                return;
            }
        }
        // Open until the server has had its say.
        std::future::pending::<()>().await;
    });
    let mut answer = Vec::new();
    // After its answer the server may cut the connection: what was read before counts.
    let whole = timeout(PATIENCE, from.read_to_end(&mut answer)).await;
    writing.abort();
    assert!(whole.is_ok(), "the server closes the connection");
    String::from_utf8_lossy(&answer).into_owned()
}

fn post(path: &str, rest: &str) -> String {
    format!(
        "POST /internal/v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{rest}\r\n"
    )
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

#[tokio::test]
async fn load_bodies_of_200_mb_and_headers_of_1_mb_are_refused_without_being_kept() {
    let (quota, _dir) = start(&[]).await;
    live(&quota).await;
    let (memory, cpu) = (quota.service.peak_rss(), quota.service.cpu_time());
    let announced = format!("Content-Length: {}\r\n", 200 << 20);
    let chunked = "Transfer-Encoding: chunked\r\n";
    assert_eq!(status(&flood(&quota, post("accounts", &announced), 200, false).await), "413");
    assert_eq!(status(&flood(&quota, post("accounts", chunked), 200, true).await), "413");
    let charges = flood(&quota, post("charges", chunked), 200, true).await;
    assert_eq!(status(&charges), "400");
    assert!(charges.contains("batch_too_large") && charges.contains("256"), "{charges}");
    let long = "POST /internal/v1/charges HTTP/1.1\r\nHost: localhost\r\nX-Long: ".to_owned();
    let long = flood(&quota, long, 1, false).await;
    assert_eq!(status(&long), "431", "{long}");
    let grown = quota.service.peak_rss() - memory;
    let cpu = quota.service.cpu_time() - cpu;
    eprintln!(
        "600 MB of bodies and 1 MB of headers offered: memory + {} KiB at its peak, {cpu:?} of CPU",
        grown >> 10
    );
    assert!(grown < 10 << 20, "{grown} bytes");
    live(&quota).await;
}

/// Requests and their cancellations in frames made by hand: a real client would rather send neither.
fn rapid_resets(streams: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in (0..streams).map(|n| (2 * n + 1).to_be_bytes()) {
        // HEADERS that end both headers and stream: GET, http, /, authority "localhost".
        bytes.extend([0, 0, 14, 1, 5].iter().chain(&stream).chain(b"\x82\x86\x84\x41\x09localhost"));
        // RST_STREAM with CANCEL.
        bytes.extend([0, 0, 4, 3, 0].iter().chain(&stream).chain(&[0, 0, 0, 8]));
    }
    bytes
}

/// The error code of the GOAWAY frame in what a server sent.
fn goaway(mut bytes: &[u8]) -> Option<[u8; 4]> {
    while let [a, b, c, kind, _flags, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        if *kind == 7 {
            return payload.get(4..8)?.try_into().ok();
        }
        bytes = rest;
    }
    None
}

#[tokio::test]
async fn load_http2_rapid_resets_end_with_goaway_and_cost_next_to_nothing() {
    let (quota, _dir) = start(&[]).await;
    live(&quota).await;
    let (memory, cpu) = (quota.service.peak_rss(), quota.service.cpu_time());
    let attack = rapid_resets(20_000);
    for _ in 0..10 {
        let (mut from, mut to) = TcpStream::connect(quota.addr()).await.unwrap().into_split();
        let bytes = attack.clone();
        let writing = tokio::spawn(async move { to.write_all(&bytes).await });
        let mut received = Vec::new();
        // The server may reset the connection after its last word.
        let ended = timeout(PATIENCE, from.read_to_end(&mut received)).await;
        assert!(ended.is_ok(), "the server closes the connection");
        let _ = writing.await;
        let enhance_your_calm = [0, 0, 0, 11];
        assert_eq!(goaway(&received), Some(enhance_your_calm), "{received:?}");
    }
    let (grown, cpu) = (quota.service.peak_rss() - memory, quota.service.cpu_time() - cpu);
    eprintln!("10 × 20,000 resets: memory + {} KiB at its peak, {cpu:?} of CPU", grown >> 10);
    assert!(grown < 10 << 20, "{grown} bytes");
    assert!(cpu < Duration::from_secs(1), "{cpu:?}");
    let files = async || (quota.service.open_files() < 40).then_some(());
    eventually(PATIENCE, "the connections are gone", files).await;
    live(&quota).await;
}
