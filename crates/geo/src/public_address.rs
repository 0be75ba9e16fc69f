//! Which addresses are looked up: those of the public internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is global unicast and outside of the networks in IANA's special-purpose registries. Some of these
/// are globally reachable, but they are anycast or relays, so no country is right for them.
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let special = match ip.octets() {
        // "This network", multicast and reserved.
        [0 | 224.., ..] => true,
        // Carrier-grade NAT: 100.64.0.0/10.
        [100, second, ..] => second & 0xc0 == 64,
        // Protocol assignments, and the former relays of 6to4.
        [192, 0, 0, _] | [192, 88, 99, _] => true,
        // AS112 (reverse DNS of private addresses), and relays of multicast (AMT).
        [192, 31, 196, _] | [192, 175, 48, _] | [192, 52, 193, _] => true,
        // Benchmarks: 198.18.0.0/15.
        [198, 18 | 19, ..] => true,
        _ => ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_documentation(),
    };
    !special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    match ip.segments() {
        // Protocol assignments, such as Teredo: 2001::/23. Documentation: 2001:db8::/32.
        [0x2001, 0..0x200 | 0xdb8, ..] => false,
        // 6to4.
        [0x2002, ..] => false,
        // AS112.
        [0x2620, 0x4f, 0x8000, ..] => false,
        // Documentation: 3fff::/20.
        [0x3fff, 0..0x1000, ..] => false,
        // Global unicast: 2000::/3.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_purpose_addresses_are_not_public() {
        for ip in [
            "0.0.0.0 10.0.0.1 100.64.0.1 127.0.0.1 169.254.1.1 172.16.0.1 192.0.0.8 192.0.2.7 192.31.196.1",
            "192.52.193.1 192.88.99.1 192.175.48.1",
            "192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.7 224.0.0.1 240.0.0.1 255.255.255.255",
            ":: ::1 64:ff9b::808:808 100::1 2001::1 2001:1ff::1 2001:db8::1 2002:808:808::1 3fff::1 fc00::1 fe80::1",
            "2620:4f:8000::1 ff02::1 4000::1",
        ]
        .iter()
        .flat_map(|line| line.split(' '))
        {
            assert!(!is_public(ip.parse().expect("IP address")), "{ip}");
        }
        for ip in [
            "100.63.0.1 100.128.0.1 192.31.195.1 192.52.194.1 192.175.49.1 198.17.0.1 198.20.0.1 1.1.1.1",
            "223.255.255.1 2001:200::1 2001:db9::1 2003::1 2620:4f:8001::1 2a00::1 3ffe::1",
        ]
        .iter()
        .flat_map(|line| line.split(' '))
        {
            assert!(is_public(ip.parse().expect("IP address")), "{ip}");
        }
    }
}
