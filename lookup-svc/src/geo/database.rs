//! One loaded MMDB database. All of it is verified before use.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::path::Path;

use maxminddb::{LookupResult, Reader, WithinOptions};
use serde::Serialize;

use super::GeoError;
use super::layout::Fields;
use super::provider::{self, Attribution, DatabaseKind};
use super::writer::{MARKER, Value};

/// Maximum number of networks that `probe` decodes.
const MAX_PROBES: usize = 100_000;

/// Maximum size of the metadata at the end of a file, according to the MMDB specification.
const MAX_METADATA_SIZE: u64 = 128 << 10;

/// Metadata of a database, for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// Attribution that the license requires.
    pub attribution: Option<Attribution>,
}

/// A record that was found but not decoded yet.
pub(super) type FoundRecord<'a> = LookupResult<'a, Vec<u8>>;

/// A database, held in memory.
pub(super) struct Database {
    reader: Reader<Vec<u8>>,
    pub(super) info: DatabaseInfo,
}

impl Database {
    /// Parses a file and checks it: first the whole structure, then that its records decode (see `probe`).
    pub(super) fn load(name: &str, bytes: Vec<u8>) -> Result<Self, GeoError> {
        let reader = Reader::from_source(with_complete_metadata(bytes)?).map_err(GeoError::Corrupt)?;
        reader.verify().map_err(GeoError::Corrupt)?;
        let probed_kind = probe(&reader)?;
        let metadata = reader.metadata();
        let info = DatabaseInfo {
            name: name.to_owned(),
            kind: DatabaseKind::of(&metadata.database_type).unwrap_or(probed_kind),
            database_type: metadata.database_type.clone(),
            ip_version: metadata.ip_version,
            build_epoch: metadata.build_epoch,
            attribution: provider::attribution(&metadata.database_type, name),
        };
        Ok(Database { reader, info })
    }

    /// Finds the record of an address. An IPv4-only file has none for an IPv6 address.
    pub(super) fn find_record(&self, ip: IpAddr) -> Option<FoundRecord<'_>> {
        if ip.is_ipv6() && self.info.ip_version == 4 {
            return None;
        }
        self.reader.lookup(ip).ok().filter(FoundRecord::has_data)
    }

    /// Decodes a record. A decoding error yields `None`, because it must not fail a request.
    pub(super) fn fields<'a>(record: &FoundRecord<'a>) -> Option<Fields<'a>> {
        record.decode().ok()?
    }
}

/// Checks that the end of a file contains the marker that starts the metadata. Reads only the end.
pub(super) fn find_metadata(path: &Path) -> Result<(), GeoError> {
    let mut file = File::open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_METADATA_SIZE + MARKER.len() as u64)))?;
    let mut end = Vec::new();
    file.take(MAX_METADATA_SIZE + MARKER.len() as u64).read_to_end(&mut end)?;
    if end.windows(MARKER.len()).any(|window| window == MARKER) {
        return Ok(());
    }
    Err(GeoError::Corrupt(maxminddb::MaxMindDbError::invalid_database("the file does not end with metadata")))
}

/// Adds a description and a database type to the metadata if they are missing. `Reader::verify` requires
/// both, but many custom-built files lack them.
fn with_complete_metadata(mut bytes: Vec<u8>) -> Result<Vec<u8>, GeoError> {
    let reader = Reader::from_source(bytes.as_slice()).map_err(GeoError::Corrupt)?;
    let original = reader.metadata();
    if !original.description.is_empty() && !original.database_type.is_empty() {
        return Ok(bytes);
    }
    let database_type = Some(original.database_type.as_str()).filter(|name| !name.is_empty());
    let metadata = Value::map([
        ("binary_format_major_version", Value::U16(original.binary_format_major_version)),
        ("binary_format_minor_version", Value::U16(original.binary_format_minor_version)),
        ("build_epoch", Value::U64(original.build_epoch)),
        ("database_type", Value::from(database_type.unwrap_or("unnamed"))),
        ("description", Value::map([("en", Value::from("none"))])),
        ("ip_version", Value::U16(original.ip_version)),
        ("languages", Value::Array(Vec::new())),
        ("node_count", Value::U32(original.node_count)),
        ("record_size", Value::U16(original.record_size)),
    ]);
    let marker = bytes.windows(MARKER.len()).rposition(|window| window == MARKER);
    let marker = marker.ok_or(GeoError::NoKnownFields)?;
    bytes.truncate(marker + MARKER.len());
    bytes.extend(metadata.encoded());
    Ok(bytes)
}

/// Decodes up to `MAX_PROBES` networks as a request would, and infers the kind of database from the first usable
/// record. Rejects the file if one of them fails to decode or none is usable.
fn probe(reader: &Reader<Vec<u8>>) -> Result<DatabaseKind, GeoError> {
    let options = WithinOptions::default().skip_empty_values();
    let mut kind = None;
    let mut seen = HashSet::new();
    for record in reader.networks(options).map_err(GeoError::Corrupt)?.take(MAX_PROBES) {
        let record = record.map_err(GeoError::Corrupt)?;
        if !seen.insert(record.offset()) {
            continue;
        }
        let fields: Fields<'_> = record.decode().map_err(GeoError::Corrupt)?.unwrap_or_default();
        kind = kind.or((!fields.is_empty()).then(|| infer_kind(&fields)));
    }
    kind.ok_or(GeoError::NoKnownFields)
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
