//! The location and network of an IP address, borrowed from the loaded databases, and their JSON. Each response field is
//! defined once, by `fields!`: its name, its value and its documentation.

use std::borrow::Cow;

use serde::Serialize;

/// All data about one IP address; `fields!` below documents the fields. Borrows its strings from the snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Location<'a> {
    pub city: Option<&'a str>,
    pub region: Option<&'a str>,
    /// An ISO 3166-2 code.
    pub region_code: Option<Cow<'a, str>>,
    pub country: Option<&'a str>,
    pub country_name: Option<&'a str>,
    pub continent: Option<&'a str>,
    /// Degrees north.
    pub latitude: Option<f64>,
    /// Degrees east.
    pub longitude: Option<f64>,
    pub timezone: Option<&'a str>,
    /// The timezone that `timezone_offset` is computed with: `timezone`, or one of a country whose timezones have the same
    /// offset. Not part of the JSON.
    pub offset_timezone: Option<&'a str>,
    /// Seconds east of UTC at the time of the lookup.
    pub timezone_offset: Option<i32>,
    /// Owned only if the database stores it as a number.
    pub postal_code: Option<Cow<'a, str>>,
    pub asn: Option<u32>,
    pub org: Option<&'a str>,
    pub is_eu: Option<bool>,
    pub currency: Option<&'a str>,
    /// Whether this is a known VPN or proxy network. `None` if the network is unknown.
    pub proxy: Option<bool>,
    /// Whether this is a known hosting or cloud network. `None` if the network is unknown.
    pub hosting: Option<bool>,
}

impl Location<'_> {
    /// "AS64500 Example", if both parts are known.
    pub fn as_text(&self) -> Option<String> {
        Some(format!("AS{} {}", self.asn?, self.org?))
    }
}

/// Joins country and subdivision to a code of ISO 3166-2. `subdivision` may also be a complete code. `None` if the result
/// does not have the form of a code, for example if `subdivision` is a GeoNames ID.
pub(crate) fn compose_region_code(country: &str, subdivision: &str) -> Option<String> {
    let part = match subdivision.split_once('-') {
        Some((prefix, rest)) if prefix.eq_ignore_ascii_case(country) => rest,
        Some(_) => return None,
        None => subdivision,
    };
    let is_valid = matches!(part.len(), 1..=3) && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_valid.then(|| format!("{country}-{}", part.to_ascii_uppercase()))
}

/// Initial buffer size. Most locations fit.
const TYPICAL_SIZE: usize = 512;

/// The fields of a location as JSON, each with a leading comma. The default has no fields.
#[derive(Debug, Default)]
pub struct LocationJson {
    json: Box<[u8]>,
    /// Where the fields of the scope `full` start.
    full_start: usize,
}

impl LocationJson {
    pub fn new(location: &Location<'_>) -> Self {
        let mut json = Vec::with_capacity(TYPICAL_SIZE);
        write_geo_fields(&mut json, location);
        let full_start = json.len();
        write_full_fields(&mut json, location);
        Self { json: json.into_boxed_slice(), full_start }
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

/// A JSON Schema type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    String,
    Integer,
    Number,
    Boolean,
}

// The names in JSON Schema.
base::names!(Type: String => "string", Integer => "integer", Number => "number", Boolean => "boolean");

/// The documentation of a response field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    /// The type of a value that is not null.
    pub ty: Type,
    /// An example value, as JSON.
    pub example: &'static str,
    pub description: &'static str,
}

/// Defines fields: a table of their documentation, and a function that writes them as JSON, each with a leading comma.
/// Field names are literals that need no escaping, so each is joined with its punctuation at compile time.
#[macro_export]
macro_rules! fields {
    ($(#[$doc:meta])* $table:ident, $write:ident($source:ident: $Source:ty) {
        $($name:literal, $ty:ident, $value:expr, $example:literal, $description:literal;)*
    }) => {
        $(#[$doc])*
        pub const $table: &[$crate::Field] = &[$(
            $crate::Field { name: $name, ty: $crate::Type::$ty, example: $example, description: $description },
        )*];

        fn $write(json: &mut Vec<u8>, $source: $Source) {
            $(
                json.extend_from_slice(concat!(",\"", $name, "\":").as_bytes());
                $crate::write_value(json, &$value);
            )*
        }
    };
}

pub fn write_value(json: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(json, value).expect("serializing scalars to a Vec can't fail");
}

fields! {
    /// The fields of the scope `geo`, in response order.
    GEO_FIELDS, write_geo_fields(location: &Location<'_>) {
        "city", String, location.city, r#""San Francisco""#, "City name.";
        "region", String, location.region, r#""California""#, "Region or state name.";
        "region_code", String, location.region_code, r#""US-CA""#, "ISO 3166-2 code of the region.";
        "country", String, location.country, r#""US""#, "ISO 3166-1 alpha-2 country code.";
        "country_name", String, location.country_name, r#""United States""#, "Country name in English.";
        "continent", String, location.continent, r#""NA""#, "Two-letter continent code.";
        "latitude", Number, location.latitude, "37.7697", "Latitude.";
        "longitude", Number, location.longitude, "-122.3933", "Longitude.";
        "timezone", String, location.timezone, r#""America/Los_Angeles""#, "IANA timezone identifier.";
        "timezone_offset", Integer, location.timezone_offset, "-28800", "UTC offset in seconds at the time of the request.";
        "postal_code", String, location.postal_code, r#""94107""#, "Postal code.";
        "asn", Integer, location.asn, "64497", "Autonomous system (AS) number.";
        "org", String, location.org, r#""Example Network Two""#, "AS organization name or ISP.";
        "as", String, location.as_text(), r#""AS64497 Example Network Two""#, "AS number and organization name.";
        "is_eu", Boolean, location.is_eu, "false", "Whether the address is in the European Union.";
        "currency", String, location.currency, r#""USD""#, "ISO 4217 currency code of the country.";
    }
}

fields! {
    /// The fields that the scope `full` adds, in response order.
    FULL_FIELDS, write_full_fields(location: &Location<'_>) {
        "proxy", Boolean, location.proxy, "false", "True for a known VPN or proxy network.";
        "hosting", Boolean, location.hosting, "false", "True for a known hosting or cloud network.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_code_is_composed_as_iso_3166_2() {
        for (part, code) in
            [("BE", Some("DE-BE")), ("DE-BE", Some("DE-BE")), ("1", Some("DE-1")), ("eng", Some("DE-ENG"))]
        {
            assert_eq!(compose_region_code("DE", part).as_deref(), code, "{part}");
        }
        for part in ["", "FR-75", "ABCD", "B E", "é", "DE-", "DE-BE-1"] {
            assert_eq!(compose_region_code("DE", part), None, "{part}");
        }
    }
}
