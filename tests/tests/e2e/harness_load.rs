//! The load generator records the outcome and latency of every call.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::http;
use testkit::loadgen::Load;
use testkit::wait::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server that responds to every request with an empty 200.
async fn always_ok() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while matches!(stream.read(&mut request).await, Ok(n) if n > 0) {
                    // If the client has disconnected, the next read fails.
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                }
            });
        }
    });
    addr
}

/// Waits for `count` more calls.
async fn more_calls(load: &Load, count: usize) {
    let goal = load.completed() + count;
    eventually(Duration::from_secs(20), "more calls", async || (load.completed() >= goal).then_some(()))
        .await;
}

#[tokio::test]
async fn outcomes_are_counted_and_ordered_by_start() {
    let proxy = FaultProxy::start(always_ok().await);
    let (client, url) = (http::client(), format!("http://{}/", proxy.addr()));
    let load = Load::http(4, move || client.get(&url));
    more_calls(&load, 100).await;
    let refused_at = Instant::now();
    proxy.set(Fault::Refuse);
    eventually(Duration::from_secs(5), "connections are refused", async || {
        tokio::net::TcpStream::connect(proxy.addr()).await.err()
    })
    .await;
    more_calls(&load, 50).await;
    let report = load.stop().await;
    let before = report.between(report.samples[0].at, refused_at);
    assert!(before.count("200") >= 96, "{before}");
    assert!(report.count("connect") >= 40, "{report}");
    assert_eq!(report.outcomes().values().sum::<usize>(), report.samples.len());
    assert!(report.samples.is_sorted_by_key(|sample| sample.at));
}

#[tokio::test]
async fn latency_includes_response_delay() {
    let proxy = FaultProxy::start(always_ok().await);
    proxy.set(Fault::Delay(Duration::from_millis(50)));
    let (client, url) = (http::client(), format!("http://{}/", proxy.addr()));
    let load = Load::http(2, move || client.get(&url));
    more_calls(&load, 10).await;
    let report = load.stop().await;
    assert!(report.percentile(0.5) >= Duration::from_millis(50), "{report}");
    assert!(report.slowest() >= report.percentile(0.5));
}

#[tokio::test]
async fn missing_response_counts_as_timeout() {
    let proxy = FaultProxy::start(always_ok().await);
    proxy.set(Fault::Stall);
    let client = http::builder().timeout(Duration::from_millis(50)).build().unwrap();
    let url = format!("http://{}/", proxy.addr());
    let load = Load::http(2, move || client.get(&url));
    more_calls(&load, 4).await;
    let report = load.stop().await;
    assert_eq!(report.count("timeout"), report.samples.len(), "{report}");
}
