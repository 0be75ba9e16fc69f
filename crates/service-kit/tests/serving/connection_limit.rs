//! More clients than `--max-connections` allows.

use std::time::Duration;

use service_kit::ServeArgs;

use crate::harness::{TestServer, args, hello};

#[tokio::test]
async fn stalled_connections_are_evicted_at_limit() {
    let args = ServeArgs { max_connections: 8, ..args() };
    let server = TestServer::start(&args, hello()).await;
    let mut stalled = Vec::new();
    for _ in 0..40 {
        let mut client = server.connect().await;
        client.send("GET / HTTP/1.1\r\nX: ").await;
        stalled.push(client);
    }
    let mut client = server.connect().await;
    assert_eq!(client.get("/").await.body, "hello");
    // The oldest were evicted, long before the header timeout of 10 s.
    assert!(stalled[0].wait_closed().await < Duration::from_secs(5));
}

#[tokio::test]
async fn busy_connection_is_never_evicted() {
    let args = ServeArgs { max_connections: 1, ..args() };
    let (endpoint, gate) = crate::shutdown::gated();
    let server = TestServer::start(&args, endpoint).await;
    let mut busy = server.connect().await;
    busy.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    gate.entered().await;
    let mut waiting = server.connect().await;
    waiting.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    gate.open();
    assert_eq!(busy.read_response().await.status, 200);
    assert_eq!(waiting.read_response().await.status, 200, "served once the first connection is idle");
}
