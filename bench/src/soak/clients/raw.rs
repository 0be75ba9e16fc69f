//! Clients that no HTTP library would be: slow, endless, silent, or not speaking HTTP at all.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::super::tally::Seen;
use super::super::target::Target;

/// Connections of one flood.
const FLOOD: usize = 200;
/// Between two pieces of a slow request.
const PIECE_EVERY: Duration = Duration::from_millis(300);
/// Headers have 10 s; some more for a machine that is busy.
const CLOSED_WITHIN: Duration = Duration::from_secs(14);

/// A whole request without a key in pieces: 401.
pub async fn slow(target: &Target) -> Seen {
    let pieces = ["GET /api/v1/ip HT", "TP/1.1\r\nHo", "st: soak\r\nConnec", "tion: close\r\n", "\r\n"];
    exchange(target, &pieces, |answer| answer.starts_with(b"HTTP/1.1 401 ")).await
}

/// Bytes that are no HTTP: 400, or no answer and a closed connection.
pub async fn garbage(target: &Target) -> Seen {
    let bytes = ["\u{16}\u{3}\u{1}\0no HTTP\r\n\r\n"];
    exchange(target, &bytes, |answer| answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 ")).await
}

async fn exchange(target: &Target, pieces: &[&str], due: impl Fn(&[u8]) -> bool) -> Seen {
    let talk = async {
        let mut socket = connect(target).await?;
        for (number, piece) in pieces.iter().enumerate() {
            if number > 0 {
                sleep(PIECE_EVERY).await;
            }
            socket.write_all(piece.as_bytes()).await?;
        }
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.map(|_| answer)
    };
    match timeout(CLOSED_WITHIN, talk).await {
        Err(_) => Seen::Error("timeout".to_owned()),
        Ok(Err(_)) => Seen::Error("broken".to_owned()),
        Ok(Ok(answer)) if due(&answer) => Seen::Right,
        Ok(Ok(answer)) => Seen::Wrong(String::from_utf8_lossy(&answer).chars().take(30).collect()),
    }
}

/// A header without an end, a byte at a time: must be closed in time.
pub async fn endless(target: &Target) -> Seen {
    let started = Instant::now();
    let drip = async {
        let mut socket = connect(target).await?;
        socket.write_all(b"GET /api/v1/ip HTTP/1.1\r\nX-Slow: ").await?;
        let (mut read, mut write) = socket.split();
        let dripping = async {
            while write.write_all(b"x").await.is_ok() {
                sleep(PIECE_EVERY).await
            }
        };
        let mut answer = Vec::new();
        // Closing may look like a reset where a byte of ours was still on its way.
        tokio::select! { _ = read.read_to_end(&mut answer) => {}, () = dripping => {} }
        std::io::Result::Ok(())
    };
    match timeout(CLOSED_WITHIN, drip).await {
        Err(_) => Seen::Wrong(format!("not closed after {:?}", started.elapsed())),
        Ok(Err(_)) => Seen::Error("connect".to_owned()),
        Ok(Ok(())) => Seen::Right,
    }
}

/// Many connections at once that send nothing, held for a moment.
pub async fn flood(target: &Target) -> Seen {
    let mut held = Vec::new();
    for _ in 0..FLOOD {
        match connect(target).await {
            Ok(socket) => held.push(socket),
            Err(_) => return Seen::Error("connect".to_owned()),
        }
    }
    sleep(PIECE_EVERY).await;
    Seen::Right
}

async fn connect(target: &Target) -> std::io::Result<TcpStream> {
    TcpStream::connect(target.lookup.url("").trim_start_matches("http://")).await
}
