//! HTTP/2 clients without TLS, which use HTTP/2 from the first byte ("prior knowledge").

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Connection, SendRequest, handshake};
use http::{Method, Request, Response, Version};
use http_server::ServeArgs;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};

use crate::harness::{TIMEOUT, TestServer, args, hello};

/// The connection preface and an empty SETTINGS frame.
const PREFACE_AND_SETTINGS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

type ConnectionTask = JoinHandle<Result<(), h2::Error>>;

async fn connect(server: &TestServer) -> (SendRequest<Bytes>, ConnectionTask) {
    let (sender, connection): (_, Connection<TcpStream, Bytes>) =
        handshake(server.connect().await.0).await.expect("handshake");
    (sender.ready().await.expect("server sends SETTINGS"), tokio::spawn(connection))
}

fn get() -> Request<()> {
    Request::get("http://test/").version(Version::HTTP_2).body(()).expect("valid request")
}

/// A request with `count` headers of 15 KiB each.
fn get_with_long_headers(count: usize) -> Request<()> {
    let mut request = get();
    for n in 0..count {
        let name = http::HeaderName::try_from(format!("x-{n}")).expect("valid name");
        request.headers_mut().insert(name, "x".repeat(15 * 1024).parse().expect("valid value"));
    }
    request
}

async fn send(sender: &mut SendRequest<Bytes>, request: Request<()>) -> Response<h2::RecvStream> {
    let (response, _) = sender.send_request(request, true).expect("open stream");
    timeout(TIMEOUT, response).await.expect("response in time").expect("response")
}

async fn wait_closed(task: ConnectionTask) -> Result<(), h2::Error> {
    timeout(TIMEOUT, task).await.expect("connection closes in time").expect("no panic")
}

#[tokio::test]
async fn stream_limit_is_announced() {
    let server = TestServer::start(&args(), hello()).await;
    let (mut sender, _connection) = connect(&server).await;
    assert_eq!(send(&mut sender, get()).await.status(), 200);
    let max_streams = 32;
    assert_eq!(sender.current_max_send_streams(), max_streams);
}

#[tokio::test]
async fn headers_over_own_limit_get_431_with_error_body() {
    let server = TestServer::start(&args(), hello()).await;
    let (mut sender, _connection) = connect(&server).await;
    let mut response = send(&mut sender, get_with_long_headers(2)).await;
    assert_eq!(response.status(), 431);
    let body = response.body_mut().data().await.expect("body").expect("data frame");
    assert!(body.starts_with(b"{\"error\":\"headers_too_large\""));
}

#[tokio::test]
async fn more_than_100_headers_get_431_with_error_body() {
    let server = TestServer::start(&args(), hello()).await;
    let (mut sender, _connection) = connect(&server).await;
    let mut request = get();
    for n in 0..101 {
        request.headers_mut().insert(http::HeaderName::try_from(format!("x-{n}")).expect("valid"), n.into());
    }
    let response = send(&mut sender, request).await;
    assert_eq!(response.status(), 431);
    assert!(body(response).await.starts_with(b"{\"error\":\"headers_too_large\""));
}

/// The body of a response.
async fn body(mut response: Response<h2::RecvStream>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(data) = timeout(TIMEOUT, response.body_mut().data()).await.expect("data in time") {
        bytes.extend(data.expect("no error"));
    }
    bytes
}

#[tokio::test]
async fn headers_over_h2_limit_get_431_and_the_connection_stays_open() {
    let server = TestServer::start(&args(), hello()).await;
    let (mut sender, _connection) = connect(&server).await;
    assert_eq!(send(&mut sender, get_with_long_headers(5)).await.status(), 431);
    assert_eq!(send(&mut sender, get()).await.status(), 200);
}

#[tokio::test]
async fn malformed_authority_or_two_hosts_get_400() {
    let server = TestServer::start(&args(), hello()).await;
    let (mut sender, _connection) = connect(&server).await;
    let mut two_hosts = get();
    for host in ["test", "other"] {
        two_hosts.headers_mut().append("host", http::HeaderValue::from_static(host));
    }
    let mut malformed = get();
    *malformed.uri_mut() = http::Uri::from_static("http://user@test/");
    for request in [two_hosts, malformed] {
        let response = send(&mut sender, request).await;
        assert_eq!(response.status(), 400);
        assert!(body(response).await.starts_with(b"{\"error\":\"bad_request\""));
    }
}

#[tokio::test]
async fn response_to_head_request_has_no_data_frame() {
    let server = TestServer::start(&args(), hello()).await;
    let (mut sender, _connection) = connect(&server).await;
    for path in ["/", "/nowhere"] {
        let mut request = get();
        *request.method_mut() = Method::HEAD;
        *request.uri_mut() = format!("http://test{path}").parse().expect("valid URL");
        let response = send(&mut sender, request).await;
        assert!(response.body().is_end_stream(), "{path}: {}", response.status());
    }
}

/// Requests, each canceled immediately, as raw frames: client libraries would not send them.
fn rapid_resets(count: u32) -> Vec<u8> {
    let mut bytes = PREFACE_AND_SETTINGS.to_vec();
    for stream in (0..count).map(|n| (2 * n + 1).to_be_bytes()) {
        // HEADERS with END_HEADERS and END_STREAM: GET, http, /, authority "t".
        bytes.extend([0, 0, 6, 1, 5].iter().chain(&stream).chain(b"\x82\x86\x84\x41\x01t"));
        // RST_STREAM with CANCEL.
        bytes.extend([0, 0, 4, 3, 0].iter().chain(&stream).chain(&[0, 0, 0, 8]));
    }
    bytes
}

/// Parses frames into (type, payload).
fn frames(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let [a, b, c, kind, _flags, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        frames.push((*kind, payload));
        bytes = rest;
    }
    frames
}

#[tokio::test]
async fn preface_in_two_pieces_begins_http2() {
    let server = TestServer::start(&args(), hello()).await;
    let mut client = server.connect().await;
    let (start, rest) = PREFACE_AND_SETTINGS.split_at(10);
    client.send(start).await;
    server.wait_until_read().await;
    // HEADERS with END_HEADERS and END_STREAM on stream 1: GET, http, /, authority "t".
    client.send([rest, b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01t"].concat()).await;
    let mut received = Vec::new();
    let status_200 = 0x88;
    let response = async {
        while !frames(&received)
            .iter()
            .any(|(kind, payload)| *kind == 1 && payload.first() == Some(&status_200))
        {
            assert_ne!(client.0.read_buf(&mut received).await.expect("readable"), 0, "{received:?}");
        }
    };
    timeout(TIMEOUT, response).await.expect("response in time");
}

#[tokio::test]
async fn rapid_resets_get_goaway() {
    let server = TestServer::start(&args(), hello()).await;
    let mut client = server.connect().await;
    client.send(rapid_resets(100)).await;
    let mut received = Vec::new();
    // The server may reset the connection after GOAWAY, so a read error is fine.
    let _ = timeout(TIMEOUT, client.0.read_to_end(&mut received)).await.expect("server closes in time");
    let frames = frames(&received);
    let goaway = frames.iter().find(|(kind, _)| *kind == 7).expect("GOAWAY");
    let enhance_your_calm = [0, 0, 0, 11];
    assert_eq!(goaway.1[4..8], enhance_your_calm);
    assert_eq!(server.connect().await.get("/").await.status, 200, "other clients are still served");
}

#[tokio::test]
async fn request_that_is_reset_as_it_arrives_is_not_handled() {
    let handled = Arc::new(AtomicUsize::new(0));
    let counter = handled.clone();
    let endpoint = poem::endpoint::make_sync(move |_| {
        counter.fetch_add(1, Relaxed);
        "hello"
    });
    let server = TestServer::start(&args(), endpoint).await;
    // Fewer than are a flood.
    server.connect().await.send(rapid_resets(10)).await;
    server.wait_until_read().await;
    assert_eq!(handled.load(Relaxed), 1, "only that of another connection");
}

#[tokio::test]
async fn idle_connection_gets_goaway() {
    let args = ServeArgs { idle_timeout: Duration::from_millis(200), ..args() };
    let server = TestServer::start(&args, hello()).await;
    let (mut sender, connection) = connect(&server).await;
    assert_eq!(send(&mut sender, get()).await.status(), 200);
    wait_closed(connection).await.expect("GOAWAY without an error");
}

#[tokio::test]
async fn pings_do_not_keep_idle_connection_open() {
    let args = ServeArgs { idle_timeout: Duration::from_millis(300), ..args() };
    let server = TestServer::start(&args, hello()).await;
    let (sender, mut connection): (_, Connection<TcpStream, Bytes>) =
        handshake(server.connect().await.0).await.expect("handshake");
    let mut pings = connection.ping_pong().expect("ping_pong is taken only once");
    let connection = tokio::spawn(connection);
    let mut sender = sender.ready().await.expect("server sends SETTINGS");
    assert_eq!(send(&mut sender, get()).await.status(), 200);
    let pinging = async {
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        while pings.ping(h2::Ping::opaque()).await.is_ok() {
            tick.tick().await;
        }
    };
    timeout(TIMEOUT, pinging).await.expect("the server closes the connection despite the pings");
    let _ = wait_closed(connection).await;
}

#[tokio::test]
async fn connection_without_requests_hits_header_timeout() {
    let args = ServeArgs { header_timeout: Duration::from_millis(200), ..args() };
    let server = TestServer::start(&args, hello()).await;
    let (_sender, connection) = connect(&server).await;
    let _ = wait_closed(connection).await;
}

#[tokio::test]
async fn stream_in_flight_completes_during_shutdown() {
    let (endpoint, gate) = crate::shutdown::gated();
    let server = TestServer::start(&args(), endpoint).await;
    let (mut sender, connection) = connect(&server).await;
    let (response, _) = sender.send_request(get(), true).expect("open stream");
    gate.entered().await;
    server.lifecycle.begin_shutdown();
    server.lifecycle.drain_delay_over().await;
    gate.open();
    let response = timeout(TIMEOUT, response).await.expect("response in time").expect("response");
    assert_eq!(response.status(), 200);
    wait_closed(connection).await.expect("GOAWAY without an error");
    server.wait_stopped().await;
}

#[tokio::test]
async fn response_that_closes_the_connection_gets_goaway() {
    let server = TestServer::start(&args(), closing()).await;
    let (mut sender, connection) = connect(&server).await;
    let response = send(&mut sender, get()).await;
    assert_eq!((response.status().as_u16(), response.headers().get("connection")), (200, None));
    wait_closed(connection).await.expect("GOAWAY without an error");
}

#[tokio::test]
async fn response_that_closes_an_http1_connection_says_so() {
    let server = TestServer::start(&args(), closing()).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    let mut response = String::new();
    timeout(TIMEOUT, client.0.read_to_string(&mut response)).await.expect("closed in time").expect("text");
    assert!(response.to_lowercase().contains("\r\nconnection: close\r\n"), "{response}");
}

/// Asks the client to reconnect with each response.
fn closing() -> impl poem::Endpoint {
    poem::endpoint::make_sync(|_| {
        let mut response = poem::Response::default();
        response.extensions_mut().insert(http_server::CloseConnection);
        response
    })
}

/// A frame with this type, flags and stream.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Sends frames after the preface until the server closes the connection, and checks that others are still served.
async fn closes_after(frames_to_send: impl Iterator<Item = Vec<u8>>) {
    let server = TestServer::start(&args(), hello()).await;
    let (mut read, mut write) = server.connect().await.0.into_split();
    let sending = async {
        let mut bytes = PREFACE_AND_SETTINGS.to_vec();
        for frame in frames_to_send {
            bytes.extend(frame);
            // Fails when the server has closed the connection.
            if bytes.len() > 4096 && write.write_all(&std::mem::take(&mut bytes)).await.is_err() {
                return;
            }
        }
        let _ = write.write_all(&bytes).await;
    };
    let mut received = Vec::new();
    let reading = async { drop(read.read_to_end(&mut received).await) };
    timeout(TIMEOUT, async { tokio::join!(sending, reading) }).await.expect("server closes in time");
    assert!(frames(&received).iter().any(|(kind, _)| *kind == 7), "GOAWAY");
    assert_eq!(server.connect().await.get("/").await.status, 200, "other clients are still served");
}

/// The header block of GET, http, /, authority "t".
const REQUEST_BLOCK: &[u8] = b"\x82\x86\x84\x41\x01t";

#[tokio::test]
async fn client_that_opens_200_streams_before_it_knows_the_limit_stays_connected() {
    let server = TestServer::start(&args(), hello()).await;
    let mut client = server.connect().await;
    let requests = (0..200).map(|n| frame(1, 5, 2 * n + 1, REQUEST_BLOCK)).collect::<Vec<_>>().concat();
    client.send([PREFACE_AND_SETTINGS, &requests, &frame(6, 0, 0, b"12345678")].concat()).await;
    let mut received = Vec::new();
    let is_pong = |frame: &(u8, &[u8])| frame.0 == 6 && frame.1 == b"12345678";
    let pong = async {
        while !frames(&received).iter().any(is_pong) {
            assert_ne!(client.0.read_buf(&mut received).await.expect("readable"), 0, "closed");
        }
    };
    timeout(TIMEOUT, pong).await.expect("response in time");
    assert!(!frames(&received).iter().any(|(kind, _)| *kind == 7), "no GOAWAY");
}

#[tokio::test]
async fn endless_continuation_frames_get_goaway() {
    let first = frame(1, 1, 1, REQUEST_BLOCK);
    let more = (0..100_000).map(|_| frame(9, 0, 1, b"\x00\x01a\x01b"));
    closes_after(std::iter::once(first).chain(more)).await;
}

#[tokio::test]
async fn streams_that_make_the_server_reset_them_get_goaway() {
    // "MadeYouReset": a WINDOW_UPDATE of 0 is an error of the stream, which the server must reset.
    let streams = (0..2_000).map(|n| 2 * n + 1);
    closes_after(
        streams.flat_map(|stream| [frame(1, 4, stream, REQUEST_BLOCK), frame(8, 0, stream, &[0; 4])]),
    )
    .await;
}

#[tokio::test]
async fn headers_that_repeat_a_long_table_entry_get_goaway() {
    // "HPACK bomb": an entry of 4,000 bytes in the table, then 1,000 references to it.
    let entry = [b"\x40\x01a\x7f\xbd\x1d".as_slice(), &[b'x'; 3_900]].concat();
    let block = [REQUEST_BLOCK, &entry, &[0xbe; 1_000]].concat();
    closes_after(std::iter::once(frame(1, 5, 1, &block))).await;
}
