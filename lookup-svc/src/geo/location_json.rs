//! The response fields of a location, serialized as JSON.

use super::location::Location;
use crate::json::field;

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

    pub(super) fn len(&self) -> usize {
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
