//! A client that opens 200 HTTP/2 streams and reads none of the responses costs little memory, on every port.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::time::Duration;

use quota_client::wire::{ExportedAccount, ExportedKey, ImportRequest, KeyState, Scope};
use testkit::lookup::{JsonResponse, Lookup};
use testkit::process::Service;
use testkit::quota::{Quota, StoreChoice};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// The server's limit of concurrent streams.
const STREAMS: u32 = 200;
/// The memory that an attack may add.
const LIMIT: u64 = 64 << 20;
/// The frame type HEADERS.
const HEADERS: u8 = 1;

/// The frames of 200 GET requests, after settings that let each response have `window` unread bytes.
fn requests(path: &str, window: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS with SETTINGS_INITIAL_WINDOW_SIZE.
    bytes.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4]);
    bytes.extend(window.to_be_bytes());
    // GET, http, :authority "localhost", :path; literals without indexing.
    let mut block = b"\x82\x86\x01\x09localhost\x04".to_vec();
    block.push(u8::try_from(path.len()).unwrap());
    block.extend(path.as_bytes());
    for stream in (0..STREAMS).map(|n| 2 * n + 1) {
        // HEADERS with END_HEADERS and END_STREAM.
        bytes.extend([0, 0, u8::try_from(block.len()).unwrap(), HEADERS, 5]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(&block);
    }
    bytes
}

/// Reads frames until all responses have begun.
async fn wait_for_responses(socket: &mut TcpStream) {
    let mut begun = 0;
    while begun < STREAMS {
        let mut header = [0; 9];
        socket.read_exact(&mut header).await.expect("the connection stays open");
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        socket.read_exact(&mut payload).await.unwrap();
        assert_ne!(header[3], 7, "GOAWAY: {payload:?}");
        begun += u32::from(header[3] == HEADERS);
    }
}

/// Runs the attack with two windows on each path.
async fn attack(service: &Service, addr: SocketAddr, paths: &[&str]) {
    for path in paths {
        attack_once(service, addr, path, 0).await;
        attack_once(service, addr, path, 1).await;
    }
}

/// Runs the attack and checks the memory of the process while nothing is read.
async fn attack_once(service: &Service, addr: SocketAddr, path: &str, window: u32) {
    let before = service.rss();
    let mut socket = TcpStream::connect(addr).await.unwrap();
    socket.write_all(&requests(path, window)).await.unwrap();
    timeout(WAIT_TIMEOUT, wait_for_responses(&mut socket)).await.expect("200 responses begin");
    let growth = service.rss().saturating_sub(before);
    eprintln!("{path}, window {window}: + {} KiB", growth >> 10);
    assert!(growth < LIMIT, "{path}: memory grew by {growth} bytes");
}

fn addr(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().unwrap()
}

/// An account whose export is about 4 KB.
fn account(index: u32) -> ExportedAccount {
    let key = ExportedKey {
        sha256: format!("{index:032x}{:032x}", 0),
        name: "a key".to_owned(),
        hint: "ipl_abcd…wxyz".to_owned(),
        scope: Scope::Geo,
        state: KeyState::Active,
        state_since: 0,
        created_at: 0,
        daily_limit: None,
        usage: Vec::new(),
    };
    ExportedAccount {
        login: format!("user{index}"),
        created_at: 0,
        credential: Some("x".repeat(4096)),
        credential_version: 1,
        keys: vec![key],
    }
}

#[tokio::test]
async fn unread_lookup_responses_take_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let quota = Quota::start(StoreChoice::File(dir.path().join("quota.redb"))).await;
    let lookup = Lookup::start_with_long_timeouts(quota.url(), &[]).await;
    attack(&lookup.service, lookup.addr(), &["/swagger", "/docs", "/openapi.json", "/api/v1/ip/demo"]).await;
    assert_eq!(JsonResponse::fetch(lookup.get("/api/v1/ip")).await.status, 401, "still serving");
}

#[tokio::test]
async fn unread_dashboard_responses_take_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("session.key");
    std::fs::write(&key, [7; 32]).unwrap();
    let args = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--session-key-file"];
    let args = [args.as_slice(), &[key.to_str().unwrap()]].concat();
    let mut service = Service::spawn("dashboard-api", &args, &[]);
    let (dashboard, admin) = (service.listen_addr("dashboard").await, service.listen_addr("admin").await);
    attack(&service, dashboard, &["/swagger", "/openapi.json", "/", "/assets/x/app.js", "/assets/x/card.js"])
        .await;
    attack(&service, admin, &["/metrics", "/readyz"]).await;
    assert!(service.is_running());
}

#[tokio::test]
async fn unread_quota_responses_take_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let quota = Quota::start(StoreChoice::File(dir.path().join("quota.redb"))).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let accounts = (0..200).map(account).collect();
    let report = quota.client().import(&ImportRequest { accounts }).await.unwrap();
    assert_eq!(report.keys_created, 200);
    attack(&quota.service, quota.addr(), &["/openapi.json"]).await;
    attack_once(&quota.service, quota.addr(), "/internal/v1/export?limit=200", 0).await;
    attack(&quota.service, addr(quota.admin_url()), &["/metrics"]).await;
    assert_eq!(quota.readiness().await.0, 200);
}
