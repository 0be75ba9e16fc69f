//! Oversized headers.

use crate::harness::{TestServer, args, hello};

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
