//! Oversized headers, malformed requests and missing or ambiguous hosts.

use crate::harness::{RawResponse, TestServer, args, hello};

fn request(bytes: usize) -> String {
    format!("GET / HTTP/1.1\r\nHost: test\r\nX-Long: {}\r\n\r\n", "x".repeat(bytes))
}

#[tokio::test]
async fn headers_over_16_kib_get_431_with_error_body() {
    let server = TestServer::start(&args(), hello()).await;
    let mut client = server.connect().await;
    client.send(request(17 * 1024)).await;
    let response = client.read_response().await;
    assert_eq!(response.status, 431);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.json()["error"], "headers_too_large");
    assert_eq!(response.json()["docs"], "https://docs.example#headers_too_large");
}

#[tokio::test]
async fn headers_of_15_kib_are_accepted() {
    let server = TestServer::start(&args(), hello()).await;
    let mut client = server.connect().await;
    client.send(request(15 * 1024)).await;
    assert_eq!(client.read_response().await.status, 200);
}

#[tokio::test]
async fn megabyte_of_headers_gets_431() {
    let server = TestServer::start(&args(), hello()).await;
    let client = server.connect().await;
    let (read, mut write) = client.0.into_split();
    // The server stops reading early, so the write may fail.
    let writing = tokio::spawn(async move {
        let _ = tokio::io::AsyncWriteExt::write_all(&mut write, request(1 << 20).as_bytes()).await;
        write
    });
    let mut head = [0; 12];
    let mut read = read;
    tokio::io::AsyncReadExt::read_exact(&mut read, &mut head).await.expect("response");
    assert_eq!(&head, b"HTTP/1.1 431");
    drop(writing.await);
}

#[tokio::test]
async fn url_of_17_kib_gets_431() {
    let server = TestServer::start(&args(), hello()).await;
    let mut client = server.connect().await;
    assert_eq!(client.get(&format!("/?{}", "x".repeat(17 * 1024))).await.status, 431);
}

/// Sends `request` and checks that the response is an error with our body and headers.
async fn rejected(request: impl AsRef<[u8]>, status: u16, code: &str) -> RawResponse {
    let server = TestServer::start(&args(), hello()).await;
    let mut client = server.connect().await;
    client.send(request).await;
    let response = client.read_response().await;
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/json"), "{response:?}");
    assert_eq!(response.header("access-control-allow-origin"), Some("*"), "{response:?}");
    assert_eq!(response.json()["error"], code);
    assert_eq!(response.json()["docs"], format!("https://docs.example#{code}"));
    response
}

#[tokio::test]
async fn headers_over_library_limit_get_431_with_error_body() {
    let response = rejected(request(200 * 1024), 431, "headers_too_large").await;
    assert_eq!(response.header("connection"), Some("close"), "{response:?}");
    assert!(response.header("date").is_some());
}

#[tokio::test]
async fn more_than_100_headers_get_431_with_error_body() {
    let lines: String = (0..150).map(|n| format!("X-{n}: x\r\n")).collect();
    rejected(format!("GET / HTTP/1.1\r\nHost: test\r\n{lines}\r\n"), 431, "headers_too_large").await;
}

#[tokio::test]
async fn malformed_http_gets_400_with_error_body() {
    for malformed in [
        "GET / HTTP/1.1\r\nHost: test\r\nbad header\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: test\r\n\r\n",
        "G@T / HTTP/1.1\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: test\r\nContent-Length: x\r\n\r\n",
    ] {
        rejected(malformed, 400, "bad_request").await;
    }
}

#[tokio::test]
async fn malformed_request_after_a_valid_one_gets_400_with_error_body() {
    let server = TestServer::start(&args(), hello()).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\nnonsense\r\n\r\n").await;
    assert_eq!(client.read_response().await.body, "hello");
    assert_eq!(client.read_response().await.json()["error"], "bad_request");
    client.wait_closed().await;
}

#[tokio::test]
async fn missing_second_or_malformed_host_gets_400() {
    for headers in [
        "",
        "Host: test\r\nHost: test\r\n",
        "Host: a\r\nHost: b\r\n",
        "Host: localhost:8082.evil.example\r\n",
        "Host: [::1].evil.example\r\n",
        "Host: user@test\r\n",
        "Host: t\u{e9}st\r\n",
    ] {
        rejected(format!("GET / HTTP/1.1\r\n{headers}\r\n"), 400, "bad_request").await;
    }
    rejected("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400, "bad_request").await;
    rejected("GET http://a:b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_request").await;
}

#[tokio::test]
async fn http10_without_host_is_served() {
    let server = TestServer::start(&args(), hello()).await;
    for head in ["HTTP/1.0\r\n", "HTTP/1.0\r\nHost: [::1]:80\r\n", "HTTP/1.1\r\nHost:\r\n"] {
        let mut client = server.connect().await;
        client.send(format!("GET / {head}\r\n")).await;
        assert_eq!(client.read_response().await.status, 200, "{head}");
    }
}
