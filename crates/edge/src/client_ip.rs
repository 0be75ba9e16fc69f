//! Determines the client's address from the TCP peer and the headers of trusted proxies.

use std::fmt;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use crate::address::{MAX_HOPS, parse_entry};
use crate::explain::{Explain, shortened};
use crate::policy::{ClientIpFrom, X_FORWARDED_FOR};
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

base::names!(Decision: PeerUntrusted => "peer_untrusted", Peer => "peer", Xff => "xff",
    XffAllTrusted => "xff_all_trusted", Header => "header", Missing => "missing", Fallback => "fallback");

/// Determines the client of a request. An untrusted peer is the client itself; for a trusted peer, the address comes
/// from the configured source.
pub fn resolve(peer: IpAddr, headers: &HeaderMap, from: &ClientIpFrom, trusted: &TrustedSet) -> ClientIp {
    resolve_explained(peer, headers, from, trusted, &mut ())
}

/// Like [`resolve`], and explains the result.
pub(crate) fn resolve_explained(
    peer: IpAddr,
    headers: &HeaderMap,
    from: &ClientIpFrom,
    trusted: &TrustedSet,
    explain: &mut impl Explain,
) -> ClientIp {
    let peer = peer.to_canonical();
    let Some(by) = trusted.find(peer) else {
        explain.add("ip", || {
            format!(
                "The peer {peer} is not a trusted proxy, so it is the client, and its headers are ignored. If it is your \
                 proxy, add it to --trusted-proxies."
            )
        });
        return ClientIp { ip: peer, decision: Decision::PeerUntrusted };
    };
    explain.add("ip", || format!("The peer {peer} is a trusted proxy ({by})."));
    match from {
        ClientIpFrom::Peer => {
            explain.add("ip", || "--client-ip-from is peer, so the peer is the client.".to_owned());
            ClientIp { ip: peer, decision: Decision::Peer }
        }
        ClientIpFrom::Xff => from_xff(peer, headers, trusted, explain),
        ClientIpFrom::Header(name) => from_header(peer, headers, name, explain),
    }
}

/// Reads all header lines from right to left: each proxy appends on the right, so the rightmost entries come from the
/// nearest proxies.
fn from_xff(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedSet, explain: &mut impl Explain) -> ClientIp {
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|b| *b == b',')).enumerate();
    let mut client = ClientIp { ip: peer, decision: Decision::Missing };
    for (hops, text) in entries {
        let mut add = |meaning: fmt::Arguments<'_>| {
            explain.add("ip", || {
                let (position, text) = (hops + 1, shortened(text));
                format!("Entry {position} of X-Forwarded-For, counted from the right, is {text:?}: {meaning}")
            });
        };
        if hops == MAX_HOPS {
            add(format_args!(
                "only the last {MAX_HOPS} entries are read. The client is the trusted address to the right of this entry."
            ));
            client.decision = Decision::Fallback;
            break;
        }
        let Some(ip) = parse_entry(text) else {
            add(format_args!(
                "this is not an address, so the search stops. The client is the trusted address to the right of this \
                 entry, or the peer if there is none."
            ));
            client.decision = Decision::Fallback;
            break;
        };
        let Some(by) = trusted.find(ip) else {
            add(format_args!("{ip} is not a trusted proxy, so it is the client."));
            client = ClientIp { ip, decision: Decision::Xff };
            break;
        };
        add(format_args!("{ip} is another trusted proxy ({by})."));
        client = ClientIp { ip, decision: Decision::XffAllTrusted };
    }
    match client.decision {
        Decision::Missing => explain.add("ip", || {
            "The peer sent no X-Forwarded-For, so it is the client. If it forwards requests of others, configure it to \
             send X-Forwarded-For, or set --client-ip-from to the header that it sends."
                .to_owned()
        }),
        Decision::XffAllTrusted => explain.add("ip", || {
            format!(
                "Every entry is a trusted proxy, so the leftmost one, {}, is the client. If this is not an address of \
                 your own network, --trusted-proxies covers too much.",
                client.ip
            )
        }),
        _ => explain.add("ip", || {
            "Entries further to the left, if any, were not read: a client can send anything there.".to_owned()
        }),
    }
    client
}

/// Reads the address from the header `name`. Falls back to the peer if the header is repeated: one of the values may
/// come from the client.
fn from_header(peer: IpAddr, headers: &HeaderMap, name: &HeaderName, explain: &mut impl Explain) -> ClientIp {
    let mut values = headers.get_all(name).iter();
    let (first, is_single) = (values.next(), values.next().is_none());
    let address = first.filter(|_| is_single).and_then(|value| parse_entry(value.as_bytes()));
    explain.add("ip", || match (first, address) {
        (None, _) => format!("The peer sent no header {name}, so it is the client."),
        (Some(_), Some(ip)) => format!("The header {name} has the client's address: {ip}."),
        (Some(_), None) if !is_single => {
            format!(
                "The header {name} was sent more than once, and one of its values may be the client's own, so the peer is \
                 the client. Configure the proxy to replace the header."
            )
        }
        (Some(value), None) => format!(
            "The header {name} is {:?}, which is not an address, so the peer is the client.",
            shortened(value.as_bytes())
        ),
    });
    let decision = match (first, address) {
        (None, _) => Decision::Missing,
        (Some(_), Some(_)) => Decision::Header,
        (Some(_), None) => Decision::Fallback,
    };
    ClientIp { ip: address.unwrap_or(peer), decision }
}
