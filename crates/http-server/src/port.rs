//! What the connections of a port have in common.

use std::{net::IpAddr, net::SocketAddr, sync::Arc};

use hyper::server::conn::http1;
use poem::endpoint::BoxEndpoint;

use crate::registry::ConnectionRegistry;
use crate::{args::ServeArgs, error::ErrorResponder, handshake::Handshakes, lifecycle::Lifecycle};

/// Decides which peers are trusted.
pub type TrustedPeers = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// A port that is being served.
pub(crate) struct Port {
    pub(crate) addr: SocketAddr,
    pub(crate) args: ServeArgs,
    pub(crate) handshakes: Handshakes,
    pub(crate) errors: ErrorResponder,
    pub(crate) trusted: TrustedPeers,
    pub(crate) endpoint: BoxEndpoint<'static>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) registry: Arc<ConnectionRegistry>,
    pub(crate) http1: http1::Builder,
}

impl Port {
    /// The address of a client, unless it is a trusted proxy: its connections carry many clients, so they belong to no
    /// network.
    pub(crate) fn untrusted(&self, client: IpAddr) -> Option<IpAddr> {
        (!(self.trusted)(client)).then_some(client)
    }
}
