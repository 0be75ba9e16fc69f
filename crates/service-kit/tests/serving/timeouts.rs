//! Slow and idle clients.

use std::{sync::Arc, time::Duration};

use http_server::ServeArgs;
use poem::{Endpoint, endpoint::make};
use tokio::{io::AsyncWriteExt, sync::Notify, time::timeout};

use crate::harness::{TestServer, args, hello};

const SHORT: Duration = Duration::from_millis(300);

fn short_header_timeout() -> ServeArgs {
    ServeArgs { header_timeout: SHORT, ..args() }
}

#[tokio::test]
async fn connection_without_a_byte_hits_header_timeout() {
    let server = TestServer::start(&short_header_timeout(), hello()).await;
    let took = server.connect().await.wait_closed().await;
    assert!((SHORT / 2..SHORT * 6).contains(&took), "{took:?}");
}

#[tokio::test]
async fn unfinished_headers_hit_header_timeout() {
    let server = TestServer::start(&short_header_timeout(), hello()).await;
    // The last two may also be the start of an HTTP/2 connection.
    for first_bytes in ["GET / HTTP/1.1\r\nHost: te", "P", "PRI * HTTP/2.0\r\n"] {
        let mut client = server.connect().await;
        client.send(first_bytes).await;
        let took = client.wait_closed().await;
        assert!((SHORT / 2..SHORT * 6).contains(&took), "{first_bytes}: {took:?}");
    }
}

#[tokio::test]
async fn trickled_headers_do_not_extend_timeout_on_reused_connection() {
    let server = TestServer::start(&short_header_timeout(), hello()).await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/").await.status, 200);
    let (mut read, mut write) = client.0.into_split();
    let drip = async {
        let mut tick = tokio::time::interval(SHORT / 6);
        while write.write_all(b"G").await.is_ok() {
            tick.tick().await;
        }
    };
    let closed = async { tokio::io::copy(&mut read, &mut tokio::io::sink()).await };
    let result = timeout(SHORT * 6, async {
        tokio::select! { _ = drip => {}, _ = closed => {} }
    })
    .await;
    assert!(result.is_ok(), "the connection is still open");
}

#[tokio::test]
async fn idle_connection_is_closed_after_idle_timeout() {
    let args = ServeArgs { idle_timeout: SHORT, ..args() };
    let server = TestServer::start(&args, hello()).await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/").await.body, "hello");
    let took = client.wait_closed().await;
    assert!((SHORT / 2..SHORT * 6).contains(&took), "{took:?}");
}

#[tokio::test]
async fn request_may_take_longer_than_all_timeouts() {
    let release = Arc::new(Notify::new());
    let args = ServeArgs { idle_timeout: SHORT / 6, header_timeout: SHORT / 6, ..args() };
    let server = TestServer::start(&args, waits_for(release.clone())).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    assert!(timeout(SHORT, client.0.readable()).await.is_err(), "no response yet and still open");
    release.notify_one();
    assert_eq!(client.read_response().await.status, 200);
}

#[tokio::test]
async fn half_closed_client_gets_its_response() {
    let release = Arc::new(Notify::new());
    let server = TestServer::start(&args(), waits_for(release.clone())).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    client.0.shutdown().await.expect("close the write side");
    release.notify_one();
    assert_eq!(client.read_response().await.body, "done");
    client.wait_closed().await;
}

fn waits_for(release: Arc<Notify>) -> impl Endpoint {
    make(move |_| {
        let release = release.clone();
        async move {
            release.notified().await;
            Ok::<_, poem::Error>("done")
        }
    })
}
