//! The built-in country data, which is always the last database: it provides the country of an address where no loaded
//! database has one. `built-in-geo.py` updates it.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};

use flate2::read::GzDecoder;

use crate::database::{Database, FoundRecord};

/// The name in metrics and in `/readyz`. The chart's alert on old databases ignores names that start with "built-in".
pub(crate) const NAME: &str = "built-in country data";

const COMPRESSED: &[u8] = include_bytes!("../data/built-in-geo.mmdb.gz");

/// The database. Decompressed once per process and shared by all snapshots.
pub(crate) fn database() -> Arc<Database> {
    static DATABASE: LazyLock<Arc<Database>> = LazyLock::new(|| {
        let database = Database::load_built_in(NAME, decompress());
        Arc::new(database.expect("the built-in country data is valid (tested)"))
    });
    DATABASE.clone()
}

fn decompress() -> Vec<u8> {
    // A gzip file ends with the size of its content, so the buffer never has to grow.
    let size = COMPRESSED.last_chunk::<4>().map_or(0, |size| u32::from_le_bytes(*size));
    let mut bytes = Vec::with_capacity(size as usize);
    let read = GzDecoder::new(COMPRESSED).read_to_end(&mut bytes);
    read.expect("the built-in country data can be decompressed (tested)");
    bytes
}

/// Finds the record of an address. Only public addresses have one: the data places some private networks, such as
/// 192.168.0.0/16, in the country of an Internet registry.
pub(crate) fn find_record(database: &Database, ip: IpAddr) -> Option<FoundRecord<'_>> {
    if is_public(ip) { database.find_record(ip) } else { None }
}

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
    use data_encoding::HEXLOWER;
    use serde_json::Value;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::DatabaseKind;

    /// The file that `built-in-geo.py` writes next to the data.
    fn manifest() -> Value {
        serde_json::from_str(include_str!("../data/built-in-geo.json")).expect("JSON")
    }

    fn country(ip: &str) -> Option<&'static str> {
        let database = database();
        let record = find_record(&database, ip.parse().expect("IP address"))?;
        Some(Database::fields(&record)?.country?.code)
    }

    #[test]
    fn committed_data_matches_its_manifest() {
        let (manifest, bytes) = (manifest(), decompress());
        assert_eq!(manifest["sha256"], HEXLOWER.encode(&Sha256::digest(&bytes)));
        let info = database().info.clone();
        assert_eq!(manifest["date"], info.date().expect("build time").to_string());
        assert_eq!(manifest["package"], "@ip-location-db/geo-whois-asn-country-mmdb");
        let date = info.date().expect("build time").strftime("%Y%m%d").to_string();
        for version in ["version", "operators_version"] {
            assert!(manifest[version].as_str().is_some_and(|version| version.contains(&date)), "{manifest}");
        }
        assert_eq!(
            (&manifest["license"], &manifest["source_license"]),
            (&"CC0-1.0".into(), &"CC-BY-4.0".into())
        );
        let attribution = info.attribution.expect("CC BY requires one");
        assert!(manifest["attribution"].as_str().is_some_and(|text| text.contains("NRO")), "{manifest}");
        assert!(
            attribution.text.contains("NRO") && attribution.url == "https://www.nro.net",
            "{attribution:?}"
        );
    }

    #[test]
    fn committed_data_passes_the_checks_of_loaded_files() {
        let checked = Database::load(NAME, decompress()).expect("valid");
        let info = &database().info;
        assert!(checked.has_countries && database().has_countries);
        assert_eq!((info.kind, info.ip_version), (DatabaseKind::Country, 6));
        assert!(info.name.starts_with("built-in"), "the chart's alert ignores it");
    }

    #[test]
    fn database_is_loaded_once() {
        assert!(Arc::ptr_eq(&database(), &database()));
    }

    #[test]
    fn public_addresses_have_a_country() {
        for (ip, code) in [
            ("8.8.8.8", "US"),
            ("193.0.6.139", "NL"),
            ("133.242.0.3", "JP"),
            ("2001:4860:4860::8888", "US"),
            ("2001:67c:2e8:22::c100:68b", "NL"),
            // In Australia, according to the data without the countries of operators.
            ("2001:ee0::1", "VN"),
            ("2001:e40::1", "JP"),
        ] {
            assert_eq!(country(ip), Some(code), "{ip}");
        }
    }

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
        assert_eq!(country("192.168.1.1"), None, "the data has one");
    }
}
