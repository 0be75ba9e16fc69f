//! Clients that read their responses slowly or not at all.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{Request, Response, Version};
use http_server::ServeArgs;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{interval, sleep, timeout},
};

use crate::harness::{Client, TIMEOUT, TestServer, args, download};

/// Opens an HTTP/2 connection on which each response may have `window` unread bytes.
async fn connect(server: &TestServer, window: u32) -> SendRequest<Bytes> {
    let mut builder = Builder::new();
    builder.initial_window_size(window);
    let (sender, connection) = builder.handshake(server.connect().await.0).await.expect("handshake");
    tokio::spawn(connection);
    sender.ready().await.expect("settings")
}

fn get() -> Request<()> {
    Request::get("http://test/").version(Version::HTTP_2).body(()).expect("valid request")
}

async fn send(sender: &mut SendRequest<Bytes>) -> Response<h2::RecvStream> {
    let (response, _) = sender.send_request(get(), true).expect("open stream");
    timeout(TIMEOUT, response).await.expect("response in time").expect("response")
}

#[tokio::test]
async fn http2_connection_is_closed_if_a_response_is_not_read_in_time() {
    let args = ServeArgs { response_timeout: Duration::from_millis(300), ..args() };
    // The server hands over pieces of 16 KiB as soon as the window has room for one byte. In the last case, h2 has all of it.
    for (size, window) in [(2, 0), (100_000, 0), (100_000, 1), (100_000, 5_000), (100, 99)] {
        let server = TestServer::start(&args, download(size)).await;
        let mut sender = connect(&server, window).await;
        let (mut response, mut bytes) = (send(&mut sender).await, 0);
        while let Some(Ok(data)) = timeout(TIMEOUT, response.body_mut().data()).await.expect("end in time") {
            bytes += data.len();
        }
        assert_eq!(bytes, window as usize, "size {size}, window {window}");
        assert!(sender.ready().await.is_err());
    }
}

#[tokio::test]
async fn http2_download_may_take_longer_than_the_timeout_if_it_makes_progress() {
    const SIZE: usize = 512 << 10;
    let timeout_of_none = Duration::from_millis(1000);
    let args = ServeArgs { response_timeout: timeout_of_none, idle_timeout: timeout_of_none, ..args() };
    let server = TestServer::start(&args, download(SIZE)).await;
    let mut sender = connect(&server, 16 << 10).await;
    let mut response = send(&mut sender).await;
    let (mut read, started) = (0, std::time::Instant::now());
    while let Some(data) = timeout(TIMEOUT, response.body_mut().data()).await.expect("data in time") {
        let length = data.expect("the connection is open").len();
        read += length;
        // The speed of the client: at most 333 KB per second.
        sleep(Duration::from_micros(3) * u32::try_from(length).expect("small")).await;
        response.body_mut().flow_control().release_capacity(length).expect("received bytes");
    }
    assert_eq!(read, SIZE);
    assert!(started.elapsed() > timeout_of_none);
}

#[tokio::test]
async fn http1_client_that_stops_reading_is_disconnected() {
    let args = ServeArgs { response_timeout: Duration::from_millis(20), ..args() };
    let server = TestServer::start(&args, download(16 << 20)).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    let closed = async {
        let mut tick = interval(Duration::from_millis(20));
        while client.0.write_all(b"x").await.is_ok() {
            tick.tick().await;
        }
    };
    timeout(TIMEOUT, closed).await.expect("the server closes the connection");
}

/// Reads a response of `size` bytes to the end, in parts with pauses in between.
async fn read_slowly(client: &mut Client, size: usize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.0.read_u8().await.expect("head"));
    }
    let mut part = vec![0; size / 16];
    for _ in 0..16 {
        timeout(TIMEOUT, client.0.read_exact(&mut part)).await.expect("in time").expect("the whole response");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn download_in_progress_is_not_evicted() {
    const SIZE: usize = 8 << 20;
    let args = ServeArgs { max_connections: 1, ..args() };
    let server = TestServer::start(&args, download(SIZE)).await;
    let mut busy = server.connect().await;
    busy.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    busy.0.readable().await.expect("the response begins");
    server.connect().await.wait_closed().await;
    read_slowly(&mut busy, SIZE).await;
    assert_eq!(server.connect().await.get("/").await.status, 200, "served once the download is over");
}

/// Counts the requests that it responds to, each with this many bytes.
fn counted(bytes: usize) -> (impl poem::Endpoint, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let endpoint = poem::endpoint::make_sync(move |_| {
        counter.fetch_add(1, Relaxed);
        vec![b'x'; bytes]
    });
    (endpoint, count)
}

#[tokio::test]
async fn http2_connection_is_closed_above_16_mib_of_unread_responses() {
    let (endpoint, handled) = counted(1 << 20);
    let server = TestServer::start(&args(), endpoint).await;
    let mut sender = connect(&server, 0).await;
    let responses: Vec<_> =
        (0..32).map(|_| sender.send_request(get(), true).expect("open stream").0).collect();
    for response in responses {
        // The last ones fail.
        let _ = timeout(TIMEOUT, response).await.expect("in time");
    }
    assert!(sender.ready().await.is_err(), "the connection is closed");
    assert_eq!(handled.load(Relaxed), 16);
}

#[tokio::test]
async fn http1_pipelined_requests_wait_while_responses_are_unread() {
    const REQUESTS: usize = 1000;
    let (endpoint, handled) = counted(20_000);
    let server = TestServer::start(&args(), endpoint).await;
    let client = server.connect().await;
    let (mut read, mut write) = client.0.into_split();
    let request = "GET / HTTP/1.1\r\nHost: test\r\n";
    let requests =
        format!("{}{request}Connection: close\r\n\r\n", format!("{request}\r\n").repeat(REQUESTS - 1));
    write.write_all(requests.as_bytes()).await.expect("small enough for the socket's buffers");
    server.wait_until_read().await;
    let before = handled.load(Relaxed);
    assert!(before < REQUESTS / 2, "{before} responses for a client that reads none");
    let mut responses = Vec::new();
    timeout(TIMEOUT, read.read_to_end(&mut responses)).await.expect("in time").expect("all responses");
    assert!(responses.len() > REQUESTS * 20_000);
    assert_eq!(handled.load(Relaxed), REQUESTS + 1);
}
