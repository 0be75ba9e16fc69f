//! Floods on the public port are rejected in time, while other requests are served.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;

use quota_client::wire::Scope;
use testkit::http2::{goaway_code, rapid_resets};
use testkit::lookup::{JsonResponse, Stack, WAIT_TIMEOUT};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Limits that these tests never reach.
const HIGH_LIMITS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];
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
            if response.ends_with("}\n") {
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
