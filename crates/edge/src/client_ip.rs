//! Determines the client's address from the TCP peer and the headers of trusted proxies.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use crate::address::parse_entry;
use crate::policy::ClientIpFrom;
use crate::trusted::TrustedSet;

/// Maximum number of X-Forwarded-For entries that are read, from the right.
///
/// A longer list is not rejected: if it were, a client could hide its address by sending a long list.
pub const MAX_HOPS: usize = 64;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address and how it was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientIp {
    /// The address, never IPv4-mapped.
    pub ip: IpAddr,
    /// How the address was determined.
    pub decision: Decision,
}

/// How an address was determined. Also a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The peer is not a trusted proxy, so it is the client. Its headers were not read.
    PeerUntrusted,
    /// The peer is trusted, and by policy the peer is the client.
    Peer,
    /// The rightmost untrusted entry of X-Forwarded-For.
    Xff,
    /// The leftmost entry of X-Forwarded-For, because every entry is a trusted proxy. If this is frequent, the
    /// trusted networks are too wide.
    XffAllTrusted,
    /// The single value of the configured header.
    Header,
    /// The peer, because the trusted proxy sent no address. Typical of health checks.
    Missing,
    /// The last trusted address that was read before an invalid entry or before the limit of [`MAX_HOPS`] was reached.
    /// The peer if there is no such address.
    Fallback,
}

impl Decision {
    /// All decisions, to initialize metrics to zero.
    pub const ALL: [Self; 7] = [
        Self::PeerUntrusted,
        Self::Peer,
        Self::Xff,
        Self::XffAllTrusted,
        Self::Header,
        Self::Missing,
        Self::Fallback,
    ];

    /// Returns the metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::PeerUntrusted => "peer_untrusted",
            Self::Peer => "peer",
            Self::Xff => "xff",
            Self::XffAllTrusted => "xff_all_trusted",
            Self::Header => "header",
            Self::Missing => "missing",
            Self::Fallback => "fallback",
        }
    }
}

/// Determines the client of a request. An untrusted peer is the client itself; for a trusted peer, the address comes
/// from the configured source.
#[must_use]
pub fn resolve(peer: IpAddr, headers: &HeaderMap, from: &ClientIpFrom, trusted: &TrustedSet) -> ClientIp {
    let peer = peer.to_canonical();
    if !trusted.contains(peer) {
        return ClientIp { ip: peer, decision: Decision::PeerUntrusted };
    }
    match from {
        ClientIpFrom::Peer => ClientIp { ip: peer, decision: Decision::Peer },
        ClientIpFrom::Xff => from_xff(peer, headers, trusted),
        ClientIpFrom::Header(name) => from_header(peer, headers, name),
    }
}

/// Reads all header lines from right to left: each proxy appends on the right, so the rightmost entries come from the
/// nearest proxies.
fn from_xff(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedSet) -> ClientIp {
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|b| *b == b','));
    let mut client = ClientIp { ip: peer, decision: Decision::Missing };
    for (hops, entry) in entries.enumerate() {
        let parsed = if hops < MAX_HOPS { parse_entry(entry) } else { None };
        let Some(ip) = parsed else {
            client.decision = Decision::Fallback;
            break;
        };
        client = ClientIp { ip, decision: Decision::XffAllTrusted };
        if !trusted.contains(ip) {
            client.decision = Decision::Xff;
            break;
        }
    }
    client
}

/// Reads the address from the header `name`. Falls back to the peer if the header is repeated: one of the values may
/// come from the client.
fn from_header(peer: IpAddr, headers: &HeaderMap, name: &HeaderName) -> ClientIp {
    let mut values = headers.get_all(name).iter();
    let (ip, decision) = match (values.next(), values.next()) {
        (None, _) => (peer, Decision::Missing),
        (Some(value), None) => match parse_entry(value.as_bytes()) {
            Some(ip) => (ip, Decision::Header),
            None => (peer, Decision::Fallback),
        },
        (Some(_), Some(_)) => (peer, Decision::Fallback),
    };
    ClientIp { ip, decision }
}
