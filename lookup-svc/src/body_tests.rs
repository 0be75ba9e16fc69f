//! A body has exactly the fields of its field set, in the order of the field table. Fields without data are null.

use edge::{ConnectionFacts, Decision};
use geo::Location;

use super::*;
use crate::fields::FIELDS;

const FIELD_SETS: [FieldSet; 4] =
    [FieldSet::Scope(Scope::Ip), FieldSet::Scope(Scope::Geo), FieldSet::Scope(Scope::Full), FieldSet::Demo];

fn client(ip: &str) -> ClientInfo<'static> {
    ClientInfo {
        ip: ip.parse::<IpAddr>().expect("valid IP address"),
        decision: Decision::PeerUntrusted,
        facts: ConnectionFacts {
            http_protocol: Some("HTTP/2"),
            rtt_ms: Some(12),
            colo: Iata::parse(b"FRA"),
            ..ConnectionFacts::default()
        },
    }
}

/// The body for a client without location data.
fn json(field_set: FieldSet, ip: &str) -> String {
    let location = LocationJson::new(&Location::default());
    let bytes = LookupBody { field_set, client: &client(ip), location: &location }.to_json();
    String::from_utf8(bytes).expect("valid UTF-8")
}

#[test]
fn each_field_set_has_its_fields_in_table_order() {
    for field_set in FIELD_SETS {
        let text = json(field_set, "192.0.2.1");
        let offsets: Vec<_> = FIELDS.iter().map(|field| text.find(&format!("\"{}\":", field.name))).collect();
        let present: Vec<_> = offsets.iter().flatten().collect();
        assert!(present.is_sorted(), "{field_set:?}: {text}");
        for (field, offset) in FIELDS.iter().zip(&offsets) {
            assert_eq!(offset.is_some(), field_set.contains(field), "{field_set:?} {}", field.name);
        }
        let object: serde_json::Map<_, _> = serde_json::from_str(&text).expect("valid JSON object");
        assert_eq!(object.len(), present.len(), "every field is in the table");
    }
}

#[test]
fn fields_without_data_are_null() {
    let text = json(FieldSet::Scope(Scope::Full), "192.0.2.1");
    let object: serde_json::Map<_, _> = serde_json::from_str(&text).expect("valid JSON object");
    let mut non_null: Vec<_> =
        object.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name).collect();
    non_null.sort();
    assert_eq!(non_null, ["colo", "http_protocol", "ip", "rtt", "status"]);
}

#[test]
fn address_is_in_the_field_of_its_family() {
    let v4 = json(FieldSet::Scope(Scope::Ip), "192.0.2.1");
    assert_eq!(v4, r#"{"status":"success","ip":"192.0.2.1","ipv6":null}"#);
    let v6 = json(FieldSet::Scope(Scope::Ip), "2001:db8::1");
    assert_eq!(v6, r#"{"status":"success","ip":null,"ipv6":"2001:db8::1"}"#);
}
