//! PROXY protocol of a port: from whom headers are accepted, and how long they may take.

use std::{fmt, net::IpAddr, time::Duration};

use tokio::{net::TcpStream, time::timeout};

use super::proxy_header::{ProxyHeader, ProxyHeaderError};
use crate::log_throttle::LogThrottle;

/// Maximum wait for a complete header. Load balancers send it immediately, before any byte of the client.
const HEADER_TIMEOUT: Duration = Duration::from_secs(3);

/// Reads the headers of trusted load balancers, and closes all other connections.
pub(super) struct ProxyProtocol {
    /// The port's name in the log.
    server: &'static str,
    trusted: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
    // One per warning, so that strangers can't suppress the one about a misconfigured load balancer.
    untrusted_log: LogThrottle,
    header_log: LogThrottle,
}

impl ProxyProtocol {
    pub(super) fn new(
        server: &'static str,
        trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (untrusted_log, header_log) = (LogThrottle::default(), LogThrottle::default());
        Self { server, trusted: Box::new(trusted), untrusted_log, header_log }
    }

    /// Returns whether a connection's peer may send a header. Does not log its address: it may be a client's.
    pub(super) fn accepts(&self, peer: IpAddr) -> bool {
        let accepted = (self.trusted)(peer.to_canonical());
        if !accepted && let Some(occurrences) = self.untrusted_log.allow() {
            tracing::warn!(
                server = self.server,
                occurrences,
                "connection closed: --proxy-protocol is set, and the peer is not a trusted proxy (--trusted-proxies)"
            );
        }
        accepted
    }

    /// Reads the header. `None` if the connection must be closed.
    pub(super) async fn read(&self, connection: &mut TcpStream) -> Option<ProxyHeader> {
        let reason = match timeout(HEADER_TIMEOUT, ProxyHeader::read(connection)).await {
            Ok(Ok(header)) => return Some(header),
            // Load balancers check a port by connecting to it.
            Ok(Err(ProxyHeaderError::Incomplete | ProxyHeaderError::Connection(_))) => return None,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("there was no complete PROXY header within {} s", HEADER_TIMEOUT.as_secs()),
        };
        if let Some(occurrences) = self.header_log.allow() {
            tracing::warn!(server = self.server, reason, occurrences, "connection of a trusted proxy closed");
        }
        None
    }
}

impl fmt::Debug for ProxyProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyProtocol").finish_non_exhaustive()
    }
}
