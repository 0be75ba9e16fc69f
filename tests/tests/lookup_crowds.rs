//! Crowds and floods at the public port (F12, F13): they are closed or refused in time, and those who ask are served.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use e2e::lookup::{Answer, Lookup, PATIENCE, Stack};
use e2e::wait::eventually;
use quota_client::wire::Scope;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// Limits that no load of these tests reaches.
const GENEROUS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];
/// faults.md: a connection that does not ask is closed within 10 s; some more for a machine that is busy.
const CLOSED_WITHIN: Duration = Duration::from_secs(14);
/// Fewer than the kernel keeps for a port that is busy (128): beyond it a client may believe in a connection that
/// the server never had.
const BATCH: usize = 50;
/// How often a dripping connection sends a byte: thrice before it is closed, often enough to keep it awake.
const DRIP: Duration = Duration::from_secs(3);

/// What one process may open is often 1,024 unless it asks for more.
fn raise_descriptors() {
    let before = getrlimit(Resource::Nofile);
    let enough = before.maximum.is_none_or(|most| most > 6_000);
    assert!(enough, "this test needs more than 6,000 descriptors: raise the hard limit (ulimit -Hn)");
    setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before }).unwrap();
}

/// Sends nothing, or a byte now and then of a header without an end, until the server closes; how long that took.
async fn hold(mut socket: TcpStream, drips: bool) -> Duration {
    let since = Instant::now();
    if drips {
        // The server may be quicker.
        let _ = socket.write_all(b"GET /api/v1/ip HTTP/1.1\r\nHost: t\r\nX-Slow: ").await;
    }
    let (mut read, mut write) = socket.split();
    let mut sink = Vec::new();
    let dripping = async {
        let mut tick = interval(DRIP);
        while drips && write.write_all(b"x").await.is_ok() {
            tick.tick().await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! { _ = read.read_to_end(&mut sink) => {}, () = dripping => {} }
    since.elapsed()
}

/// Asks on a connection of its own, as a client does that comes now.
async fn ask_anew(lookup: &Lookup, key: &str) {
    let client = e2e::http::builder().pool_max_idle_per_host(0).build().unwrap();
    let answer = Answer::of(client.get(lookup.url() + "/api/v1/ip").bearer_auth(key)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Opens `count` connections that never ask, half of them dripping.
async fn gather(lookup: &Lookup, count: usize, key: &str) -> JoinSet<Duration> {
    let mut crowd = JoinSet::new();
    for i in 0..count {
        let socket = TcpStream::connect(lookup.addr()).await.unwrap();
        crowd.spawn(hold(socket, i % 2 == 0));
        if i % BATCH == 0 {
            // Connections are accepted in their order: who is answered now came after all of these.
            ask_anew(lookup, key).await;
        }
    }
    crowd
}

/// Goes on asking until everyone of the crowd is gone, which must be in time.
async fn outlast(lookup: &Lookup, key: &str, mut crowd: JoinSet<Duration>) {
    let mut pace = interval(Duration::from_millis(50));
    let all_gone = async {
        loop {
            tokio::select! {
                held = crowd.join_next() => match held {
                    Some(held) => assert!(held.unwrap() < CLOSED_WITHIN),
                    None => return,
                },
                _ = pace.tick() => ask_anew(lookup, key).await,
            }
        }
    };
    timeout(PATIENCE, all_gone).await.expect("every connection is closed");
}

/// The share of one core that `lookup` uses while nobody asks. Here time itself is what is waited for.
async fn share_of_a_core(lookup: &Lookup, span: Duration) -> f64 {
    let (before, started) = (lookup.service.cpu_time(), Instant::now());
    tokio::time::sleep(span).await;
    (lookup.service.cpu_time() - before).as_secs_f64() / started.elapsed().as_secs_f64()
}

#[tokio::test]
async fn load_five_thousand_idle_and_dripping_connections_cost_little_and_are_closed_in_time() {
    raise_descriptors();
    let stack = Stack::start(&GENEROUS, &[]).await;
    let (lookup, key) = (&stack.lookup, stack.key(Scope::Full).await.secret);
    let crowd = gather(lookup, 5_000, &key).await;
    assert!(lookup.service.open_files() > 5_000, "all are there");
    let share = share_of_a_core(lookup, Duration::from_secs(2)).await;
    assert!(share < 0.05, "{share} of a core");
    outlast(lookup, &key, crowd).await;
    eventually(PATIENCE, "all descriptors are given back", async || {
        (lookup.service.open_files() < 60).then_some(())
    })
    .await;
}

#[tokio::test]
async fn with_64_descriptors_the_crowd_makes_room_for_those_who_ask() {
    let stack = Stack::start(&GENEROUS, &[]).await;
    let key = stack.key(Scope::Full).await.secret;
    let flags = ["--quota-deadline", "10s", "--request-timeout", "12s"];
    let lookup = Lookup::start_under(&["prlimit", "--nofile=64"], stack.quota.url(), &flags, &[]).await;
    let crowd = gather(&lookup, 1_000, &key).await;
    assert!(lookup.service.open_files() <= 64);
    let share = share_of_a_core(&lookup, Duration::from_secs(2)).await;
    assert!(share < 0.05, "{share} of a core, with no descriptor left");
    outlast(&lookup, &key, crowd).await;
}

/// Writes `head`, then up to `megabytes` of `filler`, and gives the answer as far as its error body.
async fn flood(addr: SocketAddr, head: String, filler: u8, megabytes: usize) -> String {
    let (mut read, mut write) = TcpStream::connect(addr).await.unwrap().into_split();
    let writing = tokio::spawn(async move {
        let block = vec![filler; 1 << 20];
        // The server stops reading early, so a write may well fail.
        let _ = write.write_all(head.as_bytes()).await;
        for _ in 0..megabytes {
            if write.write_all(&block).await.is_err() {
                break;
            }
        }
        write
    });
    let mut answer = String::new();
    let reading = async {
        let mut part = vec![0; 4096];
        while let Ok(length @ 1..) = read.read(&mut part).await {
            answer.push_str(&String::from_utf8_lossy(&part[..length]));
            if answer.ends_with('}') {
                break;
            }
        }
    };
    timeout(PATIENCE, reading).await.expect("an answer in time");
    writing.abort();
    answer
}

/// The status, and what every error has.
fn check_refused(answer: &str, status: u16) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("access-control-allow-origin: *"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"));
    assert!(["error", "message", "docs"].iter().all(|field| body[field].is_string()), "{answer}");
}

/// A request and its cancellation, many times over, in frames made by hand: a real client would send neither.
fn rapid_resets(count: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in (0..count).map(|n| (2 * n + 1).to_be_bytes()) {
        // HEADERS that end both headers and stream: GET, http, /, authority "t"; then RST_STREAM with CANCEL.
        bytes.extend([0, 0, 6, 1, 5].iter().chain(&stream).chain(b"\x82\x86\x84\x41\x01t"));
        bytes.extend([0, 0, 4, 3, 0].iter().chain(&stream).chain(&[0, 0, 0, 8]));
    }
    bytes
}

/// Whether the frames that a server sent have a GOAWAY.
fn has_goaway(mut bytes: &[u8]) -> bool {
    while let [a, b, c, kind, _flags, _, _, _, _, rest @ ..] = bytes {
        if *kind == 7 {
            return true;
        }
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        bytes = &rest[length.min(rest.len())..];
    }
    false
}

#[tokio::test]
async fn floods_are_refused_at_once_and_cost_no_memory() {
    let stack = Stack::start(&GENEROUS, &[]).await;
    let key = stack.key(Scope::Full).await;
    let lookup = &stack.lookup;
    // What it has after some requests is what it needs; floods must not add to it.
    for _ in 0..200 {
        assert_eq!(Answer::of(lookup.ask(&key.secret)).await.status, 200);
    }
    let before = lookup.service.peak_rss();
    let request = |headers: &str| format!("GET /api/v1/ip HTTP/1.1\r\nHost: t\r\n{headers}");
    let long = request("Content-Type: application/json\r\nContent-Length: 209715200\r\n\r\n");
    check_refused(&flood(lookup.addr(), long, b'[', 200).await, 413);
    let chunked = request("Transfer-Encoding: chunked\r\n\r\nC800000\r\n");
    check_refused(&flood(lookup.addr(), chunked, b'[', 200).await, 413);
    let long = request(&format!("X-Long: {}\r\n\r\n", "x".repeat(20_000)));
    check_refused(&flood(lookup.addr(), long, b'x', 0).await, 431);
    // Beyond what it is willing to keep, hyper itself refuses, without a body.
    let answer = flood(lookup.addr(), request("X-Long: "), b'x', 1).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    for _ in 0..20 {
        let mut socket = TcpStream::connect(lookup.addr()).await.unwrap();
        // The server may close before it has read all.
        let _ = socket.write_all(&rapid_resets(10_000)).await;
        let mut received = Vec::new();
        let _ = timeout(PATIENCE, socket.read_to_end(&mut received)).await.expect("the server closes");
        assert!(has_goaway(&received), "{received:?}");
    }
    let grown = lookup.service.peak_rss().saturating_sub(before);
    assert!(grown < 10 << 20, "{grown} bytes more than before");
    assert_eq!(Answer::of(lookup.ask(&key.secret)).await.status, 200, "everyone else is served as before");
}
