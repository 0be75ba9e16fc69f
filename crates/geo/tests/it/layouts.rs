//! Reads the layouts of all providers, alone and merged.

mod flat;
mod merged;

use std::path::{Path, PathBuf};

use geo::{DatabaseKind, Geo, GeoArgs, Location, LocationJson};
use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};

/// 2026-07-15T12:00:00Z, summer in Europe.
const JULY: i64 = 1_784_116_800;
/// A public network that no registry has assigned, so that the built-in data has no country for it.
const NET: &str = "3ffe::/32";
const IP: &str = "3ffe::7";

fn text(text: &str) -> Value {
    Value::from(text)
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::map(entries)
}

fn names(english: &str) -> Value {
    map([("de", text("falsch")), ("en", text(english)), ("ja", text("違う"))])
}

fn write(dir: &Path, name: &str, builder: &Builder) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, builder.finish()).expect("write");
    path
}

fn open(paths: Vec<PathBuf>) -> Geo {
    Geo::open(&GeoArgs { geo_db: paths, ..GeoArgs::default() }).expect("load geo data")
}

/// Loads a database with one record and passes the location of `IP` to `check`.
fn with_record<R>(database_type: &str, record: &Value, check: impl FnOnce(&Geo, &Location<'_>) -> R) -> R {
    let dir = TempDir::new().expect("temp dir");
    let geo = open(vec![write(dir.path(), "x.mmdb", &Builder::new(database_type).add(NET, record))]);
    geo.lookup(IP.parse().expect("IP address"), JULY, |location| check(&geo, location))
}

fn maxmind_city() -> Value {
    map([
        ("city", map([("geoname_id", Value::U32(2_950_159)), ("names", names("Berlin"))])),
        ("continent", map([("code", text("EU")), ("names", names("Europe"))])),
        (
            "country",
            map([
                ("is_in_european_union", Value::Bool(true)),
                ("iso_code", text("DE")),
                ("names", names("Germany")),
            ]),
        ),
        (
            "location",
            map([
                ("accuracy_radius", Value::U16(5)),
                ("latitude", Value::F64(52.5196)),
                ("longitude", Value::F64(13.4069)),
                ("time_zone", text("Europe/Berlin")),
            ]),
        ),
        ("postal", map([("code", text("10178"))])),
        ("registered_country", map([("iso_code", text("US"))])),
        (
            "subdivisions",
            Value::Array(vec![
                map([("iso_code", text("BE")), ("names", names("State of Berlin"))]),
                map([("iso_code", text("XX")), ("names", names("Smaller"))]),
            ]),
        ),
    ])
}

fn asn(number: u32, name: &str) -> Value {
    map([("autonomous_system_number", Value::U32(number)), ("autonomous_system_organization", text(name))])
}

/// The fields of a location as in a response.
fn response_fields(location: &Location<'_>) -> serde_json::Value {
    let json = LocationJson::new(location);
    let fields = [json.geo_fields(), json.full_fields()].concat();
    // Without the leading comma.
    serde_json::from_slice(&[b"{", &fields[1..], b"}"].concat()).expect("valid JSON")
}

#[test]
fn maxmind_city_fills_every_location_field() {
    with_record("GeoLite2-City", &maxmind_city(), |geo, location| {
        assert_eq!(
            response_fields(location),
            serde_json::json!({
                "city": "Berlin", "region": "State of Berlin", "region_code": "DE-BE", "country": "DE",
                "country_name": "Germany", "continent": "EU", "latitude": 52.5196, "longitude": 13.4069,
                "timezone": "Europe/Berlin", "timezone_offset": 7200, "postal_code": "10178", "asn": null,
                "org": null, "as": null, "is_eu": true, "currency": "EUR", "proxy": null, "hosting": null,
            })
        );
        assert_eq!(geo.databases()[0].kind, DatabaseKind::City);
        assert!(geo.attributions()[0].text.contains("GeoLite"));
    });
}

#[test]
fn stored_region_code_is_used_and_missing_or_malformed_one_follows_from_the_name() {
    let city = |code, region| {
        let subdivision = map([("iso_code", text(code)), ("names", names(region))]);
        map([("country", map([("iso_code", text("NO"))])), ("subdivisions", Value::Array(vec![subdivision]))])
    };
    for (stored, region, code) in [
        ("32", "Akershus", Some("NO-32")),
        ("98", "Oslo", Some("NO-98")),
        ("", "Oslo", Some("NO-03")),
        ("3143244", "Oslo", Some("NO-03")),
        ("", "Atlantis", None),
    ] {
        with_record("GeoLite2-City", &city(stored, region), |_, location| {
            assert_eq!((location.region, location.region_code.as_deref()), (Some(region), code), "{stored}");
        });
    }
}

#[test]
fn country_facts_are_derived_from_country_code() {
    let record = map([("country", map([("iso_code", text("CH"))]))]);
    with_record("GeoIP2-Country", &record, |_, location| {
        assert_eq!(
            (location.country, location.country_name, location.continent),
            (Some("CH"), Some("Switzerland"), Some("EU"))
        );
        assert_eq!((location.currency, location.is_eu, location.city), (Some("CHF"), Some(false), None));
    });
}

#[test]
fn registered_country_is_used_where_country_is_missing() {
    let registered = ("registered_country", map([("iso_code", text("CH")), ("names", names("Switzerland"))]));
    let without = map([("continent", map([("code", text("EU"))])), registered.clone()]);
    with_record("GeoLite2-Country", &without, |_, location| {
        assert_eq!(
            (location.country, location.country_name, location.currency, location.is_eu),
            (Some("CH"), Some("Switzerland"), Some("CHF"), Some(false))
        );
    });
    let with = map([("country", map([("iso_code", text("DE"))])), registered]);
    with_record("GeoLite2-Country", &with, |_, location| assert_eq!(location.country, Some("DE")));
}

#[test]
fn coordinates_are_rounded_to_six_decimals() {
    for (stored, latitude, longitude) in [
        ((38.705799999999996, -90.07340000000002), "38.7058", "-90.0734"),
        ((52.51960049, 13.40690051), "52.5196", "13.406901"),
        ((-0.000_000_1, 179.999_999_9), "0.0", "180.0"),
    ] {
        let point = [("latitude", Value::F64(stored.0)), ("longitude", Value::F64(stored.1))];
        with_record("GeoLite2-City", &map([("location", map(point))]), |_, location| {
            let json = LocationJson::new(location);
            let json = String::from_utf8_lossy(json.geo_fields());
            let expected = format!(r#""latitude":{latitude},"longitude":{longitude},"#);
            assert!(json.contains(&expected), "{json}");
        });
    }
}

#[test]
fn asn_isp_and_enterprise_have_asn_and_org() {
    with_record("GeoLite2-ASN", &asn(3320, "Deutsche Telekom AG"), |_, location| {
        assert_eq!((location.asn, location.org), (Some(3320), Some("Deutsche Telekom AG")));
        assert_eq!(location.as_text().as_deref(), Some("AS3320 Deutsche Telekom AG"));
        assert_eq!((location.proxy, location.hosting, location.country), (Some(false), Some(false), None));
    });
    let isp = map([
        ("autonomous_system_number", Value::U32(7018)),
        ("isp", text("AT&T")),
        ("organization", text("Other")),
    ]);
    with_record("GeoIP2-ISP", &isp, |_, location| {
        assert_eq!((location.asn, location.org), (Some(7018), Some("AT&T")))
    });
    let enterprise = map([
        ("country", map([("confidence", Value::U16(99)), ("iso_code", text("US"))])),
        (
            "traits",
            map([
                ("autonomous_system_number", Value::U32(16509)),
                ("autonomous_system_organization", text("Amazon")),
            ]),
        ),
    ]);
    with_record("GeoIP2-Enterprise", &enterprise, |geo, location| {
        assert_eq!((location.country, location.asn, location.hosting), (Some("US"), Some(16509), Some(true)));
        assert_eq!(geo.databases()[0].kind, DatabaseKind::Enterprise);
    });
}

#[test]
fn anonymous_ip_sets_flags_without_asn() {
    let vpn = map([("is_anonymous", Value::Bool(true)), ("is_anonymous_vpn", Value::Bool(true))]);
    with_record("GeoIP2-Anonymous-IP", &vpn, |_, location| {
        assert_eq!((location.proxy, location.hosting), (Some(true), None))
    });
    let host = map([("is_anonymous", Value::Bool(true)), ("is_hosting_provider", Value::Bool(true))]);
    with_record("GeoIP2-Anonymous-IP", &host, |_, location| {
        assert_eq!((location.proxy, location.hosting), (None, Some(true)))
    });
}

#[test]
fn dbip_lite_gets_region_code_and_timezone() {
    let record = map([
        ("city", map([("names", names("Berlin (Mitte)"))])),
        (
            "continent",
            map([("code", text("EU")), ("geoname_id", Value::U32(6_255_148)), ("names", names("Europe"))]),
        ),
        (
            "country",
            map([
                ("is_in_european_union", Value::Bool(true)),
                ("iso_code", text("DE")),
                ("names", names("Germany")),
            ]),
        ),
        ("location", map([("latitude", Value::F32(52.52)), ("longitude", Value::F32(13.405))])),
        ("subdivisions", Value::Array(vec![map([("names", names("Berlin"))])])),
    ]);
    with_record("DBIP-City-Lite", &record, |geo, location| {
        assert_eq!(
            (location.city, location.region, location.region_code.as_deref()),
            (Some("Berlin (Mitte)"), Some("Berlin"), Some("DE-BE"))
        );
        assert_eq!(
            (location.latitude, location.longitude),
            (Some(52.52), Some(13.405)),
            "f32 keeps its decimals"
        );
        assert_eq!((location.timezone, location.timezone_offset), (Some("Europe/Berlin"), Some(7200)));
        assert_eq!(geo.attributions()[0].url, "https://db-ip.com");
        assert!(geo.attributions().iter().any(|attribution| attribution.text.contains("OpenStreetMap")));
    });
}

#[test]
fn unknown_address_and_invalid_values_are_null() {
    let invalid = map([
        ("city", Value::Array(vec![])),
        ("country", map([("iso_code", text("ZZ")), ("names", text("no map"))])),
        (
            "location",
            map([
                ("latitude", Value::F64(f64::NAN)),
                ("longitude", Value::F64(500.0)),
                ("time_zone", text("+02:00")),
            ]),
        ),
        ("postal", text("")),
        ("subdivisions", Value::U32(3)),
        ("asn", Value::Bool(true)),
        ("isp", text("Known")),
    ]);
    with_record("odd", &invalid, |geo, location| {
        assert_eq!(*location, Location { org: Some("Known"), ..Location::default() });
        geo.lookup("3ffd::1".parse().expect("IP address"), JULY, |location| {
            assert_eq!(*location, Location::default())
        });
    });
}

#[test]
fn all_record_sizes_are_read() {
    for size in [24, 28, 32] {
        let dir = TempDir::new().expect("temp dir");
        let builder = Builder::new("GeoLite2-City").record_size(size).add(NET, &maxmind_city());
        let geo = open(vec![write(dir.path(), "x.mmdb", &builder)]);
        geo.lookup(IP.parse().expect("IP address"), JULY, |location| {
            assert_eq!(location.city, Some("Berlin"), "{size}")
        });
    }
}

#[test]
fn sample_has_locations_and_networks() {
    let sample = testkit::mmdb::sample::file();
    let geo = open(vec![sample.path().to_owned()]);
    let city = |ip: &str| {
        geo.lookup(ip.parse().expect("IP address"), JULY, |location| location.city.map(str::to_owned))
    };
    assert_eq!(city("81.2.69.1").as_deref(), Some("Berlin"));
    assert_eq!(city("2a02:cf40::1").as_deref(), Some("Paris"));
    for private in ["127.0.0.1", "10.0.0.1", "192.168.1.1", "::1", "fe80::1"] {
        geo.lookup(private.parse().expect("IP address"), JULY, |location| {
            assert_eq!(*location, Location::default(), "{private}")
        });
    }
    geo.lookup("1.1.1.1".parse().expect("IP address"), JULY, |location| {
        assert_eq!((location.asn, location.hosting, location.city), (Some(13335), Some(true), None));
    });
}

#[test]
fn file_without_description_is_read() {
    let dir = TempDir::new().expect("temp dir");
    let builder = Builder::new("").without_description().build_epoch(7).add(NET, &maxmind_city());
    let geo = open(vec![write(dir.path(), "x.mmdb", &builder)]);
    geo.lookup(IP.parse().expect("IP address"), JULY, |location| assert_eq!(location.city, Some("Berlin")));
    assert_eq!((geo.databases()[0].build_epoch, geo.databases()[0].kind), (7, DatabaseKind::City));
}
