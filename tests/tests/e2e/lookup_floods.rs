//! Idle connections and floods on the public port are closed or rejected in time, while other requests are served.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quota_client::wire::Scope;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::http2::{goaway_code, rapid_resets};
use testkit::lookup::{JsonResponse, Lookup, Stack, WAIT_TIMEOUT};
use testkit::wait::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// Limits that these tests never reach.
const HIGH_LIMITS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];
/// A connection without a complete request is closed within 10 s. Busy machines get more.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(14);
/// After this many new connections, a check makes sure that the server has accepted them. Below the accept backlog of
/// 128: beyond it, a client can see an open connection that the server never got.
const CONNECTIONS_PER_CHECK: usize = 50;
/// Interval between the bytes of a slow connection. It sends at least three before it is closed, so it never looks
/// idle.
const DRIP_INTERVAL: Duration = Duration::from_secs(3);

/// Raises the soft limit of open files, often 1,024, to the hard limit.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let enough = limit.maximum.is_none_or(|maximum| maximum > 6_000);
    assert!(enough, "this test needs more than 6,000 file descriptors: raise the hard limit (ulimit -Hn)");
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// Sends nothing, or slowly sends an endless header, until the server closes the connection. Returns the elapsed time.
async fn hold(mut socket: TcpStream, drips: bool) -> Duration {
    let started = Instant::now();
    if drips {
        // The server may already have closed the connection.
        let _ = socket.write_all(b"GET /api/v1/ip HTTP/1.1\r\nHost: t\r\nX-Slow: ").await;
    }
    let (mut read, mut write) = socket.split();
    let mut sink = Vec::new();
    let dripping = async {
        let mut tick = interval(DRIP_INTERVAL);
        while drips && write.write_all(b"x").await.is_ok() {
            tick.tick().await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! { _ = read.read_to_end(&mut sink) => {}, () = dripping => {} }
    started.elapsed()
}

/// Checks that a request on a new connection gets 200.
async fn check_new_connection(lookup: &Lookup, key: &str) {
    let client = testkit::http::builder().pool_max_idle_per_host(0).build().unwrap();
    let response = JsonResponse::fetch(client.get(lookup.url() + "/api/v1/ip").bearer_auth(key)).await;
    assert_eq!(response.status, 200, "{response:?}");
}

/// Opens `count` connections that never complete a request; half of them send bytes slowly.
async fn open_idle_connections(lookup: &Lookup, count: usize, key: &str) -> JoinSet<Duration> {
    let mut connections = JoinSet::new();
    for i in 0..count {
        let socket = TcpStream::connect(lookup.addr()).await.unwrap();
        connections.spawn(hold(socket, i % 2 == 0));
        if i % CONNECTIONS_PER_CHECK == 0 {
            // Connections are accepted in order: once a new one gets a response, all earlier ones have been accepted.
            check_new_connection(lookup, key).await;
        }
    }
    connections
}

/// Sends requests until all idle connections are closed, which must happen in time.
async fn serve_until_closed(lookup: &Lookup, key: &str, mut connections: JoinSet<Duration>) {
    let mut request_interval = interval(Duration::from_millis(50));
    let all_closed = async {
        loop {
            tokio::select! {
                held = connections.join_next() => match held {
                    Some(held) => assert!(held.unwrap() < CLOSE_TIMEOUT),
                    None => return,
                },
                _ = request_interval.tick() => check_new_connection(lookup, key).await,
            }
        }
    };
    timeout(WAIT_TIMEOUT, all_closed).await.expect("all connections are closed");
}

/// The share of one CPU core that `lookup` uses while it gets no requests. Sleeps, because it measures over time.
async fn cpu_share(lookup: &Lookup, duration: Duration) -> f64 {
    let (before, started) = (lookup.service.cpu_time(), Instant::now());
    tokio::time::sleep(duration).await;
    (lookup.service.cpu_time() - before).as_secs_f64() / started.elapsed().as_secs_f64()
}

#[tokio::test]
async fn load_500_idle_connections_are_closed_in_time() {
    open_and_wait_for_close(500).await;
}

#[tokio::test]
async fn slow_5000_idle_connections_are_closed_in_time() {
    open_and_wait_for_close(5_000).await;
}

/// Opens idle connections and waits until the server has closed them. It keeps serving and uses little CPU.
async fn open_and_wait_for_close(count: usize) {
    raise_descriptor_limit();
    let stack = Stack::start(&HIGH_LIMITS, &[]).await;
    let (lookup, key) = (&stack.lookup, stack.key_with_scope(Scope::Full).await.secret);
    let connections = open_idle_connections(lookup, count, &key).await;
    assert!(lookup.service.open_files() > count, "all connections are open");
    let share = cpu_share(lookup, Duration::from_secs(2)).await;
    assert!(share < 0.05, "{share} of a core");
    serve_until_closed(lookup, &key, connections).await;
    eventually(WAIT_TIMEOUT, "all descriptors are released", async || {
        (lookup.service.open_files() < 60).then_some(())
    })
    .await;
}

#[tokio::test]
async fn idle_connections_are_evicted_at_64_descriptors() {
    let stack = Stack::start(&HIGH_LIMITS, &[]).await;
    let key = stack.key_with_scope(Scope::Full).await.secret;
    let flags = ["--quota-deadline", "10s", "--request-timeout", "12s"];
    let lookup = Lookup::start_under(&["prlimit", "--nofile=64"], stack.quota.url(), &flags, &[]).await;
    let connections = open_idle_connections(&lookup, 1_000, &key).await;
    assert!(lookup.service.open_files() <= 64);
    let share = cpu_share(&lookup, Duration::from_secs(2)).await;
    assert!(share < 0.05, "{share} of a core while no descriptor is free");
    serve_until_closed(&lookup, &key, connections).await;
}

/// Writes `head`, then up to `megabytes` MB of `filler`, and returns the response up to the end of its error body.
async fn flood(addr: SocketAddr, head: String, filler: u8, megabytes: usize) -> String {
    let (mut read, mut write) = TcpStream::connect(addr).await.unwrap().into_split();
    let writing = tokio::spawn(async move {
        let block = vec![filler; 1 << 20];
        // The server stops reading early, so writes can fail.
        let _ = write.write_all(head.as_bytes()).await;
        for _ in 0..megabytes {
            if write.write_all(&block).await.is_err() {
                break;
            }
        }
        write
    });
    let mut response = String::new();
    let reading = async {
        let mut part = vec![0; 4096];
        while let Ok(length @ 1..) = read.read(&mut part).await {
            response.push_str(&String::from_utf8_lossy(&part[..length]));
            if response.ends_with('}') {
                break;
            }
        }
    };
    timeout(WAIT_TIMEOUT, reading).await.expect("response in time");
    writing.abort();
    response
}

/// Checks the status and the parts that all errors have.
fn check_error_response(response: &str, status: u16) {
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    assert!(response.to_ascii_lowercase().contains("access-control-allow-origin: *"), "{response}");
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {response}"));
    assert!(["error", "message", "docs"].iter().all(|field| body[field].is_string()), "{response}");
}

#[tokio::test]
async fn floods_are_rejected_without_memory_growth() {
    let stack = Stack::start(&HIGH_LIMITS, &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    let lookup = &stack.lookup;
    // Memory after warm-up is the baseline.
    for _ in 0..200 {
        assert_eq!(JsonResponse::fetch(lookup.get_ip(&key.secret)).await.status, 200);
    }
    let before = lookup.service.peak_rss();
    let request = |headers: &str| format!("GET /api/v1/ip HTTP/1.1\r\nHost: t\r\n{headers}");
    let long_body = request("Content-Type: application/json\r\nContent-Length: 209715200\r\n\r\n");
    check_error_response(&flood(lookup.addr(), long_body, b'[', 200).await, 413);
    let chunked_body = request("Transfer-Encoding: chunked\r\n\r\nC800000\r\n");
    check_error_response(&flood(lookup.addr(), chunked_body, b'[', 200).await, 413);
    let long_header = request(&format!("X-Long: {}\r\n\r\n", "x".repeat(20_000)));
    check_error_response(&flood(lookup.addr(), long_header, b'x', 0).await, 431);
    // Beyond its buffer limit, hyper itself rejects the request. The response has our body all the same.
    check_error_response(&flood(lookup.addr(), request("X-Long: "), b'x', 1).await, 431);
    for _ in 0..20 {
        let mut socket = TcpStream::connect(lookup.addr()).await.unwrap();
        // The server may close before it has read everything.
        let _ = socket.write_all(&rapid_resets(10_000)).await;
        let mut received = Vec::new();
        let _ = timeout(WAIT_TIMEOUT, socket.read_to_end(&mut received))
            .await
            .expect("server closes the connection");
        assert!(goaway_code(&received).is_some(), "{received:?}");
    }
    let growth = lookup.service.peak_rss().saturating_sub(before);
    assert!(growth < 10 << 20, "memory grew by {growth} bytes");
    assert_eq!(
        JsonResponse::fetch(lookup.get_ip(&key.secret)).await.status,
        200,
        "other requests are still served"
    );
}
