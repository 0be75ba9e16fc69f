//! Several databases about one address: the result is a location that exists.

use serde_json::json;
use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};

use super::*;

/// Loads one database per record, in this order, and returns the fields of the response for `IP`.
fn merged<const N: usize>(records: [&Value; N]) -> serde_json::Value {
    let dir = TempDir::new().expect("temp dir");
    let file = |(index, record): (usize, &&Value)| {
        let name = format!("{index}.mmdb");
        write(dir.path(), &name, &Builder::new(&name).add(NET, record))
    };
    let geo = open(records.iter().enumerate().map(file).collect());
    let response = geo.lookup(IP.parse().expect("IP address"), JULY, response_fields);
    assert_sources_match(&geo, &response);
    response
}

/// Checks that `explain` has the same location, and a source for each field that has a value.
fn assert_sources_match(geo: &Geo, response: &serde_json::Value) {
    let fields = response.as_object().expect("an object");
    let known: Vec<_> = fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name).collect();
    geo.explain(IP.parse().expect("IP address"), JULY, |location, sources| {
        assert_eq!(response_fields(location), *response);
        for name in known {
            let source = sources.iter().find(|(field, _)| field == name);
            assert!(source.is_some_and(|(_, text)| !text.is_empty()), "{name}");
        }
    });
}

/// The source of a field, as text, with one database per record.
fn sources<const N: usize>(records: [&Value; N], fields: &[&str]) -> Vec<String> {
    let dir = TempDir::new().expect("temp dir");
    let file = |(index, record): (usize, &&Value)| {
        let name = format!("{index}.mmdb");
        write(dir.path(), &name, &Builder::new(&name).add(NET, record))
    };
    let geo = open(records.iter().enumerate().map(file).collect());
    geo.explain(IP.parse().expect("IP address"), JULY, |_, sources| {
        let text = |field: &&str| {
            let text = sources.iter().find(|(name, _)| name == field).map_or("", |(_, text)| text.as_str());
            text.split(',').next().unwrap_or_default().to_owned()
        };
        fields.iter().map(text).collect()
    })
}

#[test]
fn source_of_each_field_is_the_database_that_it_comes_from() {
    let fields =
        ["city", "latitude", "country", "country_name", "continent", "region_code", "timezone", "asn", "org"];
    let vpn = map([("is_anonymous_vpn", Value::Bool(true))]);
    let records = [&asn(64500, "Example"), &center_of_us(), &mountain_view(), &chicago()];
    assert_eq!(
        sources(records, &fields),
        [
            "2.mmdb",
            "2.mmdb",
            "2.mmdb",
            "derived from the country",
            "derived from the country",
            "derived from the name of the region",
            "derived from the coordinates or the country",
            "0.mmdb",
            "0.mmdb",
        ]
    );
    let number_only = map([("asn", text("AS64500"))]);
    let records = [&number_only, &asn(64500, "Example"), &vpn];
    assert_eq!(
        sources(records, &["asn", "org", "as", "proxy", "hosting"]),
        ["0.mmdb", "1.mmdb", "made of asn and org", "2.mmdb", "asn and the list of hosting networks"]
    );
    assert_eq!(
        sources([&country_only("FR"), &chicago()], &["country", "city", "currency", "is_eu"]),
        ["1.mmdb", "1.mmdb", "derived from the country", "derived from the country"]
    );
}

/// Checks fields of a response.
fn assert_fields(response: &serde_json::Value, expected: &serde_json::Value) {
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(response[field], *value, "{field} of {response}");
    }
}

fn country_only(code: &str) -> Value {
    map([("country_code", text(code))])
}

/// The center of the United States, as GeoLite2 stores it for addresses whose city it does not know.
fn center_of_us() -> Value {
    map([
        ("continent", map([("code", text("NA")), ("names", names("North America"))])),
        ("country", map([("iso_code", text("US")), ("names", names("USA"))])),
        (
            "location",
            map([
                ("latitude", Value::F64(37.751)),
                ("longitude", Value::F64(-97.822)),
                ("time_zone", text("America/Chicago")),
            ]),
        ),
        ("postal", map([("code", text("67202"))])),
    ])
}

/// As in DB-IP Lite: no region code, postal code or timezone.
fn mountain_view() -> Value {
    map([
        ("city", text("Mountain View")),
        ("country_code", text("US")),
        ("latitude", Value::F32(37.4056)),
        ("longitude", Value::F32(-122.0775)),
        ("state1", text("California")),
    ])
}

fn chicago() -> Value {
    map([
        ("city", text("Chicago")),
        ("country_code", text("US")),
        ("postcode", text("60604")),
        ("region_code", text("IL")),
        ("state1", text("Illinois")),
        ("timezone", text("America/Chicago")),
    ])
}

#[test]
fn city_is_not_merged_with_coordinates_of_country() {
    let expected = json!({
        "city": "Mountain View", "region": "California", "region_code": "US-CA", "postal_code": null,
        "latitude": 37.4056, "longitude": -122.0775, "timezone": "America/Los_Angeles", "timezone_offset": -25200,
        "country": "US", "country_name": "United States", "continent": "NA", "currency": "USD",
    });
    assert_fields(&merged([&center_of_us(), &mountain_view()]), &expected);
    assert_fields(&merged([&mountain_view(), &center_of_us()]), &expected);
}

#[test]
fn two_cities_are_not_mixed_and_first_database_wins() {
    let first = json!({
        "city": "Mountain View", "region": "California", "region_code": "US-CA", "postal_code": null,
        "latitude": 37.4056, "longitude": -122.0775, "timezone": "America/Los_Angeles",
    });
    assert_fields(&merged([&mountain_view(), &chicago()]), &first);
    let second = json!({
        "city": "Chicago", "region": "Illinois", "region_code": "US-IL", "postal_code": "60604",
        "latitude": null, "longitude": null, "timezone": "America/Chicago",
    });
    assert_fields(&merged([&chicago(), &mountain_view()]), &second);
}

#[test]
fn finest_record_wins_over_first_database() {
    let region = map([("country_code", text("FR")), ("region_code", text("IDF"))]);
    let city = maxmind_city();
    for records in [[&country_only("US"), &region, &city], [&city, &region, &country_only("US")]] {
        assert_fields(
            &merged(records),
            &json!({"city": "Berlin", "country": "DE", "country_name": "Germany", "is_eu": true, "currency": "EUR"}),
        );
    }
    for records in [[&country_only("US"), &region], [&region, &country_only("US")]] {
        assert_fields(
            &merged(records),
            &json!({"country": "FR", "region_code": "FR-IDF", "currency": "EUR"}),
        );
    }
    assert_fields(
        &merged([&country_only("US"), &country_only("FR")]),
        &json!({"country": "US", "country_name": "United States"}),
    );
}

#[test]
fn bare_country_is_completed_by_one_database_with_same_country() {
    let expected = json!({"country": "US", "latitude": 37.751, "timezone": "America/Chicago", "city": null});
    assert_fields(&merged([&country_only("US"), &center_of_us()]), &expected);
    let expected = json!({"country": "CA", "latitude": null, "timezone": null, "postal_code": null});
    assert_fields(&merged([&country_only("CA"), &center_of_us()]), &expected);
}

#[test]
fn network_comes_from_first_database_with_as_number() {
    let number_only = map([("asn", text("AS64500"))]);
    let name_only = map([("isp", text("Reseller"))]);
    let (amazon, hetzner) = (asn(16509, "Amazon"), asn(24940, "Hetzner"));
    assert_fields(
        &merged([&name_only, &amazon, &hetzner, &center_of_us()]),
        &json!({"asn": 16509, "org": "Amazon", "as": "AS16509 Amazon", "hosting": true, "country": "US"}),
    );
    assert_fields(&merged([&number_only, &amazon]), &json!({"asn": 64500, "org": null, "as": null}));
    assert_fields(
        &merged([&number_only, &asn(64500, "Example")]),
        &json!({"asn": 64500, "org": "Example", "as": "AS64500 Example"}),
    );
    assert_fields(&merged([&country_only("US"), &name_only]), &json!({"asn": null, "org": "Reseller"}));
}

#[test]
fn flags_of_every_database_count() {
    let vpn = map([("is_anonymous_vpn", Value::Bool(true))]);
    let host = map([("is_hosting_provider", Value::Bool(true))]);
    assert_fields(
        &merged([&asn(64500, "Example"), &vpn, &host]),
        &json!({"asn": 64500, "proxy": true, "hosting": true}),
    );
}

#[test]
fn timezone_and_region_code_are_derived_only_from_the_location_itself() {
    // The second database has a timezone and a region code, but for another city.
    let nowhere =
        map([("city", text("Springfield")), ("country_code", text("US")), ("state1", text("Nowhere"))]);
    assert_fields(
        &merged([&nowhere, &chicago()]),
        &json!({"city": "Springfield", "region_code": null, "timezone": null, "timezone_offset": null}),
    );
    // The center of a country with several timezones says nothing about the address.
    let center = map([
        ("country_code", text("US")),
        ("latitude", Value::F64(37.751)),
        ("longitude", Value::F64(-97.822)),
    ]);
    assert_fields(&merged([&center]), &json!({"country": "US", "timezone": null}));
    assert_fields(&merged([&country_only("FR")]), &json!({"country": "FR", "timezone": "Europe/Paris"}));
}
