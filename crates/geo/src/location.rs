//! The location and network of an IP address, borrowed from the loaded databases, and their JSON.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::{Serialize, Serializer};

use crate::field;

/// All data about one IP address. Borrows its strings from the snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Location<'a> {
    pub city: Option<&'a str>,
    /// Name of the region or state.
    pub region: Option<&'a str>,
    /// ISO 3166-2 code ("DE-BE").
    pub region_code: Option<RegionCode>,
    /// ISO 3166-1 alpha-2 code.
    pub country: Option<&'a str>,
    /// English name of the country.
    pub country_name: Option<&'a str>,
    /// Two-letter continent code.
    pub continent: Option<&'a str>,
    /// Degrees north.
    pub latitude: Option<f64>,
    /// Degrees east.
    pub longitude: Option<f64>,
    /// IANA identifier.
    pub timezone: Option<&'a str>,
    /// Seconds east of UTC at the time of the lookup.
    pub timezone_offset: Option<i32>,
    /// Owned only if the database stores it as a number.
    pub postal_code: Option<Cow<'a, str>>,
    /// Autonomous system number.
    pub asn: Option<u32>,
    /// Organization that operates the network.
    pub org: Option<&'a str>,
    /// "AS64500 Example", if both parts are known.
    pub as_text: Option<AsText<'a>>,
    /// Whether the location is in the European Union.
    pub is_eu: Option<bool>,
    /// ISO 4217 code of the country.
    pub currency: Option<&'a str>,
    /// Whether this is a known VPN or proxy network. `None` if the network is unknown.
    pub proxy: Option<bool>,
    /// Whether this is a known hosting or cloud network. `None` if the network is unknown.
    pub hosting: Option<bool>,
}

/// An ISO 3166-2 code, stored inline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RegionCode {
    bytes: [u8; 6],
    len: u8,
}

impl RegionCode {
    /// Joins country and subdivision. `subdivision` may also be a complete code.
    /// `None` if the result does not have the form of an ISO code, for example if `subdivision` is a GeoNames ID.
    pub(crate) fn compose(country: &str, subdivision: &str) -> Option<Self> {
        let part = match subdivision.split_once('-') {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case(country) => rest,
            Some(_) => return None,
            None => subdivision,
        };
        let has_valid_length = country.len() == 2 && matches!(part.len(), 1..=3);
        if !has_valid_length || !part.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let mut bytes = [0; 6];
        bytes[..2].copy_from_slice(country.as_bytes());
        bytes[2] = b'-';
        bytes[3..3 + part.len()].copy_from_slice(part.as_bytes());
        bytes.make_ascii_uppercase();
        Some(RegionCode { bytes, len: 3 + part.len() as u8 })
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl Deref for RegionCode {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for RegionCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for RegionCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Formats as "AS64500 Example" without storing the string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsText<'a> {
    pub asn: u32,
    pub org: &'a str,
}

impl fmt::Display for AsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AS{} {}", self.asn, self.org)
    }
}

impl Serialize for AsText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Initial buffer size. Most locations fit.
const TYPICAL_SIZE: usize = 512;

/// The fields of a location as JSON, each with a leading comma. The default is empty, for scopes without geo fields.
#[derive(Debug, Default)]
pub struct LocationJson {
    json: Vec<u8>,
    /// Where the fields of the scope `full` start.
    full_start: usize,
}

impl LocationJson {
    pub fn new(location: &Location<'_>) -> Self {
        let mut json = Vec::with_capacity(TYPICAL_SIZE);
        write_geo_fields(&mut json, location);
        let full_start = json.len();
        write_full_fields(&mut json, location);
        Self { json, full_start }
    }

    /// The fields of the scope `geo`: `city` to `currency`.
    pub fn geo_fields(&self) -> &[u8] {
        &self.json[..self.full_start]
    }

    /// The fields that the scope `full` adds: `proxy` and `hosting`.
    pub fn full_fields(&self) -> &[u8] {
        &self.json[self.full_start..]
    }

    pub(crate) fn len(&self) -> usize {
        self.json.len()
    }
}

fn write_geo_fields(json: &mut Vec<u8>, location: &Location<'_>) {
    field!(json, "city", &location.city);
    field!(json, "region", &location.region);
    field!(json, "region_code", &location.region_code);
    field!(json, "country", &location.country);
    field!(json, "country_name", &location.country_name);
    field!(json, "continent", &location.continent);
    field!(json, "latitude", &location.latitude);
    field!(json, "longitude", &location.longitude);
    field!(json, "timezone", &location.timezone);
    field!(json, "timezone_offset", &location.timezone_offset);
    field!(json, "postal_code", &location.postal_code);
    field!(json, "asn", &location.asn);
    field!(json, "org", &location.org);
    field!(json, "as", &location.as_text);
    field!(json, "is_eu", &location.is_eu);
    field!(json, "currency", &location.currency);
}

fn write_full_fields(json: &mut Vec<u8>, location: &Location<'_>) {
    field!(json, "proxy", &location.proxy);
    field!(json, "hosting", &location.hosting);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_code_is_composed_as_iso_3166_2() {
        for (part, code) in
            [("BE", Some("DE-BE")), ("DE-BE", Some("DE-BE")), ("1", Some("DE-1")), ("eng", Some("DE-ENG"))]
        {
            assert_eq!(RegionCode::compose("DE", part).as_deref(), code, "{part}");
        }
        for part in ["", "FR-75", "ABCD", "B E", "é", "DE-", "DE-BE-1"] {
            assert_eq!(RegionCode::compose("DE", part), None, "{part}");
        }
    }

    #[test]
    fn as_text_displays_and_serializes_number_and_name() {
        let text = AsText { asn: 64500, org: "Example" };
        assert_eq!(text.to_string(), "AS64500 Example");
        assert_eq!(serde_json::to_string(&text).expect("serialize"), "\"AS64500 Example\"");
    }
}
