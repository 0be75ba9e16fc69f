//! The built-in country data, which is always the last database: it provides the country of an address where no loaded
//! database has one. `built-in-geo.py` updates it.

use std::io::Read;
use std::sync::{Arc, LazyLock};

use flate2::read::GzDecoder;

use crate::database::Database;

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
        let record = database.find_record(ip.parse().expect("IP address"))?;
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
        Database::load(NAME, decompress()).expect("valid");
        let info = &database().info;
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
}
