//! Clients that read their responses slowly or not at all.

use std::time::Duration;

use bytes::Bytes;
use h2::{
    Reason,
    client::{Builder, SendRequest},
};
use http::{Request, Response, Version};
use service_kit::ServeArgs;
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

/// Reads until an error, without giving the server a larger window. Returns the number of bytes and the reason.
async fn read_until_reset(mut response: Response<h2::RecvStream>) -> (usize, Option<Reason>) {
    let mut bytes = 0;
    loop {
        match timeout(TIMEOUT, response.body_mut().data()).await.expect("end in time") {
            Some(Ok(data)) => bytes += data.len(),
            Some(Err(error)) => return (bytes, error.reason()),
            None => return (bytes, None),
        }
    }
}

#[tokio::test]
async fn http2_stream_without_progress_is_reset() {
    let args = ServeArgs { stall_timeout: Duration::from_millis(300), ..args() };
    for size in [2, 100, 100_000] {
        let server = TestServer::start(&args, download(size)).await;
        for window in [0, 1, 99, 5_000] {
            let mut sender = connect(&server, window).await;
            let expected = match size <= window as usize {
                true => (size, None),
                false => (window as usize, Some(Reason::CANCEL)),
            };
            // The second request shows that the connection stays open.
            for _ in 0..2 {
                let response = send(&mut sender).await;
                assert_eq!(read_until_reset(response).await, expected, "size {size}, window {window}");
            }
        }
    }
}

#[tokio::test]
async fn http2_download_at_low_speed_is_not_reset() {
    const SIZE: usize = 12_000;
    let stall = Duration::from_millis(1500);
    let args = ServeArgs { stall_timeout: stall, idle_timeout: stall, ..args() };
    let server = TestServer::start(&args, download(SIZE)).await;
    let mut sender = connect(&server, 600).await;
    let mut response = send(&mut sender).await;
    let (mut read, started) = (0, std::time::Instant::now());
    while let Some(data) = timeout(TIMEOUT, response.body_mut().data()).await.expect("data in time") {
        let length = data.expect("the stream is not reset").len();
        read += length;
        // The speed of the client: at most 4 KB per second.
        sleep(Duration::from_micros(250) * u32::try_from(length).expect("small")).await;
        response.body_mut().flow_control().release_capacity(length).expect("received bytes");
    }
    assert_eq!(read, SIZE);
    assert!(started.elapsed() > stall, "the download took longer than the timeout");
}

#[tokio::test]
async fn http1_client_that_stops_reading_is_disconnected() {
    let args = ServeArgs { stall_timeout: Duration::from_millis(300), ..args() };
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
    let mut waiting = server.connect().await;
    waiting.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    read_slowly(&mut busy, SIZE).await;
    assert_eq!(waiting.read_response().await.status, 200, "served once the download is over");
}

#[tokio::test]
async fn unread_responses_over_limit_get_503() {
    let server = TestServer::start(&args(), download(1 << 20)).await;
    let mut sender = connect(&server, 0).await;
    let mut unread = Vec::new();
    let mut rejected = 0;
    for _ in 0..40 {
        let response = send(&mut sender).await;
        assert_eq!(response.headers()["x-request-id"].len(), 16);
        match response.status().as_u16() {
            200 => unread.push(response),
            503 => rejected += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((unread.len(), rejected), (15, 25), "16 MiB minus some overhead");
    assert_eq!(server.connect().await.get("/").await.status, 200, "other connections are served");
    // Dropping the responses cancels their streams, which frees their memory.
    drop(unread);
    let freed = async { while send(&mut sender).await.status() != 200 {} };
    timeout(TIMEOUT, freed).await.expect("requests are served again");
}
