//! One loaded database: checked before it is used, then only read.

use std::collections::HashSet;
use std::net::IpAddr;

use maxminddb::{LookupResult, Reader, WithinOptions};
use serde::Serialize;

use super::GeoError;
use super::layout::Fields;
use super::provider::{self, Attribution, Kind};
use super::writer::{MARKER, Value};

/// How many networks are looked at by use before a verified database is trusted.
const PROBES: usize = 100_000;

/// What an operator wants to know about a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DatabaseInfo {
    /// The file's name.
    pub name: String,
    /// The type its metadata names ("GeoLite2-City").
    pub database_type: String,
    /// What it is about.
    pub kind: Kind,
    /// 4 or 6; a file of version 6 usually has both families.
    pub ip_version: u16,
    /// When its maker built it (Unix seconds).
    pub build_epoch: u64,
    /// The credit its licence asks for.
    pub attribution: Option<Attribution>,
}

/// A record that was found and not yet read.
pub(super) type Located<'a> = LookupResult<'a, Vec<u8>>;

/// A database in memory.
pub(super) struct Database {
    reader: Reader<Vec<u8>>,
    pub(super) info: DatabaseInfo,
}

impl Database {
    /// Parses and checks a file's bytes: the whole structure, then records by use.
    pub(super) fn load(name: &str, bytes: Vec<u8>) -> Result<Self, GeoError> {
        let reader = Reader::from_source(described(bytes)?).map_err(GeoError::Broken)?;
        reader.verify().map_err(GeoError::Broken)?;
        let shape = probe(&reader)?;
        let metadata = reader.metadata();
        let info = DatabaseInfo {
            name: name.to_owned(),
            kind: Kind::of(&metadata.database_type).unwrap_or(shape),
            database_type: metadata.database_type.clone(),
            ip_version: metadata.ip_version,
            build_epoch: metadata.build_epoch,
            attribution: provider::attribution(&metadata.database_type, name),
        };
        Ok(Database { reader, info })
    }

    /// Its record of an address. An IPv6 address in an IPv4-only file is simply not there.
    pub(super) fn locate(&self, ip: IpAddr) -> Option<Located<'_>> {
        if ip.is_ipv6() && self.info.ip_version == 4 {
            return None;
        }
        self.reader.lookup(ip).ok().filter(Located::has_data)
    }

    /// What a record says. One that cannot be decoded counts as none: it must not fail a request.
    pub(super) fn fields<'a>(record: &Located<'a>) -> Option<Fields<'a>> {
        record.decode().ok()?
    }
}

/// The file, with a description if it had none: `verify` insists on one, home-made files lack it,
/// and no file is decoded here that was not verified.
fn described(mut bytes: Vec<u8>) -> Result<Vec<u8>, GeoError> {
    let reader = Reader::from_source(bytes.as_slice()).map_err(GeoError::Broken)?;
    let found = reader.metadata();
    if !found.description.is_empty() && !found.database_type.is_empty() {
        return Ok(bytes);
    }
    let kind = Some(found.database_type.as_str()).filter(|kind| !kind.is_empty());
    let metadata = Value::map([
        ("binary_format_major_version", Value::U16(found.binary_format_major_version)),
        ("binary_format_minor_version", Value::U16(found.binary_format_minor_version)),
        ("build_epoch", Value::U64(found.build_epoch)),
        ("database_type", Value::from(kind.unwrap_or("unnamed"))),
        ("description", Value::map([("en", Value::from("none"))])),
        ("ip_version", Value::U16(found.ip_version)),
        ("languages", Value::Array(Vec::new())),
        ("node_count", Value::U32(found.node_count)),
        ("record_size", Value::U16(found.record_size)),
    ]);
    let marker = bytes.windows(MARKER.len()).rposition(|window| window == MARKER);
    let marker = marker.ok_or(GeoError::Useless)?;
    bytes.truncate(marker + MARKER.len());
    bytes.extend(metadata.encoded());
    Ok(bytes)
}

/// Decodes records as requests will; refuses a record that fails, and a file that has nothing for us.
fn probe(reader: &Reader<Vec<u8>>) -> Result<Kind, GeoError> {
    let options = WithinOptions::default().skip_empty_values();
    let mut shape = None;
    let mut seen = HashSet::new();
    for found in reader.networks(options).map_err(GeoError::Broken)?.take(PROBES) {
        let found = found.map_err(GeoError::Broken)?;
        if !seen.insert(found.offset()) {
            continue;
        }
        let fields: Fields<'_> = found.decode().map_err(GeoError::Broken)?.unwrap_or_default();
        shape = shape.or((!fields.is_empty()).then(|| kind_by_shape(&fields)));
    }
    shape.ok_or(GeoError::Useless)
}

fn kind_by_shape(fields: &Fields<'_>) -> Kind {
    match (fields.city.or(fields.timezone), fields.country, fields.asn) {
        (Some(_), _, _) => Kind::City,
        (None, Some(_), Some(_)) => Kind::CountryAsn,
        (None, Some(_), None) => Kind::Country,
        (None, None, Some(_)) => Kind::Asn,
        (None, None, None) if fields.proxy || fields.hosting => Kind::AnonymousIp,
        (None, None, None) => Kind::Other,
    }
}
