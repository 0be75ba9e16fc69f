//! What a lookup needs, whether it is charged or for the home page: the client of a request, its location, the response body.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{SystemTime, UNIX_EPOCH};

use edge::{ClientInfo, ConnectionFacts, Edge, Peer};
use geo::{Geo, LocationJson, is_public};
use http_server::{ConnectionInfo, RequestOrigin};
use poem::http::Version;
use poem::{Addr, Request};
use quota_client::Charger;

use crate::fields::FieldSet;

/// What a lookup needs.
pub struct Backends {
    /// Client address and connection facts.
    pub edge: Edge,
    /// Location and network.
    pub geo: Geo,
    /// Quota check.
    pub charger: Charger,
}

impl Backends {
    /// Renders the response body as JSON.
    pub fn render(&self, field_set: FieldSet, client: &ClientInfo<'_>) -> Vec<u8> {
        if !field_set.has_geo_fields() {
            return field_set.to_json(client, &LocationJson::default());
        }
        self.geo.lookup_json(client.ip, unix_now(), |location| field_set.to_json(client, location))
    }
}

/// The current time in Unix seconds.
pub fn unix_now() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}

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
    let Some(header) = &connection.proxied else { return own };
    own.behind_balancer(header.tls.as_ref().map(|tls| (tls.version.as_deref(), tls.cipher.as_deref())))
}

/// What kind of address this is, as the end of the sentence "… is". `None` for a public address.
pub fn special_use(ip: IpAddr) -> Option<&'static str> {
    if is_public(ip) {
        return None;
    }
    let (loopback, private, link_local, shared) = match ip {
        IpAddr::V4(ip) => {
            let shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xC0 == 64;
            (ip.is_loopback(), ip.is_private(), ip.is_link_local(), shared)
        }
        IpAddr::V6(ip) => (ip.is_loopback(), ip.is_unique_local(), ip.is_unicast_link_local(), false),
    };
    Some(if loopback {
        "a loopback address, which exists only within one machine"
    } else if private {
        "a private address, which exists only within one local network"
    } else if link_local {
        "a link-local address, which exists only within one local network"
    } else if shared {
        "an address that providers use within their own network"
    } else {
        "reserved for a special use"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_named_and_public_ones_are_not() {
        for (ip, part) in [
            ("127.0.0.1", "loopback"),
            ("::1", "loopback"),
            ("10.1.2.3", "private"),
            ("fd00::1", "private"),
            ("169.254.1.1", "link-local"),
            ("fe80::1", "link-local"),
            ("100.64.0.1", "providers"),
            ("100.127.255.255", "providers"),
            ("192.0.2.1", "special use"),
        ] {
            let text = special_use(ip.parse().expect("IP address"));
            assert!(text.is_some_and(|text| text.contains(part)), "{ip}: {text:?}");
        }
        for ip in ["8.8.8.8", "100.63.0.1", "100.128.0.1", "2001:4860:4860::8888"] {
            assert_eq!(special_use(ip.parse().expect("IP address")), None, "{ip}");
        }
    }
}
