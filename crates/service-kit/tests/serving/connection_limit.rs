//! More clients than `--max-connections` allows.

use std::time::Duration;

use http_server::ServeArgs;
use poem::Route;

use crate::harness::{Client, TestServer, args, hello};

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
async fn newcomer_is_closed_if_all_connections_of_its_network_are_busy() {
    let args = ServeArgs { max_connections: 4, ..args() };
    let (endpoint, gate) = crate::shutdown::gated();
    let server = TestServer::start(&args, endpoint).await;
    let mut busy = server.connect().await;
    busy.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    gate.entered().await;
    server.connect().await.wait_closed().await;
    gate.open();
    assert_eq!(busy.read_response().await.status, 200);
    assert_eq!(server.connect().await.get("/").await.status, 200, "the first connection is idle now");
}

/// A connection from this address that has sent a request and is idle.
async fn idle_client(server: &TestServer, address: [u8; 4]) -> Client {
    let mut client = server.connect_from(address.into()).await;
    assert_eq!(client.get("/").await.status, 200);
    client
}

#[tokio::test]
async fn network_with_the_most_connections_is_evicted_first() {
    let args = ServeArgs { max_connections: 48, ..args() };
    let server = TestServer::start(&args, hello()).await;
    // The oldest connections, which would be evicted first by age.
    let mut honest = Vec::new();
    for last in 10..14 {
        honest.push(idle_client(&server, [127, 0, 0, last]).await);
    }
    let mut greedy = Vec::new();
    for _ in 0..200 {
        greedy.push(idle_client(&server, [127, 0, 0, 9]).await);
    }
    for client in &mut honest {
        assert_eq!(client.get("/").await.status, 200, "the connection is still open");
    }
    greedy[0].wait_closed().await;
}

#[tokio::test]
async fn connections_without_a_request_are_evicted_before_idle_ones_of_the_same_address() {
    let args = ServeArgs { max_connections: 1024, ..args() };
    let server = TestServer::start(&args, hello()).await;
    let mut honest = Vec::new();
    for _ in 0..200 {
        honest.push(idle_client(&server, [127, 0, 0, 9]).await);
    }
    let mut silent = Vec::new();
    for _ in 0..1_000 {
        silent.push(server.connect_from([127, 0, 0, 9].into()).await);
    }
    server.wait_until_read().await;
    for client in &mut honest {
        assert_eq!(client.get("/").await.status, 200, "the connection is still open");
    }
}

#[tokio::test]
async fn busy_connections_of_four_networks_do_not_lock_out_another() {
    let args = ServeArgs { max_connections: 40, ..args() };
    let (endpoint, gate) = crate::shutdown::gated();
    let server = TestServer::start(&args, Route::new().at("/", hello()).at("/slow", endpoint)).await;
    let mut busy = Vec::new();
    for n in 0..40 {
        let mut client = server.connect_from([127, 0, 1, n % 4].into()).await;
        client.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n").await;
        gate.entered().await;
        busy.push(client);
    }
    let mut other = server.connect_from([127, 0, 0, 10].into()).await;
    assert_eq!(other.get("/").await.body, "hello");
}

#[tokio::test]
async fn request_above_its_networks_share_of_the_cost_closes_its_connection() {
    let (endpoint, gate) = crate::shutdown::gated();
    let server = TestServer::start(&args(), Route::new().at("/", hello()).at("/slow", endpoint)).await;
    let mut other = idle_client(&server, [127, 0, 0, 10]).await;
    // Each costs about 39 KiB, and a network may have 16 MiB.
    let fields = (0..90).map(|n| format!("X-{n}: {}\r\n", "x".repeat(145))).collect::<String>();
    let mut clients = Vec::new();
    for _ in 0..1000 {
        let mut client = server.connect_from([127, 0, 0, 9].into()).await;
        client.send(format!("GET /slow HTTP/1.1\r\nHost: test\r\n{fields}\r\n")).await;
        clients.push(client);
    }
    for client in clients.iter_mut().skip(990) {
        client.wait_closed().await;
    }
    assert_eq!(other.get("/").await.body, "hello");
    gate.open();
    assert_eq!(clients[0].read_response().await.status, 200, "it was there before the limit");
}
