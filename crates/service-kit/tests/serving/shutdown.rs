//! Shutdown without losing a request.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use http_server::{Lifecycle, ServeArgs, Server};
use poem::{
    Endpoint, EndpointExt,
    endpoint::{make, make_sync},
};
use tokio::{net::TcpStream, sync::Semaphore, time::timeout};

use crate::harness::{Client, TIMEOUT, TestServer, args, hello};

/// Blocks the handler of every request until the gate is opened. An open gate stays open.
pub struct Gate {
    entered: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    /// Waits until a request has reached the gate.
    pub async fn entered(&self) {
        let entered = timeout(TIMEOUT, self.entered.acquire()).await;
        entered.expect("request arrives in time").expect("semaphore is open").forget();
    }

    pub fn open(&self) {
        // Once the semaphore is closed, every `acquire` returns.
        self.open.close();
    }
}

pub fn gated() -> (impl Endpoint, Gate) {
    let gate = Gate { entered: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) };
    let (entered, open) = (gate.entered.clone(), gate.open.clone());
    let endpoint = make(move |_| {
        let (entered, open) = (entered.clone(), open.clone());
        async move {
            entered.add_permits(1);
            let _ = open.acquire().await;
            Ok::<_, poem::Error>("done")
        }
    });
    (endpoint, gate)
}

#[tokio::test]
async fn requests_in_flight_complete_and_idle_connections_close() {
    let (endpoint, gate) = gated();
    let server = TestServer::start(&args(), endpoint).await;
    let (mut idle, mut busy) = (server.connect().await, server.connect().await);
    busy.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    gate.entered().await;
    server.lifecycle.begin_shutdown();
    idle.wait_closed().await;
    gate.open();
    let response = busy.read_response().await;
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    busy.wait_closed().await;
    let addr = server.addr;
    server.wait_stopped().await;
    assert!(TcpStream::connect(addr).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn request_sent_as_shutdown_begins_gets_200() {
    let server = TestServer::start(&args(), hello()).await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/").await.status, 200);
    server.lifecycle.begin_shutdown();
    let response = client.get("/").await;
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    server.wait_stopped().await;
}

#[tokio::test]
async fn connections_that_wait_to_be_accepted_at_the_shutdown_are_served() {
    let args = ServeArgs { max_connections: 1, ..args() };
    let server = Server::bind("test", ([127, 0, 0, 1], 0).into(), &args).await.expect("bind");
    let (lifecycle, mut waiting) = (Lifecycle::new(&args), Vec::new());
    for _ in 0..3 {
        let socket = TcpStream::connect(server.local_addr()).await.expect("connect");
        waiting.push(Client(socket));
    }
    lifecycle.begin_shutdown();
    lifecycle.drain_delay_over().await;
    let serving = tokio::spawn(server.serve(hello().map_to_response().boxed(), lifecycle));
    for client in &mut waiting {
        client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
        assert_eq!(client.read_response().await.status, 200);
        client.wait_closed().await;
    }
    timeout(TIMEOUT, serving).await.expect("in time").expect("no panic");
}

#[tokio::test]
async fn first_byte_read_before_shutdown_is_not_lost() {
    let server = TestServer::start(&args(), make_sync(|request| request.method().to_string())).await;
    let mut client = server.connect().await;
    // Could also be the first byte of an HTTP/2 connection.
    client.send("P").await;
    server.wait_until_read().await;
    server.lifecycle.begin_shutdown();
    wait_port_closed(server.addr).await;
    client.send("UT / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.body.as_str()), (200, "PUT"));
    server.wait_stopped().await;
}

/// When the port is closed, all connections have the signal to drain.
async fn wait_port_closed(addr: SocketAddr) {
    let closed = async { while TcpStream::connect(addr).await.is_ok() {} };
    timeout(TIMEOUT, closed).await.expect("port closes in time");
}

#[tokio::test]
async fn partial_first_bytes_do_not_delay_shutdown() {
    let args = ServeArgs { grace: Duration::from_secs(60), ..args() };
    for first_bytes in ["P", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\n"] {
        let server = TestServer::start(&args, hello()).await;
        let mut client = server.connect().await;
        client.send(first_bytes).await;
        server.wait_until_read().await;
        server.lifecycle.begin_shutdown();
        let took = client.wait_closed().await;
        assert!(took < Duration::from_secs(5), "{first_bytes}: {took:?}");
        server.wait_stopped().await;
    }
}

#[tokio::test]
async fn partial_request_does_not_delay_shutdown() {
    let args = ServeArgs { grace: Duration::from_secs(60), ..args() };
    let server = TestServer::start(&args, hello()).await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/").await.status, 200);
    client.send("GET / HTTP/1.1\r\nX: ").await;
    server.lifecycle.begin_shutdown();
    let took = client.wait_closed().await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    server.wait_stopped().await;
}

#[tokio::test]
async fn new_connection_in_drain_delay_gets_connection_close() {
    let args = ServeArgs { drain_delay: Duration::from_secs(60), ..args() };
    let server = TestServer::start(&args, hello()).await;
    server.lifecycle.begin_shutdown();
    let mut client = server.connect().await;
    let response = client.get("/").await;
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    client.wait_closed().await;
    assert!(!server.task.is_finished());
}

#[tokio::test]
async fn grace_period_bounds_the_shutdown() {
    let args = ServeArgs { grace: Duration::from_millis(400), ..args() };
    let (endpoint, gate) = gated();
    let server = TestServer::start(&args, endpoint).await;
    let mut stuck = server.connect().await;
    stuck.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    gate.entered().await;
    let started = Instant::now();
    server.lifecycle.begin_shutdown();
    server.wait_stopped().await;
    let took = started.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_secs(3)).contains(&took), "{took:?}");
    stuck.wait_closed().await;
}
