//! What precedes HTTP on a connection: a PROXY header, TLS, or both.

use std::time::Duration;

use tokio::{net::TcpStream, time::timeout};

use crate::proxy_header::{ProxyHeader, ProxyHeaderError};
use crate::socket::Socket;
use crate::tls::{Tls, TlsInfo};
use base::log_throttle::LogThrottle;

/// Maximum wait for a complete PROXY header. Load balancers send it immediately, before any byte of the client.
const PROXY_HEADER_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum bytes that TLS buffers for a client that does not read. They do not count as unsent.
const TLS_BUFFER: usize = 16 * 1024;

/// The handshakes of one port.
#[derive(Default)]
pub(crate) struct Handshakes {
    /// The port's name in the log.
    pub(crate) server: &'static str,
    /// Whether connections begin with a PROXY header.
    pub(crate) proxy_protocol: bool,
    pub(crate) tls: Option<Tls>,
    // One per message, so that strangers can't suppress the one about a misconfigured load balancer.
    untrusted_log: LogThrottle,
    header_log: LogThrottle,
    tls_log: LogThrottle,
}

impl Handshakes {
    /// Whether anything precedes HTTP.
    pub(crate) fn are_required(&self) -> bool {
        self.proxy_protocol || self.tls.is_some()
    }

    /// Returns whether to begin a handshake with a peer, instead of closing its connection at once. Does not log the
    /// address: it may be a client's.
    pub(crate) fn accept(&self, is_trusted: bool) -> bool {
        let accepted = !self.proxy_protocol || is_trusted;
        if !accepted && let Some(occurrences) = self.untrusted_log.allow() {
            tracing::warn!(
                server = self.server,
                occurrences,
                "connection closed: --proxy-protocol is set, and the peer is not a trusted proxy (--trusted-proxies)"
            );
        }
        accepted
    }

    /// Reads the PROXY header. `None` if the connection must be closed.
    pub(crate) async fn read_proxy_header(&self, socket: &mut TcpStream) -> Option<ProxyHeader> {
        let reason = match timeout(PROXY_HEADER_TIMEOUT, ProxyHeader::read(socket)).await {
            Ok(Ok(header)) => return Some(header),
            // Load balancers check a port by connecting to it.
            Ok(Err(ProxyHeaderError::Incomplete | ProxyHeaderError::Connection(_))) => return None,
            Ok(Err(error)) => error.to_string(),
            Err(_) => {
                format!("there was no complete PROXY header within {} s", PROXY_HEADER_TIMEOUT.as_secs())
            }
        };
        if let Some(occurrences) = self.header_log.allow() {
            tracing::warn!(server = self.server, reason, occurrences, "connection of a trusted proxy closed");
        }
        None
    }

    /// Does the TLS handshake, if the port has TLS. `None` if the peer makes it fail, for example because it rejects the
    /// certificate, or if the handshake was all that the peer wanted.
    pub(crate) async fn start_tls(
        &self,
        socket: TcpStream,
        max_time: Duration,
    ) -> Option<(Box<dyn Socket>, Option<TlsInfo>)> {
        let Some(tls) = &self.tls else { return Some((Box::new(socket), None)) };
        let reason = match timeout(max_time, tls.accept(socket)).await {
            Ok(Ok(None)) => return None,
            Ok(Ok(Some(mut stream))) => {
                let session = stream.get_mut().1;
                session.set_buffer_limit(Some(TLS_BUFFER));
                let info = TlsInfo::of(session);
                return Some((Box::new(stream), Some(info)));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timed out".to_owned(),
        };
        // At level debug, because scanners of public ports cause many, and without the address, which may be a client's.
        if let Some(occurrences) = self.tls_log.allow() {
            tracing::debug!(server = self.server, reason, occurrences, "TLS handshake failed");
        }
        None
    }
}
