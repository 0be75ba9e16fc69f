//! `--tzdata`: a directory with timezone data, read at the start.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use geo::{Geo, GeoArgs};
use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};
use testkit::tzif::fixed_offset;

const ZONES: [&str; 3] = ["Europe/Berlin", "Europe/Paris", "America/Argentina/Ushuaia"];
/// 2026-07-15T12:00:00Z.
const JULY: i64 = 1_784_116_800;

/// A database and a directory with the timezones `ZONES`.
struct Fixture {
    dir: TempDir,
    tzdata: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let dir = TempDir::new().expect("temp dir");
        let record = |zone: &str| Value::map([("city", Value::from("x")), ("timezone", Value::from(zone))]);
        let database = Builder::new("city")
            .add("81.2.69.0/24", &record("Europe/Berlin"))
            .add("216.160.83.0/24", &record("Asia/Tokyo"));
        fs::write(dir.path().join("city.mmdb"), database.finish()).expect("write");
        let tzdata = dir.path().join("zoneinfo");
        let fixture = Fixture { dir, tzdata };
        write_zones(&fixture.tzdata, 5);
        fixture
    }

    fn args(&self) -> GeoArgs {
        let geo_db = vec![self.dir.path().join("city.mmdb")];
        GeoArgs { geo_db, tzdata: Some(self.tzdata.clone()), ..GeoArgs::default() }
    }

    fn open(&self) -> Geo {
        Geo::open(&self.args()).expect("load geo data")
    }

    fn start_error(&self) -> String {
        Geo::open(&self.args()).err().expect("the directory is rejected").to_string()
    }
}

fn write_zones(directory: &Path, hours: i8) {
    for zone in ZONES {
        write_zone(directory, zone, &fixed_offset(hours));
    }
}

/// Replaces the file atomically, as package managers do.
fn write_zone(directory: &Path, zone: &str, bytes: &[u8]) {
    let path = directory.join(zone);
    fs::create_dir_all(path.parent().expect("a parent")).expect("create directory");
    let new = directory.join(".new");
    fs::write(&new, bytes).expect("write");
    fs::rename(new, path).expect("rename");
}

/// The offset in hours, after enough lookups that the location is cached.
fn hours(geo: &Geo, ip: &str) -> i64 {
    let ip = ip.parse().expect("IP address");
    let lookup = || geo.lookup_json(ip, JULY, |json| [b"{\"x\":0", json.geo_fields(), b"}"].concat());
    let responses = [(); 4].map(|()| lookup());
    assert!(responses.iter().all(|response| *response == responses[0]));
    let json: serde_json::Value = serde_json::from_slice(&responses[0]).expect("JSON");
    json["timezone_offset"].as_i64().expect("an offset") / 3600
}

fn berlin(geo: &Geo) -> i64 {
    hours(geo, "81.2.69.1")
}

#[test]
fn directory_is_read_at_start_only() {
    let fixture = Fixture::new();
    let geo = fixture.open();
    assert_eq!(berlin(&geo), 5);
    write_zones(&fixture.tzdata, 6);
    assert!(!geo.check());
    assert_eq!((berlin(&geo), berlin(&fixture.open())), (5, 6));
}

#[test]
fn timezones_that_a_directory_lacks_are_built_in() {
    let geo = Fixture::new().open();
    assert_eq!(hours(&geo, "216.160.83.1"), 9);
}

#[test]
fn timezone_that_only_the_directory_has_is_read() {
    let fixture = Fixture::new();
    let table = "XX\t+0000+00000\tEurope/Newtown\nXX\t+0000+00000\tEurope/../Newtown\n";
    fs::write(fixture.tzdata.join("zone.tab"), table).expect("write");
    write_zone(&fixture.tzdata, "Europe/Newtown", &fixed_offset(7));
    let record = Value::map([("city", Value::from("x")), ("timezone", Value::from("Europe/Newtown"))]);
    let database = Builder::new("city").add("81.2.69.0/24", &record).finish();
    fs::write(fixture.dir.path().join("city.mmdb"), database).expect("write");
    assert_eq!(berlin(&fixture.open()), 7);
}

#[test]
fn version_and_directory_are_reported() {
    let fixture = Fixture::new();
    let path = fixture.tzdata.display().to_string();
    assert_eq!(fixture.open().timezones().to_string(), format!("version unknown ({path})"));
    fs::write(fixture.tzdata.join("tzdata.zi"), "# version 2001a\n").expect("write");
    assert_eq!(fixture.open().timezones().to_string(), format!("2001a ({path})"), "also if it is older");
}

#[test]
fn unusable_directory_is_an_error_at_start() {
    let mut fixture = Fixture::new();
    let path = fixture.tzdata.clone();
    let valid = fixed_offset(8);
    let broken: [&[u8]; 6] = [
        b"",
        b"TZif2",
        b"<html>not found</html>",
        &valid[..60],
        &valid[..valid.len() - 3],
        &vec![b'T'; 100 << 10],
    ];
    let expected = format!("{} has an invalid file for the timezone Europe/Berlin", path.display());
    for bytes in broken {
        write_zone(&path, "Europe/Berlin", bytes);
        assert_eq!(fixture.start_error(), expected, "{bytes:?}");
    }
    fixture.tzdata = fixture.dir.path().join("empty");
    fs::create_dir(&fixture.tzdata).expect("create directory");
    // Not timezones: a table, and the variants with leap seconds.
    fs::write(fixture.tzdata.join("zone.tab"), "DE\t+5230+01322\tEurope/Berlin\n").expect("write");
    write_zone(&fixture.tzdata.join("right"), "Europe/Berlin", &fixed_offset(1));
    assert_eq!(fixture.start_error(), format!("{} has no timezone files", fixture.tzdata.display()));
    fixture.tzdata = fixture.dir.path().join("typo");
    assert_eq!(fixture.start_error(), format!("{} was not found", fixture.tzdata.display()));
}

#[test]
fn loops_and_names_outside_the_directory_are_ignored() {
    let fixture = Fixture::new();
    symlink(".", fixture.tzdata.join("Loop")).expect("link");
    symlink("/nonexistent", fixture.tzdata.join("Dangling")).expect("link");
    symlink("missing", fixture.tzdata.join("Europe/Rome")).expect("link");
    fs::write(fixture.tzdata.join("Evil name"), fixed_offset(1)).expect("write");
    let geo = fixture.open();
    assert_eq!(berlin(&geo), 5);
    let record =
        Value::map([("city", Value::from("x")), ("timezone", Value::from("Europe/../../city.mmdb"))]);
    let database = Builder::new("city").add("81.2.69.0/24", &record).finish();
    fs::write(fixture.dir.path().join("city.mmdb"), database).expect("write");
    geo.check();
    geo.lookup("81.2.69.1".parse().expect("IP address"), JULY, |location| {
        assert_eq!((location.timezone, location.timezone_offset), (None, None));
    });
}
