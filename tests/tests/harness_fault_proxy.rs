//! The fault proxy does to a connection exactly what its name says, so that fault tests prove what they claim.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use e2e::fault_proxy::{Fault, FaultProxy};
use e2e::wait::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(100);

/// A server that sends everything back, and the proxy before it.
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
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).await?;
    Ok(String::from_utf8(answer).unwrap())
}

#[tokio::test]
async fn without_a_fault_everything_passes() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    assert_eq!(exchange(&mut stream, "hello").await.unwrap(), "hello");
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0, "the target's end reaches the client");
    assert_eq!((proxy.accepted(), proxy.requested()), (1, 5));
}

#[tokio::test]
async fn a_delay_holds_answers_back_on_an_open_connection() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, "warm").await.unwrap();
    proxy.set(Fault::Delay(SHORT));
    let start = Instant::now();
    assert_eq!(exchange(&mut stream, "slow").await.unwrap(), "slow");
    assert!(start.elapsed() >= SHORT);
    proxy.set(Fault::Delay(Duration::from_secs(3600)));
    stream.write_all(b"waits").await.unwrap();
    let mut answer = [0; 5];
    assert!(timeout(SHORT, stream.read(&mut answer)).await.is_err());
    proxy.set(Fault::None);
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"waits", "the end of the fault ends the wait, too");
}

#[tokio::test]
async fn a_drip_delivers_one_byte_at_a_time() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    proxy.set(Fault::Drip(Duration::from_millis(20)));
    let start = Instant::now();
    assert_eq!(exchange(&mut stream, "12345").await.unwrap(), "12345");
    assert!(start.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn a_cut_resets_in_mid_reply_after_so_many_bytes() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, "before the fault").await.unwrap();
    proxy.set(Fault::CutAfter(3));
    stream.write_all(b"abcdef").await.unwrap();
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).await.unwrap_err();
    assert_eq!((got.as_slice(), error.kind()), (&b"abc"[..], ErrorKind::ConnectionReset));
    proxy.set(Fault::None);
    assert_eq!(exchange(&mut connect(&proxy).await, "again").await.unwrap(), "again");
}

#[tokio::test]
async fn a_cut_after_nothing_resets_once_the_target_has_answered() {
    let proxy = echo().await;
    proxy.set(Fault::CutAfter(0));
    let mut stream = connect(&proxy).await;
    let error = exchange(&mut stream, "abc").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.requested(), 3, "the target was asked");
}

#[tokio::test]
async fn a_cut_spans_several_replies_of_one_connection() {
    let proxy = echo().await;
    proxy.set(Fault::CutAfter(6));
    let mut stream = connect(&proxy).await;
    assert_eq!(exchange(&mut stream, "1234").await.unwrap(), "1234");
    stream.write_all(b"5678").await.unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.unwrap_err();
    assert_eq!(got, b"56");
}

#[tokio::test]
async fn a_black_hole_swallows_answers_and_resets_when_it_ends() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    proxy.set(Fault::Blackhole);
    stream.write_all(b"lost").await.unwrap();
    eventually(Duration::from_secs(5), "4 bytes swallowed", async || (proxy.swallowed() == 4).then_some(()))
        .await;
    assert!(timeout(SHORT, stream.read(&mut [0; 8])).await.is_err(), "open and silent");
    proxy.set(Fault::None);
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_half_close_ends_answers_but_not_requests() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, "warm").await.unwrap();
    proxy.set(Fault::HalfClose);
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    stream.write_all(b"still asking").await.unwrap();
    let asked = async || (proxy.requested() == 16).then_some(());
    eventually(Duration::from_secs(5), "the target still gets requests", asked).await;
}

#[tokio::test]
async fn a_stall_loses_nothing() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, "warm").await.unwrap();
    proxy.set(Fault::Stall);
    stream.write_all(b"later").await.unwrap();
    let mut answer = [0; 5];
    assert!(timeout(SHORT, stream.read(&mut answer)).await.is_err());
    assert_eq!(proxy.requested(), 4, "nothing reaches the target");
    proxy.set(Fault::None);
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"later");
}

#[tokio::test]
async fn a_refusal_resets_open_connections_and_refuses_new_ones() {
    let proxy = echo().await;
    let mut stream = connect(&proxy).await;
    exchange(&mut stream, "warm").await.unwrap();
    proxy.set(Fault::Refuse);
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let refused = async || TcpStream::connect(proxy.addr()).await.err().map(|e| e.kind());
    let kind = eventually(Duration::from_secs(5), "a refused connection", refused).await;
    assert_eq!(kind, ErrorKind::ConnectionRefused);
    proxy.set(Fault::None);
    let mut again = eventually(Duration::from_secs(5), "a new connection", async || {
        TcpStream::connect(proxy.addr()).await.ok()
    })
    .await;
    assert_eq!(exchange(&mut again, "back").await.unwrap(), "back");
}
