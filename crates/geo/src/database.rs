//! One MMDB database, loaded or built in. All of a file is verified before use.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use base::watched_files;
use flate2::read::GzDecoder;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use maxminddb::{LookupResult, Reader, WithinOptions};

use crate::GeoError;
use crate::memory::MemoryLimit;
use crate::merge::has_details;
use crate::provider::{self, Attribution, DatabaseKind};
use crate::public_address::is_public;
use crate::record::Fields;

/// Maximum size of a file: 2 GiB, three times the size of the largest commercial database.
pub(crate) const DATABASE_LIMIT: u64 = 2 << 30;

/// The bytes that precede the metadata section.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// Maximum number of networks that `probe` decodes.
const MAX_PROBES: usize = 100_000;

/// Maximum size of the metadata at the end of a file, according to the MMDB specification.
const MAX_METADATA_SIZE: u64 = 128 << 10;

/// The type of a database whose metadata has none: the placeholder of `with_complete_metadata`.
const UNNAMED: &str = "unnamed";

/// The name of the built-in country data in metrics and in `/readyz`. The chart's alert on old databases ignores names that
/// start with "built-in".
const BUILT_IN_NAME: &str = "built-in country data";

/// The built-in country data. `built-in-geo.py` updates it.
const BUILT_IN: &[u8] = include_bytes!("../data/built-in-geo.mmdb.gz");

fn built_in_bytes() -> Vec<u8> {
    // A gzip file ends with the size of its content, so the buffer never has to grow.
    let size = BUILT_IN.last_chunk::<4>().map_or(0, |size| u32::from_le_bytes(*size));
    let mut bytes = Vec::with_capacity(size as usize);
    let read = GzDecoder::new(BUILT_IN).read_to_end(&mut bytes);
    read.expect("the built-in country data can be decompressed (tested)");
    bytes
}

/// Metadata of a database, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// File name.
    pub name: String,
    /// Type from the file's metadata, such as "GeoLite2-City".
    pub database_type: String,
    pub kind: DatabaseKind,
    /// 4 or 6. A file of version 6 usually has both address families.
    pub ip_version: u16,
    /// When the provider built the file (Unix seconds).
    pub build_epoch: u64,
    pub attribution: Option<Attribution>,
}

/// Formats as "city.mmdb, built 2026-06-17".
impl fmt::Display for DatabaseInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.date() {
            Some(date) => write!(f, "{}, built {date}", self.name),
            None => write!(f, "{}, without a build date", self.name),
        }
    }
}

impl DatabaseInfo {
    /// The day of the build, in UTC. `None` if the metadata has no build time.
    pub fn date(&self) -> Option<Date> {
        (self.build_epoch > 0).then(|| utc_date(i64::try_from(self.build_epoch).ok()?)).flatten()
    }

    /// Days since the build, at `now` (Unix seconds). `None` if the metadata has no build time.
    pub(crate) fn age_in_days(&self, now: i64) -> Option<i32> {
        Some(self.date()?.until(utc_date(now)?).map_or(0, |span| span.get_days()).max(0))
    }

    /// Date and age at `now` (Unix seconds): "2026-06-17, 5 months old".
    pub fn date_and_age(&self, now: i64) -> String {
        let Some((date, days)) = self.date().zip(self.age_in_days(now)) else {
            return "an unknown date".to_owned();
        };
        let (count, unit) = match days {
            ..60 => (days, "day"),
            60..730 => ((days * 12 + 182) / 365, "month"),
            730.. => ((days + 182) / 365, "year"),
        };
        format!("{date}, {count} {unit}{} old", if count == 1 { "" } else { "s" })
    }
}

fn utc_date(seconds: i64) -> Option<Date> {
    Some(TimeZone::UTC.to_datetime(Timestamp::from_second(seconds).ok()?).date())
}

/// A record that was found but not decoded yet.
pub(crate) type FoundRecord<'a> = LookupResult<'a, Vec<u8>>;

/// A database, held in memory.
pub(crate) struct Database {
    reader: Reader<Vec<u8>>,
    pub(crate) info: DatabaseInfo,
}

impl Database {
    /// Reads a file with all checks. One without metadata at its end, such as an unpacked decompression bomb, is rejected
    /// before it is read into memory.
    pub(crate) fn open(path: &Path, memory: &MemoryLimit) -> Result<Self, GeoError> {
        let mut file = watched_files::open(path)?;
        find_metadata(&mut file)?;
        memory.require_for(file.metadata()?.len())?;
        file.rewind()?;
        let bytes = watched_files::read(file, DATABASE_LIMIT)?;
        Self::load(&path.file_name().unwrap_or_default().to_string_lossy(), bytes)
    }

    /// Parses a file and checks it: first the whole structure, then that its records decode (see `probe`).
    pub(crate) fn load(name: &str, bytes: Vec<u8>) -> Result<Self, GeoError> {
        let reader = Reader::from_source(with_complete_metadata(bytes)).map_err(GeoError::Corrupt)?;
        reader.verify().map_err(GeoError::Corrupt)?;
        let probe = probe(&reader)?;
        Ok(Self::new(name, reader, probe))
    }

    /// The built-in country data, which is always the last database. Decompressed once per process and shared by all snapshots.
    /// Not checked, which would delay every start: a test does so.
    pub(crate) fn built_in() -> Arc<Self> {
        static DATABASE: LazyLock<Arc<Database>> = LazyLock::new(|| {
            let reader = Reader::from_source(built_in_bytes());
            let reader = reader.expect("the built-in country data is valid (tested)");
            let probe = Probe { kind: DatabaseKind::Country, has_details: false };
            let mut database = Database::new(BUILT_IN_NAME, reader, probe);
            database.info.attribution = Some(provider::NRO);
            Arc::new(database)
        });
        DATABASE.clone()
    }

    fn new(name: &str, reader: Reader<Vec<u8>>, probe: Probe) -> Self {
        let metadata = reader.metadata();
        let info = DatabaseInfo {
            name: name.to_owned(),
            // A type such as "carrier_location" is not enough for a database of cities.
            kind: DatabaseKind::of(&metadata.database_type)
                .filter(|kind| *kind != DatabaseKind::City || probe.has_details)
                .unwrap_or(probe.kind),
            attribution: provider::attribution(&metadata.database_type, name),
            database_type: metadata.database_type.clone(),
            ip_version: metadata.ip_version,
            build_epoch: metadata.build_epoch,
        };
        Database { reader, info }
    }

    /// Type, description, vendor and IP version, which successive builds of a database have in common. Databases of several
    /// vendors may have the same type and no description; then the file's name tells the vendor. Without the digits of the
    /// description, which may be those of a date. `None` without a type: such files need not have anything in common.
    pub(crate) fn build_key(&self) -> Option<(&str, String, Option<&Attribution>, u16)> {
        let DatabaseInfo { database_type, ip_version, attribution, .. } = &self.info;
        let descriptions = &self.reader.metadata().description;
        let description = descriptions.get("en").or_else(|| descriptions.values().next());
        let text = description.map(|text| text.chars().filter(|c| !c.is_ascii_digit()).collect());
        (database_type != UNNAMED)
            .then(|| (database_type.as_str(), text.unwrap_or_default(), attribution.as_ref(), *ip_version))
    }

    /// Looks up an address. The result has the network that it is for, whether or not there is a record. `None` for an IPv6
    /// address in an IPv4-only file, and for an address that is not public: some databases place private networks, such as
    /// 192.168.0.0/16, in the country of an Internet registry.
    pub(crate) fn lookup(&self, ip: IpAddr) -> Option<FoundRecord<'_>> {
        if !is_public(ip) || ip.is_ipv6() && self.info.ip_version == 4 {
            return None;
        }
        self.reader.lookup(ip).ok()
    }

    /// Decodes a record. A decoding error yields `None`, because it must not fail a request.
    pub(crate) fn fields<'a>(record: &FoundRecord<'a>) -> Option<Fields<'a>> {
        record.decode().ok()?
    }
}

/// Checks that the end of a file contains the marker that starts the metadata. Reads only the end.
fn find_metadata(file: &mut File) -> Result<(), GeoError> {
    let size = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_METADATA_SIZE + MARKER.len() as u64)))?;
    let mut end = Vec::new();
    file.take(MAX_METADATA_SIZE + MARKER.len() as u64).read_to_end(&mut end)?;
    if end.windows(MARKER.len()).any(|window| window == MARKER) {
        return Ok(());
    }
    Err(GeoError::Corrupt(maxminddb::MaxMindDbError::invalid_database("the file does not end with metadata")))
}

/// Adds a placeholder for an empty description or type: `Reader::verify` requires both, but many files lack them, such as
/// those of ip-location-db. The byte after a key is the control byte of its value: `e0` is an empty map, `40` an empty string.
fn with_complete_metadata(mut bytes: Vec<u8>) -> Vec<u8> {
    let metadata = bytes.windows(MARKER.len()).rposition(|window| window == MARKER).unwrap_or(bytes.len());
    for (empty, complete) in [
        (&b"description\xe0"[..], &b"description\xe1\x42en\x44none"[..]),
        (b"database_type\x40", b"database_type\x47unnamed"),
    ] {
        if let Some(at) = bytes[metadata..].windows(empty.len()).position(|window| window == empty) {
            let at = metadata + at;
            // Otherwise `Vec` would double its capacity.
            bytes.reserve_exact(complete.len());
            bytes.splice(at..at + empty.len(), complete.iter().copied());
        }
    }
    bytes
}

/// What the records of a database have shown.
struct Probe {
    kind: DatabaseKind,
    /// Whether any record has a city or something else that is more precise than a country.
    has_details: bool,
}

/// Decodes up to `MAX_PROBES` networks as a request would, and infers the kind of database from the first usable
/// record. Rejects the file if one of them fails to decode or none is usable.
fn probe(reader: &Reader<Vec<u8>>) -> Result<Probe, GeoError> {
    let options = WithinOptions::default().skip_empty_values();
    let (mut kind, mut details) = (None, false);
    let mut seen = HashSet::new();
    for record in reader.networks(options).map_err(GeoError::Corrupt)?.take(MAX_PROBES) {
        let record = record.map_err(GeoError::Corrupt)?;
        if !seen.insert(record.offset()) {
            continue;
        }
        let fields: Fields<'_> = record.decode().map_err(GeoError::Corrupt)?.unwrap_or_default();
        kind = kind.or((fields != Fields::default()).then(|| infer_kind(&fields)));
        details |= has_details(&fields);
    }
    Ok(Probe { kind: kind.ok_or(GeoError::NoKnownFields)?, has_details: details })
}

fn infer_kind(fields: &Fields<'_>) -> DatabaseKind {
    match (fields.city.or(fields.timezone), fields.country, fields.asn) {
        (Some(_), _, _) => DatabaseKind::City,
        (None, Some(_), Some(_)) => DatabaseKind::CountryAsn,
        (None, Some(_), None) => DatabaseKind::Country,
        (None, None, Some(_)) => DatabaseKind::Asn,
        (None, None, None) if fields.proxy || fields.hosting => DatabaseKind::AnonymousIp,
        (None, None, None) => DatabaseKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use serde_json::Value;
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn age_is_stated_in_days_months_or_years() {
        const JUNE_17: i64 = 1_781_725_900; // 2026-06-17T19:51:40Z
        let info = |build_epoch| DatabaseInfo {
            name: String::new(),
            database_type: String::new(),
            kind: DatabaseKind::Country,
            ip_version: 6,
            build_epoch,
            attribution: None,
        };
        let built = info(JUNE_17 as u64);
        for (days, age) in [
            (-3, "0 days"),
            (0, "0 days"),
            (1, "1 day"),
            (59, "59 days"),
            (60, "2 months"),
            (152, "5 months"),
            (729, "24 months"),
            (730, "2 years"),
            (1_000, "3 years"),
        ] {
            assert_eq!(
                built.date_and_age(JUNE_17 + days * 86_400),
                format!("2026-06-17, {age} old"),
                "{days}"
            );
        }
        assert_eq!(info(0).date_and_age(JUNE_17), "an unknown date");
        assert_eq!(info(u64::MAX).date_and_age(JUNE_17), "an unknown date");
    }

    /// The file that `built-in-geo.py` writes next to the data.
    fn manifest() -> Value {
        serde_json::from_str(include_str!("../data/built-in-geo.json")).expect("JSON")
    }

    fn country(ip: &str) -> Option<&'static str> {
        let database = Database::built_in();
        let record = database.lookup(ip.parse().expect("IP address")).filter(FoundRecord::has_data)?;
        Some(Database::fields(&record)?.country?.code)
    }

    #[test]
    fn committed_data_matches_its_manifest() {
        let (manifest, bytes) = (manifest(), built_in_bytes());
        assert_eq!(manifest["sha256"], HEXLOWER.encode(&Sha256::digest(&bytes)));
        let info = Database::built_in().info.clone();
        assert_eq!(manifest["date"], info.date().expect("build time").to_string());
        let date = format!("It is of {}", info.date().expect("build time"));
        assert!(
            include_str!("../../../docs/geo-data.md").contains(&date),
            "docs/geo-data.md must contain {date:?}"
        );
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
        Database::load(BUILT_IN_NAME, built_in_bytes()).expect("valid");
        let info = &Database::built_in().info;
        assert_eq!((info.kind, info.ip_version), (DatabaseKind::Country, 6));
        assert!(info.name.starts_with("built-in"), "the chart's alert ignores it");
    }

    #[test]
    fn database_is_loaded_once() {
        assert!(Arc::ptr_eq(&Database::built_in(), &Database::built_in()));
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
