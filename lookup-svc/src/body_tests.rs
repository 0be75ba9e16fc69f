//! Every view has exactly the fields of the table, in its order, and null is not absent.

use edge::Decision;

use super::*;
use crate::fields::FIELDS;
use crate::geo::Place;

const VIEWS: [View; 4] =
    [View::Scope(Scope::Ip), View::Scope(Scope::Geo), View::Scope(Scope::Full), View::Demo];

fn caller(ip: &str) -> Caller<'static> {
    Caller {
        ip: ip.parse::<IpAddr>().expect("an address"),
        decision: Decision::PeerUntrusted,
        http_protocol: Some("HTTP/2"),
        tls_version: None,
        tls_cipher: None,
        rtt_ms: Some(12),
        colo: Iata::parse(b"FRA"),
    }
}

fn json(view: View, ip: &str, place: &Place<'_>) -> String {
    let bytes = Body { view, caller: &caller(ip), place: &PlaceJson::of(place) }.to_json();
    String::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn each_view_has_the_fields_of_the_table_in_their_order() {
    for view in VIEWS {
        let text = json(view, "192.0.2.1", &Place::default());
        let places: Vec<_> = FIELDS.iter().map(|field| text.find(&format!("\"{}\":", field.name))).collect();
        let shown: Vec<_> = places.iter().flatten().collect();
        assert!(shown.is_sorted(), "{view:?}: {text}");
        for (field, place) in FIELDS.iter().zip(&places) {
            assert_eq!(place.is_some(), view.shows(field), "{view:?} {}", field.name);
        }
        let object: serde_json::Map<_, _> = serde_json::from_str(&text).expect("an object");
        assert_eq!(object.len(), shown.len(), "no field beyond the table");
    }
}

#[test]
fn what_is_unknown_is_null() {
    let text = json(View::Scope(Scope::Full), "192.0.2.1", &Place::default());
    let object: serde_json::Map<_, _> = serde_json::from_str(&text).expect("an object");
    let mut known: Vec<_> =
        object.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name).collect();
    known.sort();
    assert_eq!(known, ["colo", "http_protocol", "ip", "rtt", "status"]);
}

#[test]
fn an_address_is_in_the_field_of_its_family() {
    let v4 = json(View::Scope(Scope::Ip), "192.0.2.1", &Place::default());
    assert_eq!(v4, r#"{"status":"success","ip":"192.0.2.1","ipv6":null}"#);
    let v6 = json(View::Scope(Scope::Ip), "2001:db8::1", &Place::default());
    assert_eq!(v6, r#"{"status":"success","ip":null,"ipv6":"2001:db8::1"}"#);
}
