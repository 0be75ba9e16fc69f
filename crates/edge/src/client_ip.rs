//! Determines the client's address from the TCP peer and the headers of trusted proxies.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use crate::address::{MAX_HOPS, parse_entry};
use crate::policy::{ClientIpFrom, X_FORWARDED_FOR};
use crate::steps::{AddressHeader, Observer, Step, XffEntry, shortened};
use crate::trusted::TrustedSet;

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
    resolve_observed(peer, headers, from, trusted, &mut ())
}

/// Like [`resolve`], and reports the steps.
pub(crate) fn resolve_observed(
    peer: IpAddr,
    headers: &HeaderMap,
    from: &ClientIpFrom,
    trusted: &TrustedSet,
    observer: &mut impl Observer,
) -> ClientIp {
    let peer = peer.to_canonical();
    let trusted_by = trusted.find(peer);
    observer.add(|| Step::Peer { ip: peer, trusted: trusted_by });
    if trusted_by.is_none() {
        return ClientIp { ip: peer, decision: Decision::PeerUntrusted };
    }
    match from {
        ClientIpFrom::Peer => {
            observer.add(|| Step::PeerIsClient);
            ClientIp { ip: peer, decision: Decision::Peer }
        }
        ClientIpFrom::Xff => from_xff(peer, headers, trusted, observer),
        ClientIpFrom::Header(name) => from_header(peer, headers, name, observer),
    }
}

/// Reads all header lines from right to left: each proxy appends on the right, so the rightmost entries come from the
/// nearest proxies.
fn from_xff(
    peer: IpAddr,
    headers: &HeaderMap,
    trusted: &TrustedSet,
    observer: &mut impl Observer,
) -> ClientIp {
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let mut entries = lines.flat_map(|line| line.as_bytes().rsplit(|b| *b == b',')).enumerate();
    let mut client = ClientIp { ip: peer, decision: Decision::Missing };
    for (hops, text) in entries.by_ref() {
        let mut report = |entry| {
            observer.add(|| Step::XffEntry { position: hops + 1, text: shortened(text), entry });
        };
        let parsed = if hops < MAX_HOPS { parse_entry(text) } else { None };
        let Some(ip) = parsed else {
            report(if hops < MAX_HOPS { XffEntry::Invalid } else { XffEntry::OverLimit });
            client.decision = Decision::Fallback;
            break;
        };
        client = ClientIp { ip, decision: Decision::XffAllTrusted };
        match trusted.find(ip) {
            Some(by) => report(XffEntry::TrustedProxy(ip, by)),
            None => {
                report(XffEntry::Client(ip));
                client.decision = Decision::Xff;
                break;
            }
        }
    }
    observer.add(|| match client.decision {
        Decision::Missing => Some(Step::XffMissing),
        Decision::XffAllTrusted => Some(Step::XffAllTrusted { ip: client.ip }),
        _ => Some(entries.count()).filter(|count| *count > 0).map(|entries| Step::XffUnread { entries }),
    });
    client
}

/// Reads the address from the header `name`. Falls back to the peer if the header is repeated: one of the values may
/// come from the client.
fn from_header(
    peer: IpAddr,
    headers: &HeaderMap,
    name: &HeaderName,
    observer: &mut impl Observer,
) -> ClientIp {
    let mut values = headers.get_all(name).iter();
    let (first, is_single) = (values.next(), values.next().is_none());
    let address = first.filter(|_| is_single).and_then(|value| parse_entry(value.as_bytes()));
    observer.add(|| {
        let value = match (first, address) {
            (None, _) => AddressHeader::Missing,
            (Some(_), Some(ip)) => AddressHeader::Client(ip),
            (Some(_), None) if !is_single => AddressHeader::Repeated,
            (Some(value), None) => AddressHeader::Invalid { text: shortened(value.as_bytes()) },
        };
        Step::AddressHeader { name: name.clone(), value }
    });
    let decision = match (first, address) {
        (None, _) => Decision::Missing,
        (Some(_), Some(_)) => Decision::Header,
        (Some(_), None) => Decision::Fallback,
    };
    ClientIp { ip: address.unwrap_or(peer), decision }
}
