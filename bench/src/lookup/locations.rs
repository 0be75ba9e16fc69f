//! Geo databases and client addresses: testkit's small sample, or databases with the layout and size of GeoLite2-City and
//! GeoLite2-ASN with addresses as a public service gets them.

use std::net::{Ipv4Addr, Ipv6Addr};

use testkit::mmdb::{Builder, Value};

/// Addresses in testkit's sample database. All but the last have a location; the last has only a network.
pub const SAMPLE: [&str; 5] = ["81.2.69.7", "216.160.83.99", "89.160.20.200", "2a02:cf40::17", "8.8.8.8"];

/// IPv4 networks of the City database, each a /24.
const V4_NETWORKS: u32 = 1_500_000;
/// IPv6 networks of the City database, each a /48.
const V6_NETWORKS: u32 = 250_000;
/// Records of the City database: combinations of a city, a postal code and coordinates.
const RECORDS: u32 = 220_000;
const CITIES: u32 = 90_000;
/// A multiple of the number of countries, so that a city and its region are in the same one.
const REGIONS: u32 = 3_000;
/// Consecutive networks of one AS.
const NETWORKS_PER_AS: u32 = 25;

/// Requests before the sequence of client addresses repeats.
const CLIENT_REQUESTS: usize = 1 << 20;
/// Of 100 clients, those with IPv6.
const V6_PERCENT: u64 = 40;

/// The codes of ISO 3166-2, which GeoLite2-City has, too. For other codes, lookup-svc would search the region by its name.
const SUBDIVISIONS: &str = include_str!("../../../crates/geo/data/subdivisions.tsv");

/// The languages of MaxMind's databases. A record has each name in all of them.
const LANGUAGES: [&str; 8] = ["de", "en", "es", "fr", "ja", "pt-BR", "ru", "zh-CN"];

const COUNTRIES: [(&str, &str, &str, &str); 12] = [
    ("US", "United States", "NA", "America/Chicago"),
    ("DE", "Germany", "EU", "Europe/Berlin"),
    ("BR", "Brazil", "SA", "America/Sao_Paulo"),
    ("IN", "India", "AS", "Asia/Kolkata"),
    ("JP", "Japan", "AS", "Asia/Tokyo"),
    ("FR", "France", "EU", "Europe/Paris"),
    ("GB", "United Kingdom", "EU", "Europe/London"),
    ("CA", "Canada", "NA", "America/Toronto"),
    ("AU", "Australia", "OC", "Australia/Sydney"),
    ("ZA", "South Africa", "AF", "Africa/Johannesburg"),
    ("PL", "Poland", "EU", "Europe/Warsaw"),
    ("MX", "Mexico", "NA", "America/Mexico_City"),
];

/// A database like GeoLite2-City: about 60 MB, names in eight languages, cities, regions and countries shared by pointers.
pub fn city_database() -> Vec<u8> {
    let mut database = Builder::new("GeoLite2-City").record_size(28);
    let countries = COUNTRIES.map(|(code, name, ..)| {
        database.share(&Value::map([
            ("geoname_id", Value::U32(6_252_001)),
            ("iso_code", Value::from(code)),
            names(name),
        ]))
    });
    let continents = COUNTRIES.map(|(_, _, code, _)| {
        database.share(&Value::map([("code", Value::from(code)), names(&format!("Continent {code}"))]))
    });
    let zones = COUNTRIES.map(|(.., zone)| database.share(&Value::from(zone)));
    let share_all = |database: &mut Builder, count: u32, value: fn(u32) -> Value| {
        (0..count).map(|n| database.share(&value(n))).collect::<Vec<_>>()
    };
    let regions = share_all(&mut database, REGIONS, region);
    let cities = share_all(&mut database, CITIES, city);
    let records: Vec<Vec<u8>> = (0..RECORDS)
        .map(|n| {
            let city = n % CITIES;
            let country = (city as usize) % COUNTRIES.len();
            Value::map([
                ("city", cities[city as usize].clone()),
                ("continent", continents[country].clone()),
                ("country", countries[country].clone()),
                ("location", location(n, &zones[country])),
                ("postal", Value::map([("code", Value::from(format!("{:05}", n % 99_991).as_str()))])),
                ("registered_country", countries[country].clone()),
                ("subdivisions", Value::Array(vec![regions[(city % REGIONS) as usize].clone()])),
            ])
            .encoded()
        })
        .collect();
    for n in 0..V4_NETWORKS + V6_NETWORKS {
        // Neighboring networks are often in the same city.
        database = database.add_raw(&network(n), records[(n / 4 % RECORDS) as usize].clone());
    }
    database.finish()
}

/// A database like GeoLite2-ASN: about 20 MB.
pub fn asn_database() -> Vec<u8> {
    let mut database = Builder::new("GeoLite2-ASN").record_size(24);
    for n in 0..V4_NETWORKS + V6_NETWORKS {
        let number = n / NETWORKS_PER_AS;
        let record = Value::map([
            ("autonomous_system_number", Value::U32(1_000 + number)),
            ("autonomous_system_organization", Value::from(format!("Network Operator {number}").as_str())),
        ]);
        database = database.add(&network(n), &record);
    }
    database.finish()
}

/// Client addresses in the order of their requests. The n-th most frequent network sends a share of about 1/n of the
/// requests (Zipf's law), so that the location cache gets hits and misses as with real clients.
pub fn client_addresses() -> impl Iterator<Item = String> {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    (0..CLIENT_REQUESTS).map(move |_| {
        let (first, count) = match next() % 100 < V6_PERCENT {
            true => (V4_NETWORKS, V6_NETWORKS),
            false => (0, V4_NETWORKS),
        };
        // A uniform exponent gives ranks with probabilities of 1/rank.
        let uniform = (next() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = f64::from(count).powf(uniform) as u64;
        // The prime spreads the frequent networks over the database.
        let n = first + (rank * 611_953 % u64::from(count)) as u32;
        address(n, (next() % 254) as u8 + 1)
    })
}

fn network(n: u32) -> String {
    let (address, length) = (address(n, 0), if n < V4_NETWORKS { 24 } else { 48 });
    format!("{address}/{length}")
}

/// An address in the n-th network.
fn address(n: u32, host: u8) -> String {
    match n.checked_sub(V4_NETWORKS) {
        // From 24.0.0.0, with gaps of up to 5 networks; no private network is among the addresses up to 127.0.0.0.
        None => Ipv4Addr::from_bits((0x18_0000 + n * 4 + n % 3) << 8 | u32::from(host)).to_string(),
        Some(n) => Ipv6Addr::from_bits(0x2a00_u128 << 112 | (u128::from(n) * 37) << 80 | u128::from(host))
            .to_string(),
    }
}

fn location(n: u32, zone: &Value) -> Value {
    Value::map([
        ("accuracy_radius", Value::U16(20)),
        ("latitude", Value::F64(f64::from(n % 1_700) / 10.0 - 85.0)),
        ("longitude", Value::F64(f64::from(n % 3_590) / 10.0 - 179.0)),
        ("time_zone", zone.clone()),
    ])
}

/// A region of the n-th country, so that its code is one of that country's.
fn region(n: u32) -> Value {
    let (country, ..) = COUNTRIES[n as usize % COUNTRIES.len()];
    let codes: Vec<&str> = SUBDIVISIONS.lines().filter_map(|line| code_of(line, country)).collect();
    let code = codes[n as usize / COUNTRIES.len() % codes.len()];
    Value::map([
        ("geoname_id", Value::U32(n)),
        ("iso_code", Value::from(code)),
        names(&format!("Region {n}")),
    ])
}

/// The code of a line without its country, if it is of this country: "BY" of "DE-BY".
fn code_of<'l>(line: &'l str, country: &str) -> Option<&'l str> {
    line.split_once('\t')?.0.strip_prefix(country)?.strip_prefix('-')
}

fn city(n: u32) -> Value {
    Value::map([("geoname_id", Value::U32(n)), names(&format!("Some City {n}"))])
}

fn names(name: &str) -> (&'static str, Value) {
    ("names", Value::map(LANGUAGES.map(|language| (language, Value::from(name)))))
}
