//! The location cache: `lookup_json` always returns the same JSON as an uncached lookup.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use geo::{Geo, GeoArgs, LocationJson};
use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};

const NETWORKS: u16 = 2_000;

/// 2026-03-29T00:59:59Z, one second before daylight saving time starts in Berlin.
const BEFORE_DST: i64 = 1_774_745_999;

fn write(path: &Path, database: Builder) {
    std::fs::write(path, database.finish()).expect("write");
}

fn address(n: u16) -> IpAddr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(20, high, low, 1).into()
}

fn network(n: u16) -> String {
    let [high, low] = n.to_be_bytes();
    format!("20.{high}.{low}.0/24")
}

fn open(paths: impl IntoIterator<Item = std::path::PathBuf>) -> Geo {
    let args = GeoArgs { geo_db: paths.into_iter().collect(), ..GeoArgs::default() };
    Geo::open(&args).expect("load geo data")
}

/// The JSON from `lookup_json`, which uses the cache.
fn cached_json(geo: &Geo, ip: IpAddr, now: i64) -> String {
    geo.lookup_json(ip, now, text)
}

/// The JSON of an uncached lookup.
fn uncached_json(geo: &Geo, ip: IpAddr, now: i64) -> String {
    geo.lookup(ip, now, |location| text(&LocationJson::new(location)))
}

fn text(json: &LocationJson) -> String {
    String::from_utf8([json.geo_fields(), json.full_fields()].concat()).expect("UTF-8")
}

fn many_networks(dir: &TempDir) -> Geo {
    let city = |n: u16| Value::map([("city", Value::from(format!("City {n}").as_str()))]);
    let database = (0..NETWORKS).fold(Builder::new("x"), |built, n| built.add(&network(n), &city(n)));
    let path = dir.path().join("city.mmdb");
    write(&path, database);
    open([path])
}

#[test]
fn networks_are_not_mixed_up() {
    let dir = TempDir::new().expect("temp dir");
    let geo = many_networks(&dir);
    for round in 0..2 {
        for n in 0..NETWORKS {
            let json = cached_json(&geo, address(n), 0);
            assert!(json.starts_with(&format!(r#","city":"City {n}","#)), "round {round}: {json}");
            for _ in 0..2 {
                assert_eq!(cached_json(&geo, address(n), 0), json, "repeated lookup");
            }
        }
    }
    let unknown = IpAddr::from([11, 0, 0, 1]);
    assert_eq!(cached_json(&geo, unknown, 0), uncached_json(&geo, unknown, 0));
}

#[test]
fn concurrent_lookups_are_correct() {
    let dir = TempDir::new().expect("temp dir");
    let geo = many_networks(&dir);
    std::thread::scope(|scope| {
        for step in [1, 3, 7, 11] {
            let geo = &geo;
            scope.spawn(move || {
                for n in (0..NETWORKS).map(|n| n.wrapping_mul(step) % NETWORKS) {
                    let json = cached_json(geo, address(n), 0);
                    assert!(json.starts_with(&format!(r#","city":"City {n}","#)), "{json}");
                }
            });
        }
    });
}

#[test]
fn timezone_offset_changes_at_exact_second() {
    let dir = TempDir::new().expect("temp dir");
    let path = dir.path().join("city.mmdb");
    let berlin = Value::map([("timezone", Value::from("Europe/Berlin"))]);
    // Two timezones with the same offset, so without a timezone.
    let cyprus = Value::map([("country_code", Value::from("CY"))]);
    write(&path, Builder::new("x").add(&network(1), &berlin).add(&network(2), &cyprus));
    let geo = open([path]);
    let offset = |n, now| {
        let json = cached_json(&geo, address(n), now);
        let (_, offset) = json.split_once(r#""timezone_offset":"#).expect("timezone_offset");
        offset.split_once(',').expect("next field").0.to_owned()
    };
    let later = [0, 0, 1, 1, 1, 0];
    assert_eq!(
        later.map(|later| offset(1, BEFORE_DST + later)),
        ["3600", "3600", "7200", "7200", "7200", "3600"]
    );
    assert_eq!(
        later.map(|later| offset(2, BEFORE_DST + later)),
        ["7200", "7200", "10800", "10800", "10800", "7200"]
    );
}

#[test]
fn offset_of_a_country_follows_its_timezones_within_a_day() {
    // Since 2024-03-01, all of Kazakhstan has the same time.
    const BEFORE: i64 = 1_709_200_000;
    let dir = TempDir::new().expect("temp dir");
    let path = dir.path().join("city.mmdb");
    write(&path, Builder::new("x").add(&network(1), &Value::map([("country_code", Value::from("KZ"))])));
    let geo = open([path]);
    let offset = |now| cached_json(&geo, address(1), now).contains(r#""timezone_offset":18000"#);
    assert_eq!([BEFORE, BEFORE, BEFORE + 86_400].map(offset), [false, false, true]);
}

#[test]
fn reload_of_database_and_list_invalidates_cache() {
    let dir = TempDir::new().expect("temp dir");
    let [database, list] = ["asn.mmdb", "hosting.txt"].map(|name| dir.path().join(name));
    let database_with = |org: &str| {
        let record = Value::map([("asn", Value::from("AS64500")), ("as_name", Value::from(org))]);
        Builder::new("x").add(&network(1), &record)
    };
    write(&database, database_with("First"));
    std::fs::write(&list, "64501 Another\n").expect("write");
    let geo = Geo::open(&GeoArgs {
        geo_db: vec![database.clone()],
        hosting_asns: Some(list.clone()),
        ..GeoArgs::default()
    })
    .expect("load geo data");
    for _ in 0..3 {
        let json = cached_json(&geo, address(1), 0);
        assert!(json.contains(r#""org":"First""#) && json.ends_with(r#""hosting":false"#), "{json}");
    }
    let new = database.with_extension("new");
    write(&new, database_with("Second"));
    std::fs::rename(new, &database).expect("rename");
    std::fs::write(&list, "64500 A name that changes the size\n").expect("write");
    assert!(geo.check());
    let json = cached_json(&geo, address(1), 0);
    assert!(json.contains(r#""org":"Second""#) && json.ends_with(r#""hosting":true"#), "{json}");
}

#[test]
fn cached_location_of_several_databases_equals_uncached_one() {
    let dir = TempDir::new().expect("temp dir");
    let paths: Vec<_> = (0..3_u16).map(|n| dir.path().join(format!("{n}.mmdb"))).collect();
    for (n, path) in (0..).zip(&paths) {
        // Each database has one network. The last database also has a record for all networks.
        let own = Builder::new("x").add(&network(n), &Value::map([("city", Value::from("Own"))]));
        let operator = Value::map([("as_name", Value::from("Everywhere"))]);
        write(path, if n == 2 { own.add("20.0.0.0/8", &operator) } else { own });
    }
    let geo = open(paths);
    for _ in 0..3 {
        for ip in (0..5).map(address) {
            assert_eq!(cached_json(&geo, ip, 0), uncached_json(&geo, ip, 0), "{ip}");
        }
    }
}

/// A whole /24 or /48 is cached only if all of its addresses have the same records.
#[test]
fn parts_of_a_network_are_not_mixed_up() {
    let dir = TempDir::new().expect("temp dir");
    let city = |name: &str| Value::map([("city", Value::from(name))]);
    let asn = Value::map([("autonomous_system_number", Value::U32(64500))]);
    let (cities, networks) = (dir.path().join("city.mmdb"), dir.path().join("asn.mmdb"));
    let parts = [
        "81.2.69.0/25",
        "81.2.69.128/26",
        "81.2.69.255/32",
        "2a02:cf40:1::/49",
        "2a02:cf40:1:fe00::/65",
        "2a02:cf40:1:ff00::/64",
    ];
    write(&cities, parts.iter().fold(Builder::new("x"), |built, part| built.add(part, &city(part))));
    let with_asn = ["81.2.0.0/16", "2a02:cf40::/32"];
    write(&networks, with_asn.iter().fold(Builder::new("y"), |built, part| built.add(part, &asn)));
    let geo = open([cities, networks]);
    for _ in 0..3 {
        for last in 0..=u8::MAX {
            let v4 = IpAddr::from([81, 2, 69, last]);
            let v6 = IpAddr::from([0x2a02, 0xcf40, 1, u16::from(last) << 8, 0, 0, 0, 1]);
            let second_half = IpAddr::from([0x2a02, 0xcf40, 1, u16::from(last) << 8, 0x8000, 0, 0, 1]);
            for ip in [v4, v6, second_half] {
                assert_eq!(cached_json(&geo, ip, 0), uncached_json(&geo, ip, 0), "{ip}");
            }
        }
    }
}
