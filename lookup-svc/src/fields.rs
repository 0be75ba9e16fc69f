//! The fields of successful responses: their groups, and the field sets that responses contain.

use std::net::IpAddr;

use edge::{ClientInfo, ConnectionFacts, Iata};
use geo::{FULL_FIELDS, Field, GEO_FIELDS, LocationJson, Type};
use quota_client::wire::Scope;

/// Enough for most responses: a full one has about 600 bytes.
const INITIAL_CAPACITY: usize = 1024;

/// The only field that is always present and never null.
pub const STATUS: &str = "status";

const STATUS_FIELDS: &[Field] = &[Field {
    name: STATUS,
    ty: Type::String,
    example: r#""success""#,
    description: "Always \"success\". Error responses do not have this field.",
}];

geo::fields! {
    ADDRESS_FIELDS, write_addresses(ip: IpAddr) {
        "ip", String, Some(ip).filter(IpAddr::is_ipv4), r#""198.51.100.7""#, "The caller's IPv4 address; null if the caller used IPv6.";
        "ipv6", String, Some(ip).filter(IpAddr::is_ipv6), "null", "The caller's IPv6 address; null if the caller used IPv4.";
    }
}

geo::fields! {
    VERSION_FIELDS, write_versions(facts: &ConnectionFacts<'_>) {
        "http_protocol", String, facts.http_protocol, r#""HTTP/2""#, "HTTP version of the request.";
        "tls_version", String, facts.tls_version, r#""TLSv1.3""#, "TLS version of the connection.";
    }
}

geo::fields! {
    CIPHER_FIELDS, write_cipher(facts: &ConnectionFacts<'_>) {
        "tls_cipher", String, facts.tls_cipher, r#""TLS_AES_256_GCM_SHA384""#, "TLS cipher suite.";
    }
}

geo::fields! {
    EDGE_FIELDS, write_edge(facts: &ConnectionFacts<'_>) {
        "rtt", Integer, facts.rtt_ms, "12", "Round-trip time to the edge network in milliseconds.";
        "colo", String, facts.colo.as_ref().map(Iata::as_str), r#""SJC""#, "IATA code of the edge data center that served the request.";
    }
}

/// Fields that responses have together.
pub struct FieldGroup {
    pub fields: &'static [Field],
    /// The narrowest scope that includes them.
    pub scope: Scope,
    pub in_demo: bool,
    write: fn(&mut Vec<u8>, &ClientInfo<'_>, &LocationJson),
}

/// Every field, in response order.
pub static GROUPS: [FieldGroup; 7] = [
    group(STATUS_FIELDS, Scope::Ip, |json, _, _| json.extend_from_slice(br#"{"status":"success""#)),
    group(ADDRESS_FIELDS, Scope::Ip, |json, client, _| write_addresses(json, client.ip)),
    group(GEO_FIELDS, Scope::Geo, |json, _, location| json.extend_from_slice(location.geo_fields())),
    group(VERSION_FIELDS, Scope::Full, |json, client, _| write_versions(json, &client.facts)),
    not_in_demo(group(CIPHER_FIELDS, Scope::Full, |json, client, _| write_cipher(json, &client.facts))),
    group(EDGE_FIELDS, Scope::Full, |json, client, _| write_edge(json, &client.facts)),
    not_in_demo(group(FULL_FIELDS, Scope::Full, |json, _, location| {
        json.extend_from_slice(location.full_fields());
    })),
];

const fn group(
    fields: &'static [Field],
    scope: Scope,
    write: fn(&mut Vec<u8>, &ClientInfo<'_>, &LocationJson),
) -> FieldGroup {
    FieldGroup { fields, scope, in_demo: true, write }
}

const fn not_in_demo(group: FieldGroup) -> FieldGroup {
    FieldGroup { in_demo: false, ..group }
}

/// Every field, in response order.
pub fn all() -> impl Iterator<Item = &'static Field> {
    GROUPS.iter().flat_map(|group| group.fields)
}

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

    fn contains(self, group: &FieldGroup) -> bool {
        match self {
            Self::Scope(scope) => group.scope <= scope,
            Self::Demo => group.in_demo,
        }
    }

    /// The body of a response. Fields outside the set are absent; fields without data are null.
    pub fn to_json(self, client: &ClientInfo<'_>, location: &LocationJson) -> Vec<u8> {
        let mut json = Vec::with_capacity(INITIAL_CAPACITY);
        for group in GROUPS.iter().filter(|group| self.contains(group)) {
            (group.write)(&mut json, client, location);
        }
        json.extend_from_slice(b"}\n");
        json
    }

    /// A response with this set of fields, as JSON.
    pub fn example(self) -> String {
        let groups = GROUPS.iter().filter(|group| self.contains(group));
        let fields = groups.flat_map(|group| group.fields);
        let fields: Vec<_> = fields.map(|field| format!("  \"{}\": {}", field.name, field.example)).collect();
        format!("{{\n{}\n}}", fields.join(",\n"))
    }
}

#[cfg(test)]
mod tests {
    use edge::Decision;
    use geo::Location;

    use super::*;

    /// The body for a client without location data.
    fn json(field_set: FieldSet, ip: &str) -> String {
        let facts = ConnectionFacts {
            http_protocol: Some("HTTP/2"),
            rtt_ms: Some(12),
            colo: Iata::parse(b"FRA"),
            ..ConnectionFacts::default()
        };
        let ip = ip.parse().expect("valid IP address");
        let client = ClientInfo { ip, decision: Decision::PeerUntrusted, facts };
        let location = LocationJson::new(&Location::default());
        String::from_utf8(field_set.to_json(&client, &location)).expect("valid UTF-8")
    }

    #[test]
    fn fields_without_data_are_null() {
        let text = json(FieldSet::Scope(Scope::Full), "192.0.2.1");
        let object: serde_json::Map<_, _> = serde_json::from_str(&text).expect("valid JSON object");
        assert_eq!(object.len(), 26);
        let mut non_null: Vec<_> =
            object.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name).collect();
        non_null.sort();
        assert_eq!(non_null, ["colo", "http_protocol", "ip", "rtt", "status"]);
    }

    #[test]
    fn address_is_in_the_field_of_its_family() {
        let v4 = json(FieldSet::Scope(Scope::Ip), "192.0.2.1");
        assert_eq!(v4, "{\"status\":\"success\",\"ip\":\"192.0.2.1\",\"ipv6\":null}\n");
        let v6 = json(FieldSet::Scope(Scope::Ip), "2001:db8::1");
        assert_eq!(v6, "{\"status\":\"success\",\"ip\":null,\"ipv6\":\"2001:db8::1\"}\n");
    }

    #[test]
    fn demo_has_no_cipher_and_no_network_flags() {
        let text = json(FieldSet::Demo, "192.0.2.1");
        assert!(["tls_cipher", "proxy", "hosting"].iter().all(|name| !text.contains(name)), "{text}");
        assert!(
            text.trim_end()
                .ends_with(r#""http_protocol":"HTTP/2","tls_version":null,"rtt":12,"colo":"FRA"}"#),
            "{text}"
        );
    }
}
