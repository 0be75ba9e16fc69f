//! Client addresses: a few from testkit's sample database, or one in each of 20,000 networks.

use std::net::Ipv4Addr;

use testkit::mmdb::{Builder, Value};

/// Addresses in testkit's sample database. All but the last have a location; the last has only a network.
pub const SAMPLE: [&str; 5] = ["192.0.2.7", "198.51.100.99", "203.0.113.200", "2001:db8::17", "8.8.8.8"];

/// About five times the slots of lookup-svc's location cache, so that it never gets a hit.
const NETWORKS: u16 = 20_000;

/// The languages of MaxMind's databases. A record has each name in all of them.
const LANGUAGES: [&str; 8] = ["de", "en", "es", "fr", "ja", "pt-BR", "ru", "zh-CN"];

/// An address in each network of [`database`].
pub fn addresses() -> impl Iterator<Item = String> {
    (0..NETWORKS).map(|n| address(n, 7).to_string())
}

/// A database with the layout of GeoLite2-City and a separate record for each network.
pub fn database() -> Vec<u8> {
    let empty = Builder::new("GeoLite2-City").record_size(28);
    (0..NETWORKS).fold(empty, |built, n| built.add(&format!("{}/24", address(n, 0)), &record(n))).finish()
}

fn address(network: u16, host: u8) -> Ipv4Addr {
    let [high, low] = network.to_be_bytes();
    Ipv4Addr::new(24, high, low, host)
}

fn record(n: u16) -> Value {
    let location = Value::map([
        ("accuracy_radius", Value::U16(20)),
        ("latitude", Value::F64(f64::from(n % 900) / 10.0)),
        ("longitude", Value::F64(f64::from(n % 1800) / 10.0)),
        ("time_zone", Value::from("America/Los_Angeles")),
    ]);
    let region = Value::map([
        ("geoname_id", Value::U32(u32::from(n))),
        ("iso_code", Value::from("CA")),
        names("California"),
    ]);
    Value::map([
        ("city", Value::map([("geoname_id", Value::U32(u32::from(n))), names(&format!("City {n}"))])),
        ("continent", Value::map([("code", Value::from("NA")), names("North America")])),
        ("country", Value::map([("iso_code", Value::from("US")), names("United States")])),
        ("location", location),
        ("postal", Value::map([("code", Value::from(format!("{n:05}").as_str()))])),
        ("registered_country", Value::map([("iso_code", Value::from("US")), names("United States")])),
        ("subdivisions", Value::Array(vec![region])),
        (
            "traits",
            Value::map([
                ("autonomous_system_number", Value::U32(64_500)),
                ("autonomous_system_organization", Value::from("Example")),
            ]),
        ),
    ])
}

fn names(name: &str) -> (&'static str, Value) {
    ("names", Value::map(LANGUAGES.map(|language| (language, Value::from(name)))))
}
