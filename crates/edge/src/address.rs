//! Strict parser for one address in a header. Rejects spellings that two parsers could read differently.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of X-Forwarded-For entries that are read, from the right.
///
/// A longer list is not rejected: if it were, a client could hide its address by sending a long list.
pub const MAX_HOPS: usize = 64;

/// Length of the longest accepted spelling: a bracketed IPv6 address with an embedded IPv4 address and a port.
const MAX_ENTRY_LEN: usize = "[0000:0000:0000:0000:0000:ffff:255.255.255.255]:65535".len();

/// Parses `v4`, `v4:port`, `v6`, `[v6]` or `[v6]:port`. Rejects host names, octal and hexadecimal octets, IPv6 zone
/// IDs and quotes.
///
/// An IPv4-mapped IPv6 address becomes IPv4, so that each client has only one address.
pub fn parse_entry(entry: &[u8]) -> Option<IpAddr> {
    let entry = trim(entry);
    if entry.len() > MAX_ENTRY_LEN {
        return None;
    }
    let text = str::from_utf8(entry).ok()?;
    let ip = match text.strip_prefix('[') {
        Some(rest) => parse_bracketed(rest)?,
        None => parse_bare(text)?,
    };
    Some(ip.to_canonical())
}

fn parse_bracketed(rest: &str) -> Option<IpAddr> {
    let (address, tail) = rest.split_once(']')?;
    if !tail.is_empty() && !is_port(tail.strip_prefix(':')?) {
        return None;
    }
    Some(IpAddr::V6(address.parse::<Ipv6Addr>().ok()?))
}

fn parse_bare(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip);
    }
    // Without brackets, only IPv4 can have a port: in IPv6 the colon is ambiguous.
    let (address, port) = text.split_once(':')?;
    let ip = address.parse::<Ipv4Addr>().ok()?;
    is_port(port).then_some(IpAddr::V4(ip))
}

/// Returns whether the text is a port number. Checks for digits because `u16::from_str` accepts a plus sign.
fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Removes the optional whitespace of HTTP lists: spaces and tabs.
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
