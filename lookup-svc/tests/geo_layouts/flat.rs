//! Flat layouts: IPinfo and ip-location-db.

use lookup_svc::geo::writer::{Builder, Value};
use tempfile::TempDir;

use crate::*;

#[test]
fn ipinfo_lite_and_the_older_country_asn_are_told_apart() {
    let lite = map([
        ("as_domain", text("cogentco.com")),
        ("as_name", text("Cogent Communications")),
        ("asn", text("AS174")),
        ("continent", text("North America")),
        ("continent_code", text("NA")),
        ("country", text("United States")),
        ("country_code", text("US")),
    ]);
    with("ipinfo ipinfo_lite.mmdb", &lite, |_, place| {
        assert_eq!(
            (place.country, place.country_name, place.continent),
            (Some("US"), Some("United States"), Some("NA"))
        );
        assert_eq!((place.asn, place.org), (Some(174), Some("Cogent Communications")));
    });
    let older = map([
        ("as_name", text("Cogent Communications")),
        ("asn", text("AS174")),
        ("continent", text("NA")),
        ("continent_name", text("North America")),
        ("country", text("US")),
        ("country_name", text("United States")),
    ]);
    with("ipinfo country_asn.mmdb", &older, |geo, place| {
        assert_eq!(
            (place.country, place.country_name, place.continent, place.asn),
            (Some("US"), Some("United States"), Some("NA"), Some(174))
        );
        assert_eq!(geo.attributions()[0].url, "https://ipinfo.io");
    });
}

fn ipinfo_core(latitude: Value, longitude: Value, hosting: Value, anonymous: Value) -> Value {
    map([
        ("as_name", text("Example")),
        ("asn", text("AS64500")),
        ("city", text("Mountain View")),
        ("continent", text("North America")),
        ("continent_code", text("NA")),
        ("country", text("United States")),
        ("country_code", text("US")),
        ("is_anonymous", anonymous),
        ("is_hosting", hosting),
        ("latitude", latitude),
        ("longitude", longitude),
        ("postal_code", text("94043")),
        ("region", text("California")),
        ("region_code", text("CA")),
        ("timezone", text("America/Los_Angeles")),
    ])
}

#[test]
fn ipinfo_core_knows_a_vpn_in_a_data_centre() {
    let hidden = ipinfo_core(text("0"), text("0"), text("true"), text("true"));
    with("ipinfo ipinfo_core.mmdb", &hidden, |_, place| {
        assert_eq!((place.hosting, place.proxy), (Some(true), Some(true)));
    });
}

#[test]
fn ipinfo_core_is_read_with_texts_and_with_numbers() {
    let texts = ipinfo_core(text("37.38605"), text("-122.08385"), text("true"), text("false"));
    let numbers =
        ipinfo_core(Value::F64(37.38605), Value::F64(-122.08385), Value::Bool(true), Value::Bool(false));
    for record in [texts, numbers] {
        with("ipinfo ipinfo_core.mmdb", &record, |_, place| {
            assert_eq!(
                (place.city, place.region, place.region_code.as_deref()),
                (Some("Mountain View"), Some("California"), Some("US-CA"))
            );
            assert_eq!(
                (place.latitude, place.longitude, place.timezone_offset),
                (Some(37.38605), Some(-122.08385), Some(-25200))
            );
            assert_eq!(
                (place.postal_code.as_deref(), place.hosting, place.proxy),
                (Some("94043"), Some(true), Some(false))
            );
        });
    }
    with(
        "ipinfo standard_location.mmdb",
        &map([
            ("city", text("Lyon")),
            ("country", text("FR")),
            ("lat", text("45.75")),
            ("lng", text("4.85")),
        ]),
        |_, place| {
            assert_eq!(
                (place.city, place.country, place.country_name, place.latitude),
                (Some("Lyon"), Some("FR"), Some("France"), Some(45.75))
            );
        },
    );
}

#[test]
fn ip_location_db_has_one_file_for_each_family() {
    let folder = TempDir::new().expect("folder");
    let city = map([
        ("city", text("Wien")),
        ("country_code", text("AT")),
        ("latitude", Value::F32(48.2082)),
        ("longitude", Value::F32(16.3738)),
        ("postcode", Value::U32(1010)),
        ("state1", text("Wien")),
        ("state2", text("")),
        ("timezone", text("Europe/Vienna")),
    ]);
    let v4 = write(folder.path(), "dbip-city-ipv4.mmdb", &Builder::v4("dbip-city-ipv4").add(NET, &city));
    let v6 = write(
        folder.path(),
        "asn-ipv6.mmdb",
        &Builder::new("asn-ipv6").add("2001:db8::/32", &asn(64500, "Example")),
    );
    let geo = open(vec![v4, v6]);
    let (four, six) = (IP.parse().expect("address"), "2001:db8::1".parse().expect("address"));
    geo.lookup(four, JULY, |place| {
        assert_eq!(
            (place.country, place.region, place.postal_code.as_deref()),
            (Some("AT"), Some("Wien"), Some("1010"))
        );
        assert_eq!((place.latitude, place.timezone_offset, place.asn), (Some(48.2082), Some(7200), None));
    });
    geo.lookup(six, JULY, |place| assert_eq!((place.asn, place.country), (Some(64500), None)));
    let mapped = "::ffff:192.0.2.7".parse().expect("address");
    geo.lookup(mapped, JULY, |place| assert_eq!(place.country, Some("AT"), "IPv4-mapped is IPv4"));
}
