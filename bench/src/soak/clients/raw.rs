//! Misbehaving clients on plain TCP: slow or endless headers, bytes that are not HTTP, connections without a request.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::super::client_stats::Observation;
use super::super::target::Target;

/// Connections per flood.
const FLOOD_CONNECTIONS: usize = 200;
/// Delay between two chunks of a slow request.
const CHUNK_DELAY: Duration = Duration::from_millis(300);
/// The server's header timeout of 10 s, plus a margin for a busy machine.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(14);

/// Sends a complete request without a key, in slow chunks: the response must be 401.
pub async fn slow(target: &Target) -> Observation {
    let chunks = ["GET /api/v1/ip HT", "TP/1.1\r\nHo", "st: soak\r\nConnec", "tion: close\r\n", "\r\n"];
    exchange(target, &chunks, |response| response.starts_with(b"HTTP/1.1 401 ")).await
}

/// Sends bytes that are not HTTP: the server must respond with 400, or close the connection without a response.
pub async fn garbage(target: &Target) -> Observation {
    let bytes = ["\u{16}\u{3}\u{1}\0no HTTP\r\n\r\n"];
    exchange(target, &bytes, |response| response.is_empty() || response.starts_with(b"HTTP/1.1 400 ")).await
}

async fn exchange(target: &Target, chunks: &[&str], is_expected: impl Fn(&[u8]) -> bool) -> Observation {
    let response = async {
        let mut socket = connect(target).await?;
        for (number, chunk) in chunks.iter().enumerate() {
            if number > 0 {
                sleep(CHUNK_DELAY).await;
            }
            socket.write_all(chunk.as_bytes()).await?;
        }
        let mut response = Vec::new();
        socket.read_to_end(&mut response).await.map(|_| response)
    };
    match timeout(CLOSE_TIMEOUT, response).await {
        Err(_) => Observation::Error("timeout".to_owned()),
        Ok(Err(_)) => Observation::Error("broken".to_owned()),
        Ok(Ok(response)) if is_expected(&response) => Observation::Expected,
        Ok(Ok(response)) => Observation::Wrong(String::from_utf8_lossy(&response).chars().take(30).collect()),
    }
}

/// Sends an endless header, one byte at a time: the server must close the connection.
pub async fn endless(target: &Target) -> Observation {
    let started = Instant::now();
    let until_closed = async {
        let mut socket = connect(target).await?;
        socket.write_all(b"GET /api/v1/ip HTTP/1.1\r\nX-Slow: ").await?;
        let (mut read, mut write) = socket.split();
        let send_bytes = async {
            while write.write_all(b"x").await.is_ok() {
                sleep(CHUNK_DELAY).await
            }
        };
        let mut response = Vec::new();
        // If one of our bytes is in flight when the server closes, the result is a connection reset: also fine.
        tokio::select! { _ = read.read_to_end(&mut response) => {}, () = send_bytes => {} }
        std::io::Result::Ok(())
    };
    match timeout(CLOSE_TIMEOUT, until_closed).await {
        Err(_) => Observation::Wrong(format!("not closed after {:?}", started.elapsed())),
        Ok(Err(_)) => Observation::Error("connect".to_owned()),
        Ok(Ok(())) => Observation::Expected,
    }
}

/// Opens many connections, sends nothing, and closes them after a short time.
pub async fn flood(target: &Target) -> Observation {
    let mut sockets = Vec::new();
    for _ in 0..FLOOD_CONNECTIONS {
        match connect(target).await {
            Ok(socket) => sockets.push(socket),
            Err(_) => return Observation::Error("connect".to_owned()),
        }
    }
    sleep(CHUNK_DELAY).await;
    Observation::Expected
}

async fn connect(target: &Target) -> std::io::Result<TcpStream> {
    TcpStream::connect(target.lookup.url("").trim_start_matches("http://")).await
}
