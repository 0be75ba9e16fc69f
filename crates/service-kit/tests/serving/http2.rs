//! HTTP/2 clients, with prior knowledge on the plain port.

use std::time::Duration;

use bytes::Bytes;
use h2::client::{Connection, SendRequest, handshake};
use http::{Method, Request, Response, Version};
use service_kit::ServeArgs;
use tokio::{io::AsyncReadExt, net::TcpStream, task::JoinHandle, time::timeout};

use crate::rig::{PATIENCE, Rig, args, hello};

type End = JoinHandle<Result<(), h2::Error>>;

async fn connect(rig: &Rig) -> (SendRequest<Bytes>, End) {
    let (sender, connection): (_, Connection<TcpStream, Bytes>) =
        handshake(rig.connect().await.0).await.expect("a handshake");
    (sender.ready().await.expect("the settings"), tokio::spawn(connection))
}

fn get(header: Option<String>) -> Request<()> {
    let request = Request::get("http://test/").version(Version::HTTP_2);
    match header {
        Some(value) => request.header("x-long", value),
        None => request,
    }
    .body(())
    .expect("a request")
}

async fn send(sender: &mut SendRequest<Bytes>, request: Request<()>) -> Response<h2::RecvStream> {
    let (answer, _) = sender.send_request(request, true).expect("a stream");
    timeout(PATIENCE, answer).await.expect("in time").expect("an answer")
}

async fn end(end: End) -> Result<(), h2::Error> {
    timeout(PATIENCE, end).await.expect("the connection ends").expect("no panic")
}

#[tokio::test]
async fn a_stream_limit_is_announced() {
    let rig = Rig::start(&args(), hello()).await;
    let (mut sender, _end) = connect(&rig).await;
    assert_eq!(send(&mut sender, get(None)).await.status(), 200);
    assert_eq!(sender.current_max_send_streams(), 200);
}

#[tokio::test]
async fn long_headers_are_answered_431_with_our_body() {
    let rig = Rig::start(&args(), hello()).await;
    let (mut sender, _end) = connect(&rig).await;
    let mut answer = send(&mut sender, get(Some("x".repeat(17 * 1024)))).await;
    assert_eq!(answer.status(), 431);
    let body = answer.body_mut().data().await.expect("a body").expect("bytes");
    assert!(body.starts_with(b"{\"error\":\"headers_too_large\""));
}

#[tokio::test]
async fn an_answer_to_head_ends_with_its_headers() {
    let rig = Rig::start(&args(), hello()).await;
    let (mut sender, _end) = connect(&rig).await;
    for path in ["/", "/nowhere"] {
        let mut request = get(None);
        *request.method_mut() = Method::HEAD;
        *request.uri_mut() = format!("http://test{path}").parse().expect("an address");
        let answer = send(&mut sender, request).await;
        assert!(answer.body().is_end_stream(), "{path}: {}", answer.status());
    }
}

/// A request and its cancellation, a hundred times over, in frames made by hand: a real client would
/// rather send neither.
fn rapid_resets() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in (0..100_u32).map(|n| (2 * n + 1).to_be_bytes()) {
        // HEADERS that end both headers and stream: GET, http, /, authority "t".
        bytes.extend([0, 0, 6, 1, 5].iter().chain(&stream).chain(b"\x82\x86\x84\x41\x01t"));
        // RST_STREAM with CANCEL.
        bytes.extend([0, 0, 4, 3, 0].iter().chain(&stream).chain(&[0, 0, 0, 8]));
    }
    bytes
}

/// The frames a server sent, as (type, payload).
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
async fn rapid_resets_are_answered_with_goaway() {
    let rig = Rig::start(&args(), hello()).await;
    let mut client = rig.connect().await;
    client.send(rapid_resets()).await;
    let mut received = Vec::new();
    // The server may reset the connection after its last word.
    let _ = timeout(PATIENCE, client.0.read_to_end(&mut received)).await.expect("the server closes");
    let frames = frames(&received);
    let goaway = frames.iter().find(|(kind, _)| *kind == 7).expect("GOAWAY");
    let enhance_your_calm = [0, 0, 0, 11];
    assert_eq!(goaway.1[4..8], enhance_your_calm);
    assert_eq!(rig.connect().await.get("/").await.status, 200, "everyone else is served as before");
}

#[tokio::test]
async fn an_idle_connection_is_told_to_go() {
    let args = ServeArgs { idle_timeout: Duration::from_millis(200), ..args() };
    let rig = Rig::start(&args, hello()).await;
    let (mut sender, connection) = connect(&rig).await;
    assert_eq!(send(&mut sender, get(None)).await.status(), 200);
    end(connection).await.expect("GOAWAY without an error");
}

#[tokio::test]
async fn a_connection_that_never_asks_is_closed_by_the_header_deadline() {
    let args = ServeArgs { header_timeout: Duration::from_millis(200), ..args() };
    let rig = Rig::start(&args, hello()).await;
    let (_sender, connection) = connect(&rig).await;
    let _ = end(connection).await;
}

#[tokio::test]
async fn at_the_stop_a_stream_under_way_is_finished() {
    let (endpoint, gate) = crate::stop::gated();
    let rig = Rig::start(&args(), endpoint).await;
    let (mut sender, connection) = connect(&rig).await;
    let (answer, _) = sender.send_request(get(None), true).expect("a stream");
    gate.entered().await;
    rig.lifecycle.begin_stop();
    rig.lifecycle.stopping().await;
    gate.open();
    assert_eq!(timeout(PATIENCE, answer).await.expect("in time").expect("an answer").status(), 200);
    end(connection).await.expect("GOAWAY without an error");
    rig.ended().await;
}
