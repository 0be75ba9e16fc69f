//! Reads the one address of a header entry, strictly: a spelling that two parsers may read differently is no address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest spelling we accept: a bracketed IPv6 address with an embedded IPv4 and a port.
const MAX_ENTRY: usize = "[0000:0000:0000:0000:0000:ffff:255.255.255.255]:65535".len();

/// Reads `v4`, `v4:port`, `v6`, `[v6]` or `[v6]:port`; names, octal and hexadecimal quads, zones and quotes are refused.
///
/// An IPv4-mapped IPv6 address is IPv4, so that one client has one address.
#[must_use]
pub fn parse_entry(entry: &[u8]) -> Option<IpAddr> {
    let entry = trim(entry);
    if entry.len() > MAX_ENTRY {
        return None;
    }
    let text = str::from_utf8(entry).ok()?;
    let ip = match text.strip_prefix('[') {
        Some(rest) => bracketed(rest)?,
        None => bare(text)?,
    };
    Some(ip.to_canonical())
}

fn bracketed(rest: &str) -> Option<IpAddr> {
    let (address, tail) = rest.split_once(']')?;
    if !tail.is_empty() && !is_port(tail.strip_prefix(':')?) {
        return None;
    }
    Some(IpAddr::V6(address.parse::<Ipv6Addr>().ok()?))
}

fn bare(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip);
    }
    // Only IPv4 may carry a port without brackets: in IPv6 the colon would be ambiguous.
    let (address, port) = text.split_once(':')?;
    let ip = address.parse::<Ipv4Addr>().ok()?;
    is_port(port).then_some(IpAddr::V4(ip))
}

/// `u16::from_str` alone would accept a plus sign.
fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Removes the optional white space of HTTP lists: space and tab, nothing else.
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_spelling_gives_one_address() {
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
        ] {
            let want: IpAddr = want.parse().unwrap();
            assert_eq!(parse_entry(entry.as_bytes()), Some(want), "{entry:?}");
        }
    }

    #[test]
    fn every_doubtful_spelling_is_no_address() {
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
            "[192.0.2.7]:80",
            "[2001:db8::7",
            "[2001:db8::7]80",
            "[2001:db8::7]:",
            "2001:db8::7]",
            "fe80::1%eth0",
            "[fe80::1%25eth0]:80",
            "\"192.0.2.7\"",
            "for=192.0.2.7",
            "192.0.2.7\u{a0}",
            "１９２.0.2.7",
            "[0000:0000:0000:0000:0000:ffff:255.255.255.255]:655350",
        ] {
            assert_eq!(parse_entry(entry.as_bytes()), None, "{entry:?}");
        }
        assert_eq!(parse_entry(b"192.0.2.7\xff"), None);
    }
}
