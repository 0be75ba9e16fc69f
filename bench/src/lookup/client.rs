//! A client that controls when connections are opened and closed, unlike wrk.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustls::HandshakeKind;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::locations;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// Opens a connection, with TLS if there is a connector. Returns how the handshake was made.
pub(super) async fn connect(
    addr: SocketAddr,
    tls: Option<&TlsConnector>,
) -> anyhow::Result<(Box<dyn Stream>, Option<HandshakeKind>)> {
    let socket = TcpStream::connect(addr).await?;
    socket.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok((Box::new(socket), None)) };
    let stream = tls.connect(ServerName::try_from("localhost")?, socket).await?;
    let kind = stream.get_ref().1.handshake_kind();
    Ok((Box::new(stream), kind))
}

/// Sends a request and reads the response; with `connection` = `close`, up to the end of the connection.
pub(super) async fn exchange(
    stream: &mut Box<dyn Stream>,
    key: &str,
    connection: &str,
) -> anyhow::Result<()> {
    let request = format!(
        "GET /api/v1/ip?scope=full HTTP/1.1\r\nHost: bench\r\nConnection: {connection}\r\n\
         X-Forwarded-For: {}\r\nAuthorization: Bearer {key}\r\n\r\n",
        locations::SAMPLE[0]
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut response = Vec::with_capacity(2048);
    // The body is one JSON object without inner objects.
    while !response.ends_with(b"}") {
        let read = timeout(RESPONSE_TIMEOUT, stream.read_buf(&mut response)).await;
        ensure!(read.context("no response")?? > 0, "the connection was closed");
    }
    ensure!(response.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&response));
    if connection == "close" {
        ensure!(stream.read_buf(&mut response).await? == 0, "more than one response");
    }
    Ok(())
}

/// Opens a connection for each key, sends one request on it and keeps it open.
pub(super) async fn open_idle(
    addr: SocketAddr,
    tls: Option<&TlsConnector>,
    keys: &[String],
) -> anyhow::Result<Vec<Box<dyn Stream>>> {
    let mut idle = Vec::with_capacity(keys.len());
    for key in keys {
        let connected = connect(addr, tls).await;
        let (mut stream, _) = connected.with_context(|| format!("after {} connections", idle.len()))?;
        exchange(&mut stream, key, "keep-alive").await?;
        idle.push(stream);
    }
    Ok(idle)
}
