//! Addresses that have no location, in words.

use std::net::IpAddr;

use geo::is_public;

/// What kind of address this is, as the end of the sentence "… is". `None` for a public address.
pub(super) fn special_use(ip: IpAddr) -> Option<&'static str> {
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
