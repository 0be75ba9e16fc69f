//! PROXY protocol: who may send headers, which are accepted, and what happens without one.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use http_server::{Lifecycle, ListenerArgs, RequestOrigin, ServeArgs, Server};
use poem::{Endpoint, EndpointExt, Request, endpoint::make_sync};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::timeout,
};

use crate::{
    harness::{CapturedLog, Client, TIMEOUT, TestServer, args},
    shutdown::gated,
};

#[path = "../../../../fuzz/proxy_header_oracle.rs"]
mod proxy_header_oracle;

const TRUSTED: &str = "127.0.0.1";
const UNTRUSTED: &str = "127.0.0.2";
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A server that requires headers, and accepts them from 127.0.0.1.
async fn serve(args: &ServeArgs, endpoint: impl Endpoint + 'static) -> TestServer {
    let server = Server::bind("test", "0.0.0.0:0".parse().expect("address"), args).await.expect("bind");
    let trusted: IpAddr = TRUSTED.parse().expect("address");
    let server =
        server.proxy_protocol(&ListenerArgs { proxy_protocol: true }).trust(move |peer| peer == trusted);
    let addr = SocketAddr::from(([127, 0, 0, 1], server.local_addr().port()));
    let lifecycle = Lifecycle::new(args);
    let task = tokio::spawn(server.serve(endpoint.map_to_response().boxed(), lifecycle.clone()));
    TestServer { addr, lifecycle, task }
}

/// Responds with the remote address of the request, the TCP peer, and whether the client is known.
fn addresses() -> impl Endpoint {
    make_sync(|request: Request| {
        let info = &RequestOrigin::of(&request).expect("served").connection;
        let known = if info.client_is_unknown() { "unknown" } else { "known" };
        let remote = request.remote_addr().as_socket_addr().expect("TCP").ip();
        format!("{remote} {} {known}", info.peer.ip())
    })
}

async fn connect_from(source: &str, addr: SocketAddr) -> Client {
    let socket = TcpSocket::new_v4().expect("socket");
    socket.bind(SocketAddr::new(source.parse().expect("address"), 0)).expect("bind");
    Client(socket.connect(addr).await.expect("connect"))
}

/// Sends bytes and ends the sending side. Returns everything that the server sends until it closes the connection.
async fn exchange(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut response = Vec::new();
    let exchange = async {
        // Fails if the server has already closed the connection.
        let _: io::Result<()> = async {
            stream.write_all(bytes).await?;
            stream.shutdown().await
        }
        .await;
        let _ = stream.read_to_end(&mut response).await;
    };
    timeout(TIMEOUT, exchange).await.expect("the server closes the connection in time");
    response
}

/// A header of version 2 for the client 192.0.2.1, with TLVs.
fn version_2(tlvs: &[u8]) -> Vec<u8> {
    let body = [[192, 0, 2, 1, 127, 0, 0, 1, 3, 232, 1, 187].as_slice(), tlvs].concat();
    [SIGNATURE, &[0x21, 0x11], &u16::try_from(body.len()).expect("short").to_be_bytes(), &body].concat()
}

fn headers() -> Vec<Vec<u8>> {
    let tls = b"\x20\x00\x28\x01\0\0\0\0\x21\x00\x07TLSv1.3\x23\x00\x16TLS_AES_128_GCM_SHA256";
    vec![
        b"PROXY TCP4 192.0.2.1 127.0.0.1 1000 443\r\n".to_vec(),
        b"PROXY TCP6 2001:db8::1 ::1 1000 443\r\n".to_vec(),
        b"PROXY UNKNOWN\r\n".to_vec(),
        version_2(&[]),
        version_2(tls),
        // With a checksum (CRC-32C).
        version_2(&[0x03, 0, 4, 0xD1, 0x6D, 0x26, 0x29]),
        [SIGNATURE, &[0x20, 0, 0, 0]].concat(),
    ]
}

#[tokio::test]
async fn requests_have_the_client_of_the_header() {
    let server = serve(&args(), addresses()).await;
    let want = [
        "192.0.2.1 127.0.0.1 known",
        "2001:db8::1 127.0.0.1 known",
        "127.0.0.1 127.0.0.1 unknown",
        "192.0.2.1 127.0.0.1 known",
        "192.0.2.1 127.0.0.1 known",
        "192.0.2.1 127.0.0.1 known",
        "127.0.0.1 127.0.0.1 unknown",
    ];
    for (header, want) in headers().iter().zip(want) {
        let mut client = server.connect().await;
        // In two parts, and the second one together with the first request.
        client.send(&header[..9]).await;
        client.send([&header[9..], b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"].concat()).await;
        assert_eq!(client.read_response().await.body, want);
        assert_eq!(client.get("/").await.body, want, "the same connection");
    }
}

#[tokio::test]
async fn headers_of_untrusted_peers_close_the_connection() {
    let server = serve(&args(), addresses()).await;
    for header in headers() {
        let bytes = [&header, REQUEST.as_bytes()].concat();
        let trusted = exchange(connect_from(TRUSTED, server.addr).await.0, &bytes).await;
        assert!(trusted.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&trusted));
        let untrusted = exchange(connect_from(UNTRUSTED, server.addr).await.0, &bytes).await;
        assert!(untrusted.is_empty(), "{}", String::from_utf8_lossy(&untrusted));
    }
    let without = exchange(connect_from(UNTRUSTED, server.addr).await.0, REQUEST.as_bytes()).await;
    assert!(without.is_empty(), "{}", String::from_utf8_lossy(&without));
}

#[tokio::test]
async fn missing_header_closes_the_connection_at_once() {
    let server = serve(&args(), addresses()).await;
    for start in [REQUEST.as_bytes(), b"G", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01"] {
        let mut client = server.connect().await;
        client.send(start).await;
        let elapsed = client.wait_closed().await;
        assert!(elapsed < Duration::from_secs(2), "before the timeout of 3 s: {elapsed:?}");
    }
}

#[tokio::test]
async fn stalled_headers_are_closed_after_3_seconds() {
    let server = serve(&args(), addresses()).await;
    let started = Instant::now();
    let mut stalled = Vec::new();
    for start in [&b""[..], b"PROXY TCP4 192.0", &version_2(&[])[..20]] {
        let mut client = server.connect().await;
        client.send(start).await;
        stalled.push(client);
    }
    let mut client = server.connect().await;
    client.send("PROXY TCP4 192.0.2.1 127.0.0.1 1000 443\r\n").await;
    assert_eq!(client.get("/").await.status, 200);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    for client in &mut stalled {
        client.wait_closed().await;
        let elapsed = started.elapsed();
        assert!((Duration::from_millis(2900)..Duration::from_secs(6)).contains(&elapsed), "{elapsed:?}");
    }
    assert_eq!(client.get("/").await.status, 200, "the open connection stays");
}

#[tokio::test]
async fn header_that_arrives_during_the_shutdown_is_served() {
    let (endpoint, gate) = gated();
    let server = serve(&args(), endpoint).await;
    let (mut late, mut stalled) = (server.connect().await, server.connect().await);
    late.send("PROXY TCP4 192.0.2.1").await;
    stalled.send("PROXY TCP4 192.0.2.1").await;
    server.lifecycle.begin_shutdown();
    late.send(" 127.0.0.1 1000 443\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    gate.entered().await;
    gate.open();
    assert_eq!(late.read_response().await.status, 200);
    stalled.wait_closed().await;
    server.wait_stopped().await;
}

#[tokio::test]
async fn incomplete_header_is_closed_at_the_end_of_a_short_grace_period() {
    let server = serve(&ServeArgs { grace: Duration::from_millis(100), ..args() }, addresses()).await;
    let mut late = server.connect().await;
    late.send("PROXY TCP4 192.0.2.1").await;
    server.lifecycle.begin_shutdown();
    server.wait_stopped().await;
    let rest = format!(" 127.0.0.1 1000 443\r\n{REQUEST}");
    let response = exchange(late.0, rest.as_bytes()).await;
    assert!(response.is_empty(), "{}", String::from_utf8_lossy(&response));
}

#[tokio::test]
async fn closed_connections_are_logged_with_the_port_and_without_addresses() {
    let log = CapturedLog::start();
    let server = serve(&args(), addresses()).await;
    exchange(connect_from(UNTRUSTED, server.addr).await.0, REQUEST.as_bytes()).await;
    exchange(connect_from(TRUSTED, server.addr).await.0, REQUEST.as_bytes()).await;
    for text in ["the peer is not a trusted proxy", "the connection does not begin with a PROXY header"] {
        let line = log.line(text);
        assert!(line.contains("server=\"test\"") && !line.contains("127.0.0."), "{line}");
    }
}

/// A deterministic generator of pseudorandom numbers (SplitMix64), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(below).expect("small")).expect("small")
    }

    /// Changes, inserts, removes, repeats or swaps bytes of a header, or cuts it.
    fn mutate(&mut self, header: &mut Vec<u8>) {
        let position = self.next(header.len());
        match self.next(8) {
            0 => header[position] ^= 1 << self.next(8),
            1 => header[position] = u8::try_from(self.next(256)).expect("a byte"),
            2 => {
                // At the start of a word, where parsers of numbers accept most.
                let word =
                    header[position..].iter().position(|byte| *byte == b' ').map_or(0, |space| space + 1);
                header.insert(position + word, b" \r\n\0+-.:019aPROXYTCU"[self.next(20)]);
            }
            3 if header.len() > 1 => drop(header.remove(position)),
            4 => header.truncate(position + 1),
            5 => header.extend_from_within(position..),
            6 => {
                let other = self.next(header.len());
                header.swap(position, other);
            }
            // Digits and lengths that stay plausible.
            _ => header[position] = header[position].wrapping_add(1),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_mutated_headers_are_accepted_only_if_valid() {
    const MUTATIONS: usize = 10_000;
    let server = serve(&args(), addresses()).await;
    let (mut random, valid_headers, mut tasks) = (Random(17), headers(), JoinSet::new());
    let (mut accepted, mut rejected) = (0, 0);
    for number in 0..MUTATIONS {
        let mut header = valid_headers[number % valid_headers.len()].clone();
        for _ in 0..=random.next(3) {
            random.mutate(&mut header);
        }
        if tasks.len() == 16 {
            count(tasks.join_next().await.expect("a task").expect("no panic"), &mut accepted, &mut rejected);
        }
        let addr = server.addr;
        tasks.spawn(async move {
            let bytes = [&header, REQUEST.as_bytes()].concat();
            let response = exchange(TcpStream::connect(addr).await.expect("connect"), &bytes).await;
            let response = String::from_utf8_lossy(&response).into_owned();
            let Some(valid) = proxy_header_oracle::valid_header(&bytes) else {
                assert_eq!(response, "", "accepted: {}", header.escape_ascii());
                return false;
            };
            // If the header has swallowed a part of the request, the rest is malformed or incomplete.
            if &bytes[valid.length..] == REQUEST.as_bytes() {
                let client = valid.client.unwrap_or(IpAddr::from([127, 0, 0, 1]));
                let want = format!("\r\n\r\n{client} 127.0.0.1 ");
                assert!(
                    response.starts_with("HTTP/1.1 200") && response.contains(&want),
                    "{}: {response}",
                    header.escape_ascii()
                );
            }
            true
        });
    }
    while let Some(task) = tasks.join_next().await {
        count(task.expect("no panic"), &mut accepted, &mut rejected);
    }
    assert_eq!(accepted + rejected, MUTATIONS);
    assert!(accepted > 500 && rejected > 5_000, "{accepted} accepted, {rejected} rejected");
    let mut client = server.connect().await;
    client.send(version_2(&[])).await;
    assert_eq!(client.get("/").await.body, "192.0.2.1 127.0.0.1 known", "the server still works");
}

fn count(is_accepted: bool, accepted: &mut usize, rejected: &mut usize) {
    *(if is_accepted { accepted } else { rejected }) += 1;
}

#[tokio::test]
async fn network_of_an_evicted_connection_is_that_of_the_header() {
    let server = serve(&ServeArgs { max_connections: 48, ..args() }, addresses()).await;
    let connect = async |address: &str| {
        let mut client = server.connect().await;
        client.send(format!("PROXY TCP4 {address} 127.0.0.1 1000 443\r\n")).await;
        assert_eq!(client.get("/").await.status, 200);
        client
    };
    let mut honest = [connect("192.0.2.1").await, connect("192.0.2.2").await];
    let mut greedy = Vec::new();
    for _ in 0..200 {
        greedy.push(connect("192.0.2.9").await);
    }
    for client in &mut honest {
        assert_eq!(client.get("/").await.status, 200, "the connection is still open");
    }
}
