//! What a successful answer contains: the one table of its fields, and which of them a request gets.

use quota_client::wire::Scope;

/// A JSON type, as the document names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A number with a fraction.
    Number,
    /// True or false.
    Boolean,
}

impl Type {
    /// The name in JSON Schema.
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// One field of a successful answer.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its type where it is not null.
    pub ty: Type,
    /// The narrowest scope that has it.
    pub scope: Scope,
    /// What it means, in a sentence.
    pub meaning: &'static str,
    /// What it may look like, as JSON.
    pub example: &'static str,
}

/// The one field that is always there and never null.
pub const STATUS: &str = "status";

const fn field(
    name: &'static str,
    ty: Type,
    scope: Scope,
    example: &'static str,
    meaning: &'static str,
) -> Field {
    Field { name, ty, scope, meaning, example }
}

/// Every field, in the order of the answer.
#[rustfmt::skip]
pub const FIELDS: [Field; 26] = {
    use Scope::{Full, Geo, Ip};
    use Type::{Boolean, Integer, Number, String};
    [
        field(STATUS, String, Ip, r#""success""#, "Always present on success."),
        field("ip", String, Ip, r#""198.51.100.7""#, "IPv4 address; null if the client is IPv6-only."),
        field("ipv6", String, Ip, "null", "IPv6 address; null if the client is IPv4-only."),
        field("city", String, Geo, r#""San Francisco""#, "City name."),
        field("region", String, Geo, r#""California""#, "Region or state name."),
        field("region_code", String, Geo, r#""US-CA""#, "ISO 3166-2 code."),
        field("country", String, Geo, r#""US""#, "ISO 3166-1 alpha-2 country code."),
        field("country_name", String, Geo, r#""United States""#, "Country name in English."),
        field("continent", String, Geo, r#""NA""#, "Two-letter continent code."),
        field("latitude", Number, Geo, "37.7697", "Latitude."),
        field("longitude", Number, Geo, "-122.3933", "Longitude."),
        field("timezone", String, Geo, r#""America/Los_Angeles""#, "IANA time zone identifier."),
        field("timezone_offset", Integer, Geo, "-28800", "UTC offset in seconds at the moment of the request."),
        field("postal_code", String, Geo, r#""94107""#, "Postal code."),
        field("asn", Integer, Geo, "64497", "Autonomous system number."),
        field("org", String, Geo, r#""Example Network Two""#, "AS organization name or ISP."),
        field("as", String, Geo, r#""AS64497 Example Network Two""#, "AS number and organization name."),
        field("is_eu", Boolean, Geo, "false", "Whether the IP is in the European Union."),
        field("currency", String, Geo, r#""USD""#, "ISO 4217 currency code of the country."),
        field("http_protocol", String, Full, r#""HTTP/2""#, "HTTP protocol version of the request."),
        field("tls_version", String, Full, r#""TLSv1.3""#, "TLS version of the connection."),
        field("tls_cipher", String, Full, r#""TLS_AES_256_GCM_SHA384""#, "TLS cipher suite."),
        field("rtt", Integer, Full, "12", "Round-trip time to the edge network in milliseconds."),
        field("colo", String, Full, r#""SJC""#, "IATA code of the edge data center that served the request."),
        field("proxy", Boolean, Full, "false", "True for a known VPN or proxy network."),
        field("hosting", Boolean, Full, "false", "True for a known hosting or cloud network."),
    ]
};

/// Which fields an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// What a key's scope shows.
    Scope(Scope),
    /// What the demo shows: the geo fields and some facts of the connection.
    Demo,
}

impl View {
    /// Whether it has the fields about the place.
    pub fn has_place(self) -> bool {
        self != Self::Scope(Scope::Ip)
    }

    /// Whether it has this field; the tests' and the documentation's view, not the hot path's.
    pub fn shows(self, field: &Field) -> bool {
        match self {
            Self::Scope(scope) => field.scope <= scope,
            Self::Demo => {
                let extra = ["http_protocol", "tls_version", "rtt", "colo"];
                field.scope <= Scope::Geo || extra.contains(&field.name)
            }
        }
    }
}
