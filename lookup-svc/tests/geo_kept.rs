//! Written places are kept: what is shown is what a look-up at that moment finds, whoever asked before.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use lookup_svc::geo::writer::{Builder, Value};
use lookup_svc::geo::{Geo, GeoArgs, PlaceJson};
use tempfile::TempDir;

/// More records than are kept, so that some share a place.
const RECORDS: u16 = 10_000;

const BEFORE_SUMMER_TIME: i64 = 1_774_745_999; // 2026-03-29T00:59:59Z

fn write(path: &Path, database: Builder) {
    std::fs::write(path, database.finish()).expect("writes");
}

fn address(n: u16) -> IpAddr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(10, high, low, 1).into()
}

fn network(n: u16) -> String {
    let [high, low] = n.to_be_bytes();
    format!("10.{high}.{low}.0/24")
}

fn open(paths: impl IntoIterator<Item = std::path::PathBuf>) -> Geo {
    let args = GeoArgs { geo_db: paths.into_iter().collect(), ..GeoArgs::default() };
    Geo::open(&args).expect("loads")
}

/// What is shown, kept or not.
fn shown(geo: &Geo, ip: IpAddr, now: i64) -> String {
    geo.lookup_json(ip, now, text)
}

/// What a look-up finds, written down for this.
fn found(geo: &Geo, ip: IpAddr, now: i64) -> String {
    geo.lookup(ip, now, |place| text(&PlaceJson::of(place)))
}

fn text(json: &PlaceJson) -> String {
    String::from_utf8([json.place(), json.network()].concat()).expect("UTF-8")
}

fn many_records(folder: &TempDir) -> Geo {
    let city = |n: u16| Value::map([("city", Value::from(format!("City {n}").as_str()))]);
    let database = (0..RECORDS).fold(Builder::new("x"), |built, n| built.add(&network(n), &city(n)));
    let path = folder.path().join("city.mmdb");
    write(&path, database);
    open([path])
}

#[test]
fn records_that_share_a_place_are_not_mixed_up() {
    let folder = TempDir::new().expect("folder");
    let geo = many_records(&folder);
    for turn in 0..2 {
        for n in 0..RECORDS {
            let json = shown(&geo, address(n), 0);
            assert!(json.starts_with(&format!(r#","city":"City {n}","#)), "turn {turn}: {json}");
            for _ in 0..2 {
                assert_eq!(shown(&geo, address(n), 0), json, "asked again at once");
            }
        }
    }
    let nowhere = IpAddr::from([11, 0, 0, 1]);
    assert_eq!(shown(&geo, nowhere, 0), found(&geo, nowhere, 0));
}

#[test]
fn threads_that_meet_at_a_place_get_their_own() {
    let folder = TempDir::new().expect("folder");
    let geo = many_records(&folder);
    std::thread::scope(|scope| {
        for step in [1, 3, 7, 11] {
            let geo = &geo;
            scope.spawn(move || {
                for n in (0..RECORDS).map(|n| n.wrapping_mul(step) % RECORDS) {
                    let json = shown(geo, address(n), 0);
                    assert!(json.starts_with(&format!(r#","city":"City {n}","#)), "{json}");
                }
            });
        }
    });
}

#[test]
fn a_time_zone_changes_at_its_second() {
    let folder = TempDir::new().expect("folder");
    let path = folder.path().join("city.mmdb");
    let berlin = Value::map([("timezone", Value::from("Europe/Berlin"))]);
    write(&path, Builder::new("x").add(&network(1), &berlin));
    let geo = open([path]);
    let offset = |now| {
        let json = shown(&geo, address(1), now);
        let (_, offset) = json.split_once(r#""timezone_offset":"#).expect("the field");
        offset.split_once(',').expect("another field").0.to_owned()
    };
    assert_eq!(
        [0, 0, 1, 1, 1, 0].map(|later| offset(BEFORE_SUMMER_TIME + later)),
        ["3600", "3600", "7200", "7200", "7200", "3600"]
    );
}

#[test]
fn new_databases_and_lists_are_seen_at_once() {
    let folder = TempDir::new().expect("folder");
    let [database, list] = ["asn.mmdb", "hosting.txt"].map(|name| folder.path().join(name));
    let named = |org: &str| {
        let record = Value::map([("asn", Value::from("AS64500")), ("as_name", Value::from(org))]);
        Builder::new("x").add(&network(1), &record)
    };
    write(&database, named("First"));
    std::fs::write(&list, "64501 Another\n").expect("writes");
    let geo = Geo::open(&GeoArgs {
        geo_db: vec![database.clone()],
        hosting_asns: Some(list.clone()),
        ..GeoArgs::default()
    })
    .expect("loads");
    for _ in 0..3 {
        let json = shown(&geo, address(1), 0);
        assert!(json.contains(r#""org":"First""#) && json.ends_with(r#""hosting":false"#), "{json}");
    }
    let new = database.with_extension("new");
    write(&new, named("Second"));
    std::fs::rename(new, &database).expect("renames");
    std::fs::write(&list, "64500 Ours, with a longer line\n").expect("writes");
    assert!(geo.check());
    let json = shown(&geo, address(1), 0);
    assert!(json.contains(r#""org":"Second""#) && json.ends_with(r#""hosting":true"#), "{json}");
}

#[test]
fn places_from_several_databases_are_kept_by_all_their_records() {
    let folder = TempDir::new().expect("folder");
    for databases in [2_u16, 8, 9] {
        let paths: Vec<_> =
            (0..databases).map(|n| folder.path().join(format!("{databases}-{n}.mmdb"))).collect();
        for (n, path) in (0..).zip(&paths) {
            // Each knows its own network, and the last one all of them.
            let own = Builder::new("x").add(&network(n), &Value::map([("city", Value::from("Own"))]));
            let operator = Value::map([("as_name", Value::from("Everywhere"))]);
            let last = n + 1 == databases;
            write(path, if last { own.add("10.0.0.0/8", &operator) } else { own });
        }
        let geo = open(paths);
        for _ in 0..3 {
            for ip in (0..databases + 2).map(address) {
                assert_eq!(shown(&geo, ip, 0), found(&geo, ip, 0), "{databases} databases, {ip}");
            }
        }
    }
}

#[test]
fn a_very_long_text_is_shown_though_not_kept() {
    let folder = TempDir::new().expect("folder");
    let path = folder.path().join("city.mmdb");
    let long = "x".repeat(3000);
    write(&path, Builder::new("x").add(&network(1), &Value::map([("city", Value::from(long.as_str()))])));
    let geo = open([path]);
    for _ in 0..3 {
        assert!(shown(&geo, address(1), 0).contains(&long));
    }
}
