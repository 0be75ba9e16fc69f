//! Every fault of the fault proxy affects connections exactly as documented; other fault tests depend on it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testkit::fault_proxy::{Fault, FaultProxy};
use testkit::wait::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(100);

/// Starts an echo server and a proxy in front of it.
async fn echo() -> FaultProxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr: SocketAddr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    FaultProxy::start(addr)
}

async fn connect(proxy: &FaultProxy) -> TcpStream {
    TcpStream::connect(proxy.addr()).await.unwrap()
}

async fn exchange(stream: &mut TcpStream, text: &str) -> std::io::Result<String> {
    stream.write_all(text.as_bytes()).await?;
    let mut response = vec![0; text.len()];
    stream.read_exact(&mut response).await?;
    Ok(String::from_utf8(response).unwrap())
}

#[tokio::test]
async fn everything_passes_without_fault() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    assert_eq!(exchange(&mut stream, "hello").await.unwrap(), "hello");
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0, "the target's close reaches the client");
    assert_eq!((proxy.accepted_connections(), proxy.request_bytes()), (1, 5));
}

#[tokio::test]
async fn delay_applies_to_open_connection() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, "warm").await.unwrap();
    proxy.set(Fault::Delay(SHORT));
    let start = Instant::now();
    assert_eq!(exchange(&mut stream, "slow").await.unwrap(), "slow");
    assert!(start.elapsed() >= SHORT);
    proxy.set(Fault::Delay(Duration::from_secs(3600)));
    stream.write_all(b"waits").await.unwrap();
    let mut response = [0; 5];
    assert!(timeout(SHORT, stream.read(&mut response)).await.is_err());
    proxy.set(Fault::None);
    stream.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"waits", "ending the fault ends the delay");
}

#[tokio::test]
async fn drip_delivers_one_byte_at_a_time() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    proxy.set(Fault::Drip(Duration::from_millis(20)));
    let start = Instant::now();
    assert_eq!(exchange(&mut stream, "12345").await.unwrap(), "12345");
    assert!(start.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn reset_after_cuts_response_midway() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, "before the fault").await.unwrap();
    proxy.set(Fault::ResetAfter(3));
    stream.write_all(b"abcdef").await.unwrap();
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).await.unwrap_err();
    assert_eq!((got.as_slice(), error.kind()), (&b"abc"[..], ErrorKind::ConnectionReset));
    proxy.set(Fault::None);
    assert_eq!(exchange(&mut connect(&proxy).await, "again").await.unwrap(), "again");
}

#[tokio::test]
async fn reset_after_zero_waits_for_first_response() {
    let proxy = echo().await;
    proxy.set(Fault::ResetAfter(0));
    let mut stream = connect(&proxy).await;
    let error = exchange(&mut stream, "abc").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.request_bytes(), 3, "request reached the target");
}

#[tokio::test]
async fn reset_after_counts_across_responses() {
    let proxy = echo().await;
    proxy.set(Fault::ResetAfter(6));
    let mut stream = connect(&proxy).await;
    assert_eq!(exchange(&mut stream, "1234").await.unwrap(), "1234");
    stream.write_all(b"5678").await.unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.unwrap_err();
    assert_eq!(got, b"56");
}

#[tokio::test]
async fn cut_discards_one_message_in_either_direction() {
    let proxy = echo().await;
    for (message, received) in [(2, 5), (3, 10)] {
        let (mut stream, before) = (connect(&proxy).await, proxy.request_bytes());
        proxy.set(Fault::CutAt(message));
        assert_eq!(exchange(&mut stream, "first").await.unwrap(), "first");
        let error = exchange(&mut stream, "again").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(proxy.request_bytes() - before, received, "message {message}");
        assert_eq!(exchange(&mut connect(&proxy).await, "third").await.unwrap(), "third");
        assert_eq!(proxy.messages(), message + 3);
    }
}

#[tokio::test]
async fn blackhole_discards_responses_then_resets() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    proxy.set(Fault::Blackhole);
    stream.write_all(b"lost").await.unwrap();
    eventually(Duration::from_secs(5), "4 bytes discarded", async || {
        (proxy.discarded_bytes() == 4).then_some(())
    })
    .await;
    assert!(timeout(SHORT, stream.read(&mut [0; 8])).await.is_err(), "the connection stays open and silent");
    proxy.set(Fault::None);
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn half_close_stops_responses_but_not_requests() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, "warm").await.unwrap();
    proxy.set(Fault::HalfClose);
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    stream.write_all(b"another call").await.unwrap();
    let received = async || (proxy.request_bytes() == 16).then_some(());
    eventually(Duration::from_secs(5), "target still gets requests", received).await;
}

#[tokio::test]
async fn stall_loses_nothing() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, "warm").await.unwrap();
    proxy.set(Fault::Stall);
    stream.write_all(b"later").await.unwrap();
    let mut response = [0; 5];
    assert!(timeout(SHORT, stream.read(&mut response)).await.is_err());
    assert_eq!(proxy.request_bytes(), 4, "nothing but the warm-up has reached the target");
    proxy.set(Fault::None);
    stream.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"later");
}

#[tokio::test]
async fn refuse_fault_resets_open_and_refuses_new_connections() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, "warm").await.unwrap();
    proxy.set(Fault::Refuse);
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let refused = async || TcpStream::connect(proxy.addr()).await.err().map(|e| e.kind());
    let kind = eventually(Duration::from_secs(5), "connection is refused", refused).await;
    assert_eq!(kind, ErrorKind::ConnectionRefused);
    proxy.set(Fault::None);
    let mut stream = eventually(Duration::from_secs(5), "new connection", async || {
        TcpStream::connect(proxy.addr()).await.ok()
    })
    .await;
    assert_eq!(exchange(&mut stream, "back").await.unwrap(), "back");
}
