//! Decides whose address a request counts for, from the socket and from what trusted proxies say.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use crate::address::parse_entry;
use crate::policy::ClientIpFrom;
use crate::trusted::TrustedSet;

/// How many entries of X-Forwarded-For are looked at, from the right.
///
/// Bounding the walk and not the list keeps a client from switching the answer to the proxy's
/// address by sending a long list of its own.
pub const MAX_HOPS: usize = 64;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The address, never IPv4-mapped.
    pub ip: IpAddr,
    /// Why it is this one.
    pub decision: Decision,
}

/// Why an address was chosen; bounded, so that it can label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The peer is no trusted proxy: it is the client, and its headers were not read.
    PeerUntrusted,
    /// The peer is trusted and the policy says that the peer is the client.
    Peer,
    /// The rightmost untrusted entry of X-Forwarded-For.
    Xff,
    /// Every entry was a trusted proxy: the leftmost one. Many of these mean that too much is trusted.
    XffAllTrusted,
    /// The one value of the configured header.
    Header,
    /// A trusted proxy sent no address at all: the peer. Health checks look like this.
    Missing,
    /// A trusted proxy sent something unusable: the last address that was certain.
    Fallback,
}

impl Decision {
    /// Every decision, for metrics that start at zero.
    pub const ALL: [Self; 7] = [
        Self::PeerUntrusted,
        Self::Peer,
        Self::Xff,
        Self::XffAllTrusted,
        Self::Header,
        Self::Missing,
        Self::Fallback,
    ];

    /// The metric label.
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

    /// Whether the peer was a trusted proxy.
    #[must_use]
    pub const fn is_trusted(self) -> bool {
        !matches!(self, Self::PeerUntrusted)
    }
}

/// Finds the client of a request: the peer unless it is trusted, else what the policy's one source says.
#[must_use]
pub fn resolve(peer: IpAddr, headers: &HeaderMap, from: &ClientIpFrom, trusted: &TrustedSet) -> Client {
    let peer = peer.to_canonical();
    if !trusted.contains(peer) {
        return Client { ip: peer, decision: Decision::PeerUntrusted };
    }
    match from {
        ClientIpFrom::Peer => Client { ip: peer, decision: Decision::Peer },
        ClientIpFrom::Xff => from_xff(peer, headers, trusted),
        ClientIpFrom::Header(name) => from_header(peer, headers, name),
    }
}

/// Walks right to left over all lines: what stands to the right was written by hops nearer to us.
fn from_xff(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedSet) -> Client {
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|b| *b == b','));
    let mut client = Client { ip: peer, decision: Decision::Missing };
    for (hops, entry) in entries.enumerate() {
        let parsed = if hops < MAX_HOPS { parse_entry(entry) } else { None };
        let Some(ip) = parsed else {
            client.decision = Decision::Fallback;
            break;
        };
        client = Client { ip, decision: Decision::XffAllTrusted };
        if !trusted.contains(ip) {
            client.decision = Decision::Xff;
            break;
        }
    }
    client
}

/// Two values mean that one of them is the client's own, and we can't tell which.
fn from_header(peer: IpAddr, headers: &HeaderMap, name: &HeaderName) -> Client {
    let mut values = headers.get_all(name).iter();
    let (ip, decision) = match (values.next(), values.next()) {
        (None, _) => (peer, Decision::Missing),
        (Some(value), None) => match parse_entry(value.as_bytes()) {
            Some(ip) => (ip, Decision::Header),
            None => (peer, Decision::Fallback),
        },
        (Some(_), Some(_)) => (peer, Decision::Fallback),
    };
    Client { ip, decision }
}
