//! Identifies the caller of an HTTP request: joins what the server knows about the connection with what the edge policy
//! makes of the headers.

use std::net::{IpAddr, Ipv4Addr};

use edge::{ClientInfo, ConnectionFacts, Edge, Peer, ProxiedTls};
use http_server::{ConnectionInfo, RequestOrigin};
use poem::http::Version;
use poem::{Addr, Request};

/// The connection of a request.
pub struct Caller<'r> {
    peer: Peer,
    /// `None` in tests without a server.
    connection: Option<&'r ConnectionInfo>,
}

impl<'r> Caller<'r> {
    pub fn of(request: &'r Request) -> Self {
        // The server accepts TCP only, so the second arm is never taken.
        let peer = match request.remote_addr().0 {
            Addr::SocketAddr(peer) => peer.ip(),
            _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let connection = RequestOrigin::of(request).map(|origin| &*origin.connection);
        let peer = match connection.is_some_and(ConnectionInfo::client_is_unknown) {
            true => Peer::Balancer(peer),
            false => Peer::Address(peer),
        };
        Self { peer, connection }
    }

    /// Address and connection facts. `with_round_trip_time` reads the time from the socket if no header has it, which
    /// takes a system call.
    pub fn identify<'c>(
        &'c self,
        edge: &Edge,
        request: &'c Request,
        with_round_trip_time: bool,
    ) -> ClientInfo<'c> {
        let connection = self.connection;
        let own = own_facts(connection, request.version());
        let mut client = edge.identify(self.peer, request.headers(), own);
        if client.facts.rtt_from_socket && with_round_trip_time {
            let rtt = connection.and_then(ConnectionInfo::round_trip_time);
            client.facts.rtt_ms = rtt.and_then(|rtt| u32::try_from(rtt.as_millis()).ok());
        }
        client
    }

    /// The host name that the client sent in the TLS handshake.
    pub fn server_name(&self) -> Option<&str> {
        self.connection.as_ref()?.tls.as_ref()?.server_name.as_deref()
    }
}

/// The facts of the connection to this process, with what a load balancer sent about it.
fn own_facts(connection: Option<&ConnectionInfo>, version: Version) -> ConnectionFacts<'_> {
    let mut own = ConnectionFacts::direct(version);
    let Some(connection) = connection else { return own };
    if let Some(tls) = &connection.tls {
        own = own.with_tls(tls.version, tls.cipher);
    }
    match &connection.proxied {
        Some(header) => own.behind_balancer(
            header
                .tls
                .as_ref()
                .map(|tls| ProxiedTls { version: tls.version.as_deref(), cipher: tls.cipher.as_deref() }),
        ),
        None => own,
    }
}
