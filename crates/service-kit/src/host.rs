//! Parses `Host` headers and the authority of a URL (without userinfo).

use std::net::{IpAddr, Ipv6Addr};

/// The host in `name`, `name:port`, `[address]` or `[address]:port`: a name, or an address without brackets. It may be
/// empty, as RFC 3986 allows. `None` if the text is anything else, so that no part of a malformed value is taken for the
/// host.
pub fn host_name(text: &str) -> Option<&str> {
    let (name, suffix) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, suffix) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (address, suffix)
        }
        None => {
            let end = text.bytes().position(|byte| !is_name_byte(byte));
            text.split_at_checked(end.unwrap_or(text.len()))?
        }
    };
    is_port_suffix(suffix).then_some(name)
}

/// Whether the text is empty, or a colon and a port number. A colon alone is allowed by RFC 3986.
fn is_port_suffix(text: &str) -> bool {
    match text.strip_prefix(':') {
        None => text.is_empty(),
        Some("") => true,
        // `parse` would also accept a plus sign.
        Some(port) => !port.starts_with('+') && port.parse::<u16>().is_ok(),
    }
}

/// The bytes that may occur in a `reg-name` of RFC 3986, one bit each.
const NAME_BYTES: u128 = {
    let bytes = b"-._~%!$&'()*+,;=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".as_slice();
    let (mut bits, mut index) = (0, 0);
    while index < bytes.len() {
        bits |= 1 << bytes[index];
        index += 1;
    }
    bits
};

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii() && NAME_BYTES >> byte & 1 == 1
}

/// Whether a name from [`host_name`] is `localhost` or a loopback address.
pub fn is_loopback_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_hosts_have_a_name() {
        for (host, name) in [
            ("localhost", "localhost"),
            ("localhost:8082", "localhost"),
            ("localhost:", "localhost"),
            ("10.0.0.1:65535", "10.0.0.1"),
            ("[::1]", "::1"),
            ("[::1]:8082", "::1"),
            ("a_b.example", "a_b.example"),
            ("", ""),
        ] {
            assert_eq!(host_name(host), Some(name), "{host}");
        }
    }

    #[test]
    fn only_bytes_of_rfc_3986_occur_in_names() {
        for byte in 0..=u8::MAX {
            let allowed = byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte);
            assert_eq!(is_name_byte(byte), allowed, "{byte}");
        }
    }

    #[test]
    fn malformed_hosts_have_no_name() {
        for host in [
            "localhost:8082.evil.example",
            "localhost:80:80",
            "localhost:65536",
            "localhost:+1",
            "[::1].evil.example",
            "[::1]x:80",
            "[::1",
            "[localhost]",
            "::1",
            "user@localhost",
            "localhost/path",
            "local host",
            "ü.example",
        ] {
            assert_eq!(host_name(host), None, "{host}");
        }
    }
}
