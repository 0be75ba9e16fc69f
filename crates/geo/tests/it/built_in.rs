//! The built-in country data: used where no loaded database has a country, never instead of one.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use geo::{Geo, GeoArgs, Location, LocationJson};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};

/// In the United States, according to the built-in data.
const US: [&str; 2] = ["8.8.8.8", "2001:4860:4860::8888"];
/// In the Netherlands, according to the built-in data.
const NL: [&str; 2] = ["193.0.6.139", "2001:67c:2e8:22::c100:68b"];

fn open(paths: Vec<PathBuf>) -> Geo {
    Geo::open(&GeoArgs { geo_db: paths, ..GeoArgs::default() }).expect("load geo data")
}

fn write(dir: &Path, name: &str, database: Builder) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, database.finish()).expect("write");
    path
}

/// The location as JSON, after a check that the cache returns the same.
fn location(geo: &Geo, ip: &str) -> Json {
    let ip = ip.parse().expect("IP address");
    let text = |json: &LocationJson| {
        let fields = String::from_utf8([json.geo_fields(), json.full_fields()].concat()).expect("UTF-8");
        format!("{{{}}}", &fields[1..])
    };
    let uncached = geo.lookup(ip, 0, |location| text(&LocationJson::new(location)));
    for _ in 0..3 {
        assert_eq!(geo.lookup_json(ip, 0, text), uncached, "{ip}");
    }
    serde_json::from_str(&uncached).expect("JSON")
}

#[track_caller]
fn assert_fields(actual: &Json, expected: &Json) {
    for (name, value) in expected.as_object().expect("object") {
        assert_eq!(&actual[name], value, "{name} in {actual}");
    }
}

fn text(text: &str) -> Value {
    Value::from(text)
}

#[test]
fn fresh_start_knows_country_facts_of_public_addresses() {
    let geo = open(Vec::new());
    assert!(geo.only_built_in());
    let us = json!({
        "country": "US", "country_name": "United States", "continent": "NA", "currency": "USD", "is_eu": false,
        "city": null, "region": null, "latitude": null, "asn": null, "org": null, "proxy": null, "hosting": null,
    });
    let nl = json!({
        "country": "NL", "country_name": "Netherlands", "continent": "EU", "currency": "EUR", "is_eu": true,
    });
    for (addresses, expected) in [(US, us), (NL, nl)] {
        for ip in addresses {
            assert_fields(&location(&geo, ip), &expected);
        }
    }
    assert_fields(&location(&geo, "::ffff:193.0.6.139"), &json!({"country": "NL"}));
}

#[test]
fn special_addresses_have_no_location_in_any_database() {
    let dir = TempDir::new().expect("temp dir");
    let australia = Value::map([("country_code", text("AU")), ("asn", text("AS64500"))]);
    let everywhere = ["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"];
    let builder = everywhere.into_iter().fold(Builder::new("x"), |built, net| built.add(net, &australia));
    for paths in [Vec::new(), vec![write(dir.path(), "x.mmdb", builder)]] {
        let geo = open(paths);
        for ip in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "203.0.113.7",
            "::1",
            "2001:db8::1",
            "fd00::1",
        ] {
            let ip: IpAddr = ip.parse().expect("IP address");
            geo.lookup(ip, 0, |location| assert_eq!(*location, Location::default(), "{ip}"));
            geo.explain(ip, 0, |location, _| assert_eq!(*location, Location::default(), "{ip}"));
            let json = geo.lookup_json(ip, 0, |json| String::from_utf8(json.geo_fields().to_vec()));
            assert!(json.expect("UTF-8").contains(r#""country":null"#), "{ip}");
        }
    }
}

#[test]
fn loaded_country_is_never_overridden() {
    let dir = TempDir::new().expect("temp dir");
    let france = Value::map([("country_code", text("FR"))]);
    let path = write(dir.path(), "x.mmdb", Builder::new("x").add("8.8.8.0/24", &france));
    let geo = open(vec![path]);
    let expected = json!({"country": "FR", "country_name": "France", "continent": "EU", "is_eu": true, "currency": "EUR"});
    assert_fields(&location(&geo, "8.8.8.8"), &expected);
    assert_fields(&location(&geo, "8.8.4.4"), &json!({"country": "US", "is_eu": false}));
}

#[test]
fn country_is_added_to_network_of_another_database() {
    let dir = TempDir::new().expect("temp dir");
    let network = Value::map([("asn", text("AS64500")), ("as_name", text("Example"))]);
    // One record for all addresses: their countries must not be mixed up in the cache.
    let path = write(
        dir.path(),
        "asn.mmdb",
        Builder::new("asn").add("0.0.0.0/1", &network).add("128.0.0.0/1", &network),
    );
    let geo = open(vec![path]);
    for _ in 0..3 {
        for (ip, country) in [("8.8.8.8", "US"), ("193.0.6.139", "NL"), ("133.242.0.3", "JP")] {
            assert_fields(&location(&geo, ip), &json!({"country": country, "as": "AS64500 Example"}));
        }
    }
}

#[test]
fn location_without_country_gets_none_of_another_database() {
    let dir = TempDir::new().expect("temp dir");
    let vienna = Value::map([("city", text("Vienna")), ("timezone", text("Europe/Vienna"))]);
    let coordinates = Value::map([("latitude", Value::F64(47.14)), ("longitude", Value::F64(9.52))]);
    let builder = Builder::new("city").add("8.8.8.0/24", &vienna).add("193.0.6.0/24", &coordinates);
    let geo = open(vec![write(dir.path(), "x.mmdb", builder)]);
    for _ in 0..3 {
        let in_vienna =
            json!({"city": "Vienna", "timezone": "Europe/Vienna", "country": null, "currency": null});
        assert_fields(&location(&geo, "8.8.8.8"), &in_vienna);
        assert_fields(
            &location(&geo, "193.0.6.139"),
            &json!({"latitude": 47.14, "country": null, "currency": null}),
        );
    }
}

/// As in ip-location-db, which places some networks in "EU", "Europe".
#[test]
fn name_continent_and_eu_membership_are_those_of_the_country() {
    let dir = TempDir::new().expect("temp dir");
    let facts = |code: &str, name: &str, continent: &str, in_eu: bool| {
        Value::map([
            ("country", Value::map([("iso_code", text(code)), ("is_in_european_union", Value::Bool(in_eu))])),
            ("country_name", text(name)),
            ("continent_code", text(continent)),
        ])
    };
    let builder = Builder::new("country")
        .add("8.8.8.0/24", &facts("EU", "Europe", "EU", true))
        .add("193.0.5.0/24", &facts("GB", "Great Britain", "AS", true))
        .add("193.0.7.0/24", &Value::map([("continent_code", text("AS"))]));
    let geo = open(vec![write(dir.path(), "x.mmdb", builder)]);
    for (ip, expected) in [
        (
            "8.8.8.8",
            json!({"country": "US", "country_name": "United States", "continent": "NA", "is_eu": false}),
        ),
        (
            "193.0.5.1",
            json!({"country": "GB", "country_name": "United Kingdom", "continent": "EU", "is_eu": false}),
        ),
        (
            "193.0.7.1",
            json!({"country": "NL", "country_name": "Netherlands", "continent": "EU", "is_eu": true}),
        ),
    ] {
        assert_fields(&location(&geo, ip), &expected);
    }
}

#[test]
fn missing_country_facts_are_added_to_loaded_country() {
    let dir = TempDir::new().expect("temp dir");
    let bare = Value::map([("country_code", text("NL")), ("city", text("Amsterdam"))]);
    let geo = open(vec![write(dir.path(), "x.mmdb", Builder::new("x").add("193.0.6.0/24", &bare))]);
    let expected = json!({
        "city": "Amsterdam", "country": "NL", "country_name": "Netherlands", "continent": "EU", "is_eu": true,
        "currency": "EUR",
    });
    assert_fields(&location(&geo, "193.0.6.139"), &expected);
}

#[test]
fn database_that_arrives_in_empty_directory_takes_over() {
    let dir = TempDir::new().expect("temp dir");
    let geo = open(vec![dir.path().to_owned()]);
    assert!(geo.only_built_in());
    assert_fields(&location(&geo, "8.8.8.8"), &json!({"country": "US", "city": null}));
    let paris = Value::map([("country_code", text("FR")), ("city", text("Paris"))]);
    write(dir.path(), "city.mmdb", Builder::new("city").build_epoch(1_781_725_900).add("8.8.8.0/24", &paris));
    assert!(geo.check() && !geo.only_built_in());
    assert_fields(&location(&geo, "8.8.8.8"), &json!({"country": "FR", "city": "Paris"}));
    assert_fields(&location(&geo, "193.0.6.139"), &json!({"country": "NL"}));
    let names: Vec<_> = geo.databases().into_iter().map(|database| database.name).collect();
    assert_eq!(names, ["city.mmdb", "built-in country data"]);
}

#[test]
fn summary_states_dates_and_ages() {
    const DAY: i64 = 86_400;
    const NOVEMBER_16: i64 = 1_794_787_200; // 2026-11-16T00:00:00Z
    let dir = TempDir::new().expect("temp dir");
    let record = Value::map([("asn", text("AS64500"))]);
    let build = u64::try_from(NOVEMBER_16 - DAY).expect("positive");
    let path =
        write(dir.path(), "new.mmdb", Builder::new("asn").build_epoch(build).add("8.8.8.0/24", &record));
    let built = open(Vec::new()).databases().pop().expect("built-in data");
    let date = built.date().expect("build time");
    let (only, both) = (open(Vec::new()), open(vec![path]));
    let start = i64::try_from(built.build_epoch).expect("small");
    assert_eq!(
        only.summary(start + 152 * DAY),
        format!(
            "only the built-in country data of {date}, 5 months old; geo-update or --geo-db adds cities and networks"
        )
    );
    assert_eq!(only.built_in_age(start + 10 * DAY), format!("{date}, 10 days old"));
    for geo in [&only, &both] {
        assert!(!geo.summary(start + 364 * DAY).contains("warning"));
        let warning = "; warning: the built-in country data is over a year old; install a newer version";
        assert!(geo.summary(start + 366 * DAY).ends_with(warning), "{}", geo.summary(start + 366 * DAY));
    }
    let summary = both.summary(NOVEMBER_16);
    assert!(
        summary.starts_with("new.mmdb (asn) of 2026-11-15, 1 day old; built-in country data of "),
        "{summary}"
    );
}
