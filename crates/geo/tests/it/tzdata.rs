//! `--tzdata`: a directory with timezone data is followed while the service runs.

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
            .add("192.0.2.0/24", &record("Europe/Berlin"))
            .add("198.51.100.0/24", &record("Asia/Tokyo"));
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
    hours(geo, "192.0.2.1")
}

#[test]
fn replaced_timezone_files_change_offset_of_cached_location() {
    let fixture = Fixture::new();
    let geo = fixture.open();
    assert_eq!(berlin(&geo), 5);
    write_zone(&fixture.tzdata, "Europe/Berlin", &fixed_offset(6));
    assert!(geo.check());
    assert_eq!(berlin(&geo), 6);
    // In place, as `cp` does.
    fs::write(fixture.tzdata.join("Europe/Berlin"), fixed_offset(-3)).expect("write");
    assert!(geo.check());
    assert_eq!(berlin(&geo), -3);
    assert!(!geo.check(), "nothing has changed");
}

#[test]
fn swapped_link_to_directory_is_followed() {
    let mut fixture = Fixture::new();
    let (link, next) = (fixture.dir.path().join("current"), fixture.dir.path().join("next"));
    write_zones(&next, 7);
    symlink(&fixture.tzdata, &link).expect("link");
    fixture.tzdata = link.clone();
    let geo = fixture.open();
    assert_eq!(berlin(&geo), 5);
    let new_link = fixture.dir.path().join("new-link");
    symlink(&next, &new_link).expect("link");
    fs::rename(new_link, link).expect("rename");
    assert!(geo.check());
    assert_eq!(berlin(&geo), 7);
}

#[test]
fn broken_or_partial_directory_keeps_previous_data() {
    let fixture = Fixture::new();
    let geo = fixture.open();
    let berlin_file = fixture.tzdata.join("Europe/Berlin");
    let valid = fixed_offset(8);
    let mut bad_rule = valid.clone();
    bad_rule.truncate(valid.len() - 3);
    let broken: [&[u8]; 5] =
        [b"", b"<html>not found</html>", &valid[..60], &bad_rule, &vec![b'T'; 100 << 10]];
    for bytes in broken {
        write_zone(&fixture.tzdata, "Europe/Paris", &valid);
        write_zone(&fixture.tzdata, "Europe/Berlin", bytes);
        assert!(!geo.check(), "{bytes:?}");
        assert_eq!(berlin(&geo), 5, "{bytes:?}");
    }
    fs::remove_file(&berlin_file).expect("remove");
    assert!(!geo.check(), "a timezone is missing");
    fs::remove_dir_all(&fixture.tzdata).expect("remove");
    assert!(!geo.check(), "the directory is missing");
    fs::create_dir(&fixture.tzdata).expect("create directory");
    assert!(!geo.check(), "the directory is empty");
    assert_eq!(berlin(&geo), 5);
    write_zones(&fixture.tzdata, 8);
    assert!(geo.check());
    assert_eq!(berlin(&geo), 8);
}

#[test]
fn timezones_that_a_directory_lacks_are_built_in() {
    let geo = Fixture::new().open();
    assert_eq!(hours(&geo, "198.51.100.1"), 9);
}

#[test]
fn version_and_directory_are_reported() {
    let fixture = Fixture::new();
    let path = fixture.tzdata.display().to_string();
    assert_eq!(fixture.open().timezones().to_string(), format!("version unknown ({path})"));
    fs::write(fixture.tzdata.join("tzdata.zi"), "# version 2001a\n").expect("write");
    let geo = fixture.open();
    assert_eq!(geo.timezones().to_string(), format!("2001a ({path})"), "also if it is older");
    fs::write(fixture.tzdata.join("tzdata.zi"), "# version 2001b\n").expect("write");
    write_zones(&fixture.tzdata, 6);
    assert!(geo.check());
    assert_eq!(geo.timezones().version.as_deref(), Some("2001b"));
}

#[test]
fn unusable_directory_is_an_error_at_start() {
    let mut fixture = Fixture::new();
    let path = fixture.tzdata.clone();
    write_zone(&path, "Europe/Berlin", b"TZif2");
    let expected = format!("{} has an invalid file for the timezone Europe/Berlin", path.display());
    assert_eq!(fixture.start_error(), expected);
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
    fs::write(fixture.tzdata.join("Evil name"), fixed_offset(1)).expect("write");
    let geo = fixture.open();
    assert_eq!(berlin(&geo), 5);
    let record =
        Value::map([("city", Value::from("x")), ("timezone", Value::from("Europe/../../city.mmdb"))]);
    let database = Builder::new("city").add("192.0.2.0/24", &record).finish();
    fs::write(fixture.dir.path().join("city.mmdb"), database).expect("write");
    geo.check();
    geo.lookup("192.0.2.1".parse().expect("IP address"), JULY, |location| {
        assert_eq!((location.timezone, location.timezone_offset), (None, None));
    });
}

#[test]
fn directory_with_too_many_files_is_rejected() {
    let fixture = Fixture::new();
    for number in 0..9_000 {
        fs::File::create(fixture.tzdata.join(format!("N{number}"))).expect("create");
    }
    assert!(fixture.start_error().ends_with("has more than 8192 files"), "{}", fixture.start_error());
}
