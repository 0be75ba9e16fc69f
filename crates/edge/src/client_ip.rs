//! Determines the client's address from the TCP peer and the headers of trusted proxies.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName};

use crate::explain::{Explanation, quoted};
use crate::trusted::TrustedProxies;

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Maximum number of X-Forwarded-For entries that are read, from the right.
///
/// A longer list is not rejected: if it were, a client could hide its address by sending a long list.
pub const MAX_HOPS: usize = 64;

/// Length of the longest accepted spelling: a bracketed IPv6 address with an embedded IPv4 address and a port.
const MAX_ENTRY_LEN: usize = "[0000:0000:0000:0000:0000:ffff:255.255.255.255]:65535".len();

/// Where the client's address is taken from if the TCP peer is a trusted proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientIpFrom {
    /// The TCP peer's own address; no header is read for it.
    Peer,
    /// X-Forwarded-For, read from the right.
    Xff,
    /// The single value of this header.
    Header(HeaderName),
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

/// Determines the client of a request, and explains the result. An untrusted peer is the client itself; for a trusted
/// peer, the address comes from the configured source. The address is never IPv4-mapped.
pub fn resolve(
    peer: IpAddr,
    headers: &HeaderMap,
    from: &ClientIpFrom,
    trusted: &TrustedProxies,
    explain: &mut Explanation,
) -> (IpAddr, Decision) {
    let peer = peer.to_canonical();
    if !trusted.contains(peer) {
        explain.add("ip", || {
            format!(
                "The peer {peer} is not a trusted proxy, so it is the client, and its headers are ignored. If it is your \
                 proxy, add it to --trusted-proxies."
            )
        });
        return (peer, Decision::PeerUntrusted);
    }
    explain.add("ip", || format!("The peer {peer} is a trusted proxy ({}).", trusted.reason(peer)));
    match from {
        ClientIpFrom::Peer => {
            explain.add("ip", || "--client-ip-from is peer, so the peer is the client.".to_owned());
            (peer, Decision::Peer)
        }
        ClientIpFrom::Xff => from_xff(peer, headers, trusted, explain),
        ClientIpFrom::Header(name) => from_header(peer, headers, name, explain),
    }
}

/// Reads all header lines from right to left: each proxy appends on the right, so the rightmost entries come from the
/// nearest proxies.
fn from_xff(
    peer: IpAddr,
    headers: &HeaderMap,
    trusted: &TrustedProxies,
    explain: &mut Explanation,
) -> (IpAddr, Decision) {
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|b| *b == b','));
    // Until it is found, the trusted address to the right of the next entry.
    let (mut client, mut decision) = (peer, Decision::Missing);
    for (hops, text) in entries.enumerate() {
        let mut add = |meaning: fmt::Arguments<'_>| {
            explain.add("ip", || {
                let (position, text) = (hops + 1, quoted(text));
                format!("Entry {position} of X-Forwarded-For, counted from the right, is {text}: {meaning}")
            });
        };
        decision = match parse_entry(text) {
            _ if hops == MAX_HOPS => {
                add(format_args!(
                    "only the last {MAX_HOPS} entries are read. The client is the trusted address to the right of this \
                     entry."
                ));
                Decision::Fallback
            }
            None => {
                add(format_args!(
                    "this is not an address, so the search stops. The client is the trusted address to the right of \
                     this entry, or the peer if there is none."
                ));
                Decision::Fallback
            }
            Some(ip) if trusted.contains(ip) => {
                add(format_args!("{ip} is another trusted proxy ({}).", trusted.reason(ip)));
                client = ip;
                Decision::XffAllTrusted
            }
            Some(ip) => {
                add(format_args!("{ip} is not a trusted proxy, so it is the client."));
                client = ip;
                Decision::Xff
            }
        };
        if decision != Decision::XffAllTrusted {
            break;
        }
    }
    explain.add("ip", || match decision {
        Decision::Missing => {
            "The peer sent no X-Forwarded-For, so it is the client. If it forwards requests of others, configure it to \
             send X-Forwarded-For, or set --client-ip-from to the header that it sends."
                .to_owned()
        }
        Decision::XffAllTrusted => format!(
            "Every entry is a trusted proxy, so the leftmost one, {client}, is the client. If this is not an address of \
             your own network, --trusted-proxies covers too much."
        ),
        _ => "Entries further to the left, if any, were not read: a client can send anything there.".to_owned(),
    });
    (client, decision)
}

/// Reads the address from the header `name`. Falls back to the peer if the header is repeated: one of the values may
/// come from the client.
fn from_header(
    peer: IpAddr,
    headers: &HeaderMap,
    name: &HeaderName,
    explain: &mut Explanation,
) -> (IpAddr, Decision) {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        explain.add("ip", || format!("The peer sent no header {name}, so it is the client."));
        return (peer, Decision::Missing);
    };
    if values.next().is_some() {
        explain.add("ip", || {
            format!(
                "The header {name} was sent more than once, and one of its values may be the client's own, so the peer is \
                 the client. Configure the proxy to replace the header."
            )
        });
        return (peer, Decision::Fallback);
    }
    let address = parse_entry(value.as_bytes());
    explain.add("ip", || match address {
        Some(ip) => format!("The header {name} has the client's address: {ip}."),
        None => format!(
            "The header {name} is {}, which is not an address, so the peer is the client.",
            quoted(value.as_bytes())
        ),
    });
    address.map_or((peer, Decision::Fallback), |ip| (ip, Decision::Header))
}

/// Parses `v4`, `v4:port`, `v6`, `[v6]` or `[v6]:port`. Rejects spellings that two parsers could read differently: host
/// names, octal and hexadecimal octets, IPv6 zone IDs and quotes.
///
/// An IPv4-mapped IPv6 address becomes IPv4, so that each client has only one address.
pub fn parse_entry(entry: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(entry.trim_ascii()).ok()?;
    // `SocketAddr` accepts a zone ID, and any number of zeros before the port.
    if text.len() > MAX_ENTRY_LEN || text.contains('%') {
        return None;
    }
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let ip = match bracketed {
        Some(address) => IpAddr::V6(address.parse::<Ipv6Addr>().ok()?),
        None => text.parse().or_else(|_| text.parse().map(|address: SocketAddr| address.ip())).ok()?,
    };
    Some(ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_spellings_are_parsed() {
        for (entry, want) in [
            ("192.0.2.7", "192.0.2.7"),
            (" \t192.0.2.7 ", "192.0.2.7"),
            ("192.0.2.7:443", "192.0.2.7"),
            ("192.0.2.7:0", "192.0.2.7"),
            ("2001:db8::7", "2001:db8::7"),
            ("2001:DB8:0::7", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("[2001:db8::7]:65535", "2001:db8::7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("[::ffff:c000:207]:1", "192.0.2.7"),
            // The longest one.
            ("[0000:0000:0000:0000:0000:ffff:255.255.255.255]:65535", "255.255.255.255"),
        ] {
            let want: IpAddr = want.parse().unwrap();
            assert_eq!(parse_entry(entry.as_bytes()), Some(want), "{entry:?}");
        }
    }

    #[test]
    fn ambiguous_spellings_are_rejected() {
        for entry in [
            "",
            " ",
            "-",
            "unknown",
            "_hidden",
            "localhost",
            "192.0.2",
            "3221225991",
            "0xc0.0.2.7",
            "010.0.0.1",
            "192.0.02.7",
            "192.0.2.7/32",
            "192.0.2.7:",
            "192.0.2.7:+80",
            "192.0.2.7:65536",
            "192.0.2.7:80:80",
            "192.0.2.7 80",
            "[192.0.2.7]",
            "[192.0.2.7]:80",
            "[2001:db8::7",
            "[2001:db8::7]80",
            "[2001:db8::7]:",
            "[[2001:db8::7]]",
            "[]",
            "2001:db8::7]",
            "fe80::1%eth0",
            "fe80::1%1",
            "[fe80::1%1]",
            "[fe80::1%1]:80",
            "[fe80::1%25eth0]:80",
            "\"192.0.2.7\"",
            "for=192.0.2.7",
            "192.0.2.7\u{a0}",
            "１９２.0.2.7",
            "[0000:0000:0000:0000:0000:ffff:255.255.255.255]:655350",
            "[0000:0000:0000:0000:0000:ffff:255.255.255.255]:065535",
            "192.0.2.7:0000000000000000000000000000000000000000000080",
        ] {
            assert_eq!(parse_entry(entry.as_bytes()), None, "{entry:?}");
        }
        assert_eq!(parse_entry(b"192.0.2.7\xff"), None);
    }

    /// An edge case of each source: what the trusted peer 10.0.0.1 sends, the client, and the end of the explanation.
    #[test]
    fn address_decision_and_explanation_agree() {
        let trusted = TrustedProxies::new(["10.0.0.0/8".parse().unwrap()]);
        let hops = |count: usize| ["198.51.100.1".to_owned(), vec!["10.0.0.2"; count].join(",")].join(",");
        let (at_limit, over_limit) = (hops(MAX_HOPS - 1), hops(MAX_HOPS));
        let xff = &ClientIpFrom::Xff;
        let header = &ClientIpFrom::Header(X_FORWARDED_FOR);
        for (from, sent, want, decision, end) in [
            (&ClientIpFrom::Peer, &["192.0.2.7"][..], "10.0.0.1", Decision::Peer, "the peer is the client."),
            (xff, &[], "10.0.0.1", Decision::Missing, "to the header that it sends."),
            (xff, &[""], "10.0.0.1", Decision::Fallback, "can send anything there."),
            (xff, &["192.0.2.7"], "192.0.2.7", Decision::Xff, "can send anything there."),
            (xff, &["x,192.0.2.7"], "192.0.2.7", Decision::Xff, "can send anything there."),
            (xff, &["192.0.2.7,x,10.0.0.3"], "10.0.0.3", Decision::Fallback, "can send anything there."),
            (xff, &["10.0.0.4,10.0.0.3"], "10.0.0.4", Decision::XffAllTrusted, "covers too much."),
            (
                xff,
                &["198.51.100.9", "192.0.2.7,10.0.0.3"],
                "192.0.2.7",
                Decision::Xff,
                "can send anything there.",
            ),
            (xff, &[&at_limit], "198.51.100.1", Decision::Xff, "can send anything there."),
            (xff, &[&over_limit], "10.0.0.2", Decision::Fallback, "can send anything there."),
            (header, &[], "10.0.0.1", Decision::Missing, "so it is the client."),
            (header, &["192.0.2.7"], "192.0.2.7", Decision::Header, "address: 192.0.2.7."),
            (header, &["10.0.0.3"], "10.0.0.3", Decision::Header, "address: 10.0.0.3."),
            (
                header,
                &["x"],
                "10.0.0.1",
                Decision::Fallback,
                "\"x\", which is not an address, so the peer is the client.",
            ),
            (header, &["192.0.2.7,192.0.2.8"], "10.0.0.1", Decision::Fallback, "so the peer is the client."),
            (header, &["192.0.2.7", "192.0.2.7"], "10.0.0.1", Decision::Fallback, "to replace the header."),
        ] {
            let headers = sent.iter().map(|value| (X_FORWARDED_FOR, value.parse().unwrap())).collect();
            let mut explanation = Explanation::collect();
            let peer = "::ffff:10.0.0.1".parse().unwrap();
            let (ip, got) = resolve(peer, &headers, from, &trusted, &mut explanation);
            assert_eq!((ip.to_string().as_str(), got), (want, decision), "{from:?} {sent:?}");
            let texts = explanation.into_texts();
            assert!(texts.last().unwrap().1.ends_with(end), "{from:?} {sent:?}: {texts:?}");
        }
    }

    #[test]
    fn each_entry_that_is_read_is_explained() {
        let trusted = TrustedProxies::new(["10.0.0.0/8".parse().unwrap()]);
        let headers = HeaderMap::from_iter([(X_FORWARDED_FOR, "192.0.2.7,10.0.0.3".parse().unwrap())]);
        let mut explanation = Explanation::collect();
        resolve("10.0.0.1".parse().unwrap(), &headers, &ClientIpFrom::Xff, &trusted, &mut explanation);
        let texts: Vec<_> = explanation.into_texts().into_iter().map(|(_, text)| text).collect();
        assert!(texts[1].starts_with("Entry 1 of X-Forwarded-For, counted from the right, is \"10.0.0.3\""));
        assert!(texts[2].starts_with("Entry 2 of X-Forwarded-For, counted from the right, is \"192.0.2.7\""));
        assert_eq!(texts.len(), 4, "{texts:?}");
    }
}
