//! What the connections of a port have in common, and what precedes HTTP on them: a PROXY header, TLS, or both.

use std::net::{IpAddr, SocketAddr};
use std::{io, sync::Arc, time::Duration};

use base::log_throttle::LogThrottle;
use poem::{EndpointExt, Response, endpoint::BoxEndpoint, endpoint::make_sync};
use tokio::{net::TcpStream, time::timeout};

use crate::limits::{self, ServeArgs};
use crate::tls::{Socket, Tls, TlsInfo};
use crate::{error::ErrorResponder, lifecycle::Lifecycle};
use crate::{proxy_header::ProxyHeader, registry::ConnectionRegistry};

/// Maximum wait for a complete PROXY header. Load balancers send it immediately, before any byte of the client.
const PROXY_HEADER_TIMEOUT: Duration = Duration::from_secs(3);

/// Decides which peers are trusted.
pub type TrustedPeers = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

pub(crate) struct Port {
    /// In the log.
    pub(crate) name: &'static str,
    pub(crate) addr: SocketAddr,
    pub(crate) args: ServeArgs,
    /// Whether connections begin with a PROXY header.
    pub(crate) proxy_protocol: bool,
    pub(crate) tls: Option<Tls>,
    pub(crate) errors: ErrorResponder,
    pub(crate) trusted: TrustedPeers,
    pub(crate) endpoint: BoxEndpoint<'static>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) registry: Arc<ConnectionRegistry>,
    // One per message, so that strangers can't suppress the one about a misconfigured load balancer.
    untrusted_log: LogThrottle,
    header_log: LogThrottle,
    tls_log: LogThrottle,
}

impl Port {
    /// A port with the defaults of everything that can be configured, and an endpoint without content.
    pub(crate) fn new(name: &'static str, addr: SocketAddr, args: &ServeArgs) -> Self {
        let max_connections = limits::max_connections(args.max_connections);
        Self {
            name,
            addr,
            registry: Arc::new(ConnectionRegistry::new(name, ServeArgs { max_connections, ..args.clone() })),
            args: args.clone(),
            proxy_protocol: false,
            tls: None,
            errors: Arc::new(|status, _, message| {
                Response::builder().status(status).body(message.to_owned())
            }),
            trusted: Arc::new(|_| false),
            endpoint: make_sync(|_| ()).map_to_response().boxed(),
            lifecycle: Lifecycle::new(args),
            untrusted_log: LogThrottle::default(),
            header_log: LogThrottle::default(),
            tls_log: LogThrottle::default(),
        }
    }

    /// The address, unless it is a trusted proxy's: its connections carry many clients, so they belong to no network.
    pub(crate) fn untrusted(&self, client: IpAddr) -> Option<IpAddr> {
        (!(self.trusted)(client)).then_some(client)
    }

    /// Whether to serve a peer, instead of closing its connection. Does not log the address: it may be a client's.
    pub(crate) fn accepts(&self, is_trusted: bool) -> bool {
        let accepted = !self.proxy_protocol || is_trusted;
        if !accepted && let Some(occurrences) = self.untrusted_log.allow() {
            tracing::warn!(
                server = self.name,
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
            Ok(Err(error)) if error.is::<io::Error>() => return None,
            Ok(Err(error)) => error.to_string(),
            Err(_) => {
                format!("there was no complete PROXY header within {} s", PROXY_HEADER_TIMEOUT.as_secs())
            }
        };
        if let Some(occurrences) = self.header_log.allow() {
            tracing::warn!(server = self.name, reason, occurrences, "connection of a trusted proxy closed");
        }
        None
    }

    /// Does the TLS handshake, if the port has TLS. `None` if the peer makes it fail, for example because it rejects the
    /// certificate, or if the handshake was all that the peer wanted.
    pub(crate) async fn start_tls(&self, socket: TcpStream) -> Option<(Box<dyn Socket>, Option<TlsInfo>)> {
        let Some(tls) = &self.tls else { return Some((Box::new(socket), None)) };
        let accepted = timeout(self.args.header_timeout, tls.accept(socket)).await;
        let accepted = accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        // At level debug, because scanners of public ports cause many, and without the address, which may be a client's.
        if let Err(reason) = &accepted
            && let Some(occurrences) = self.tls_log.allow()
        {
            tracing::debug!(server = self.name, %reason, occurrences, "TLS handshake failed");
        }
        accepted.ok()?.map(|(socket, info)| (socket, Some(info)))
    }
}
