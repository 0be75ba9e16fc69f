//! A small database with every field: networks of MaxMind's test databases with made-up locations, and well-known public
//! DNS resolvers with their real operators.

use std::io::Write;

use tempfile::NamedTempFile;

use super::{Builder, Value};

/// Writes the database to a temporary file, for `--geo-db`.
///
/// # Panics
/// If the file can't be written.
#[must_use]
pub fn file() -> NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".mmdb").tempfile().expect("temporary file");
    file.write_all(&build()).expect("write to a temporary file");
    file
}

/// The database as bytes.
#[must_use]
pub fn build() -> Vec<u8> {
    let mut builder = Builder::new("IP-Lookup-Sample");
    for (network, location, operator) in EXAMPLES {
        builder = builder.add(network, &record(Some(location), *operator));
    }
    for (networks, operator) in RESOLVERS {
        for network in *networks {
            builder = builder.add(network, &record(None, *operator));
        }
    }
    builder.finish()
}

struct SampleLocation {
    country: (&'static str, &'static str),
    continent: &'static str,
    region: (&'static str, &'static str),
    city: &'static str,
    postal: &'static str,
    point: (f64, f64),
    zone: &'static str,
}

/// Public networks, because special ones are never looked up. AS numbers that are reserved for documentation (RFC 5398).
const EXAMPLES: &[(&str, SampleLocation, (u32, &str))] = &[
    ("81.2.69.0/24", BERLIN, (64_496, "Example Network One")),
    ("216.160.83.0/24", SAN_FRANCISCO, (64_497, "Example Network Two")),
    ("89.160.20.0/24", TOKYO, (64_498, "Example Network Three")),
    ("2a02:cf40::/32", PARIS, (64_499, "Example Network Six")),
];

/// No location: these are anycast networks.
const RESOLVERS: &[(&[&str], (u32, &str))] = &[
    (&["1.1.1.0/24", "1.0.0.0/24", "2606:4700:4700::/48"], (13_335, "Cloudflare, Inc.")),
    (&["8.8.8.0/24", "8.8.4.0/24", "2001:4860:4860::/48"], (15_169, "Google LLC")),
    (&["9.9.9.0/24", "149.112.112.0/24", "2620:fe::/48"], (19_281, "Quad9")),
];

const BERLIN: SampleLocation = SampleLocation {
    country: ("DE", "Germany"),
    continent: "EU",
    region: ("BE", "State of Berlin"),
    city: "Berlin",
    postal: "10115",
    point: (52.5319, 13.3855),
    zone: "Europe/Berlin",
};
const SAN_FRANCISCO: SampleLocation = SampleLocation {
    country: ("US", "United States"),
    continent: "NA",
    region: ("CA", "California"),
    city: "San Francisco",
    postal: "94107",
    point: (37.7697, -122.3933),
    zone: "America/Los_Angeles",
};
const TOKYO: SampleLocation = SampleLocation {
    country: ("JP", "Japan"),
    continent: "AS",
    region: ("13", "Tokyo"),
    city: "Tokyo",
    postal: "100-0001",
    point: (35.6837, 139.6805),
    zone: "Asia/Tokyo",
};
const PARIS: SampleLocation = SampleLocation {
    country: ("FR", "France"),
    continent: "EU",
    region: ("IDF", "Île-de-France"),
    city: "Paris",
    postal: "75001",
    point: (48.8602, 2.3477),
    zone: "Europe/Paris",
};

fn record(location: Option<&SampleLocation>, (asn, org): (u32, &str)) -> Value {
    let traits = Value::map([
        ("autonomous_system_number", Value::U32(asn)),
        ("autonomous_system_organization", Value::from(org)),
    ]);
    let mut entries = location.map(location_entries).unwrap_or_default();
    entries.push(("traits", traits));
    Value::map(entries)
}

fn location_entries(sample: &SampleLocation) -> Vec<(&'static str, Value)> {
    let names = |name: &str| ("names", Value::map([("en", Value::from(name))]));
    let coded = |(code, name): (&str, &str)| Value::map([("iso_code", Value::from(code)), names(name)]);
    let location = Value::map([
        ("latitude", Value::F64(sample.point.0)),
        ("longitude", Value::F64(sample.point.1)),
        ("time_zone", Value::from(sample.zone)),
    ]);
    vec![
        ("city", Value::map([names(sample.city)])),
        ("continent", Value::map([("code", Value::from(sample.continent))])),
        ("country", coded(sample.country)),
        ("location", location),
        ("postal", Value::map([("code", Value::from(sample.postal))])),
        ("subdivisions", Value::Array(vec![coded(sample.region)])),
    ]
}
