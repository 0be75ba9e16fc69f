//! The table of all response fields, and the field sets that responses contain.

use quota_client::wire::Scope;

/// A JSON Schema type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    String,
    Integer,
    Number,
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

/// One field of a successful response.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    /// The type of a value that is not null.
    pub ty: Type,
    /// The narrowest scope that includes the field.
    pub scope: Scope,
    /// Shown in `/docs` and in the OpenAPI document.
    pub description: &'static str,
    /// An example value, as JSON.
    pub example: &'static str,
}

/// The only field that is always present and never null.
pub const STATUS: &str = "status";

const fn field(
    name: &'static str,
    ty: Type,
    scope: Scope,
    example: &'static str,
    description: &'static str,
) -> Field {
    Field { name, ty, scope, description, example }
}

/// Every field, in response order.
#[rustfmt::skip]
pub const FIELDS: [Field; 26] = {
    use Scope::{Full, Geo, Ip};
    use Type::{Boolean, Integer, Number, String};
    [
        field(STATUS, String, Ip, r#""success""#, "Always \"success\". Error responses do not have this field."),
        field("ip", String, Ip, r#""198.51.100.7""#, "The caller's IPv4 address; null if the caller used IPv6."),
        field("ipv6", String, Ip, "null", "The caller's IPv6 address; null if the caller used IPv4."),
        field("city", String, Geo, r#""San Francisco""#, "City name."),
        field("region", String, Geo, r#""California""#, "Region or state name."),
        field("region_code", String, Geo, r#""US-CA""#, "ISO 3166-2 code of the region."),
        field("country", String, Geo, r#""US""#, "ISO 3166-1 alpha-2 country code."),
        field("country_name", String, Geo, r#""United States""#, "Country name in English."),
        field("continent", String, Geo, r#""NA""#, "Two-letter continent code."),
        field("latitude", Number, Geo, "37.7697", "Latitude."),
        field("longitude", Number, Geo, "-122.3933", "Longitude."),
        field("timezone", String, Geo, r#""America/Los_Angeles""#, "IANA timezone identifier."),
        field("timezone_offset", Integer, Geo, "-28800", "UTC offset in seconds at the time of the request."),
        field("postal_code", String, Geo, r#""94107""#, "Postal code."),
        field("asn", Integer, Geo, "64497", "Autonomous system (AS) number."),
        field("org", String, Geo, r#""Example Network Two""#, "AS organization name or ISP."),
        field("as", String, Geo, r#""AS64497 Example Network Two""#, "AS number and organization name."),
        field("is_eu", Boolean, Geo, "false", "Whether the address is in the European Union."),
        field("currency", String, Geo, r#""USD""#, "ISO 4217 currency code of the country."),
        field("http_protocol", String, Full, r#""HTTP/2""#, "HTTP version of the request."),
        field("tls_version", String, Full, r#""TLSv1.3""#, "TLS version of the connection."),
        field("tls_cipher", String, Full, r#""TLS_AES_256_GCM_SHA384""#, "TLS cipher suite."),
        field("rtt", Integer, Full, "12", "Round-trip time to the edge network in milliseconds."),
        field("colo", String, Full, r#""SJC""#, "IATA code of the edge data center that served the request."),
        field("proxy", Boolean, Full, "false", "True for a known VPN or proxy network."),
        field("hosting", Boolean, Full, "false", "True for a known hosting or cloud network."),
    ]
};

/// The fields of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldSet {
    /// The fields of a scope.
    Scope(Scope),
    /// The fields of the demo: those of the scope `geo` and some connection facts.
    Demo,
}

impl FieldSet {
    pub fn has_geo_fields(self) -> bool {
        self != Self::Scope(Scope::Ip)
    }

    pub fn has_connection_facts(self) -> bool {
        matches!(self, Self::Scope(Scope::Full) | Self::Demo)
    }

    /// A response with this set of fields, as JSON.
    pub fn example(self) -> String {
        let fields = FIELDS.iter().filter(|field| self.contains(field));
        let fields: Vec<_> = fields.map(|field| format!("  \"{}\": {}", field.name, field.example)).collect();
        format!("{{\n{}\n}}", fields.join(",\n"))
    }

    /// Whether the set includes a field. Used only for the documentation and in tests: `LookupBody` has its own code
    /// for each set.
    pub fn contains(self, field: &Field) -> bool {
        match self {
            Self::Scope(scope) => field.scope <= scope,
            Self::Demo => {
                let extra = ["http_protocol", "tls_version", "rtt", "colo"];
                field.scope <= Scope::Geo || extra.contains(&field.name)
            }
        }
    }
}
