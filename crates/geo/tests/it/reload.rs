//! Reloading: if a file is invalid, partly written or deleted, lookups continue with the last valid data.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use geo::{Geo, GeoArgs, GeoError};
use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};

const NET: &str = "81.2.69.0/24";
const CITIES: [&str; 2] = ["Berlin", "A city with a much longer name, so that the size changes"];

fn city_file(city: &str, epoch: u64) -> Vec<u8> {
    let record = Value::map([("city", Value::from(city)), ("country_code", Value::from("DE"))]);
    Builder::new("dbip-city").build_epoch(epoch).add(NET, &record).finish()
}

fn replace(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes).expect("write");
    std::fs::rename(new, path).expect("rename");
}

fn open(args: GeoArgs) -> Geo {
    Geo::open(&args).expect("load geo data")
}

fn args_for(path: PathBuf) -> GeoArgs {
    GeoArgs { geo_db: vec![path], ..GeoArgs::default() }
}

fn city(geo: &Geo) -> Option<String> {
    geo.lookup("81.2.69.1".parse().expect("IP address"), 0, |location| location.city.map(str::to_owned))
}

fn start(dir: &TempDir) -> (Geo, PathBuf) {
    let path = dir.path().join("city.mmdb");
    std::fs::write(&path, city_file("Berlin", 1)).expect("write");
    (open(args_for(path.clone())), path)
}

#[test]
fn replaced_file_is_loaded_with_its_build_time() {
    let dir = TempDir::new().expect("temp dir");
    let (geo, path) = start(&dir);
    assert!(!geo.check(), "nothing changed");
    replace(&path, &city_file("Hamburg", 2));
    assert!(geo.check());
    assert_eq!((city(&geo).as_deref(), geo.databases()[0].build_epoch), (Some("Hamburg"), 2));
}

#[test]
fn invalid_file_is_rejected_and_old_data_stays() {
    let dir = TempDir::new().expect("temp dir");
    let (geo, path) = start(&dir);
    let good = city_file("Hamburg", 2);
    let no_known_fields =
        Builder::new("other").add(NET, &Value::map([("color", Value::from("blue"))])).finish();
    let invalid: Vec<Vec<u8>> = vec![
        Vec::new(),
        good[..good.len() / 2].to_vec(),
        good[..good.len() - 1].to_vec(),
        b"<!DOCTYPE html><html>no database</html>".to_vec(),
        [0x1f, 0x8b, 8, 0, 0, 0].to_vec(),
        vec![0; 4096],
        no_known_fields,
    ];
    for (index, bytes) in invalid.iter().enumerate() {
        replace(&path, bytes);
        assert!(!geo.check(), "invalid file {index} was loaded");
        assert_eq!(city(&geo).as_deref(), Some("Berlin"), "invalid file {index}");
        assert_eq!(geo.reload_status().rejected, index as u64 + 1);
        geo.check();
        assert_eq!(geo.reload_status().rejected, index as u64 + 1, "counted once per change");
    }
    replace(&path, &good);
    assert!(geo.check());
    assert_eq!(city(&geo).as_deref(), Some("Hamburg"));
}

#[test]
fn flipped_bits_cause_no_panic() {
    let dir = TempDir::new().expect("temp dir");
    let (geo, path) = start(&dir);
    let good = city_file("Hamburg", 2);
    for position in 0..good.len() {
        let mut bytes = good.clone();
        bytes[position] ^= 1 << (position % 8);
        replace(&path, &bytes);
        geo.check();
        for ip in ["81.2.69.1", "0.0.0.0", "255.255.255.255", "::", "2a02:cf40::1", "ffff::"] {
            geo.lookup(ip.parse().expect("IP address"), 0, |location| format!("{location:?}"));
        }
    }
}

#[test]
fn file_overwritten_in_place_is_loaded_once_complete() {
    let dir = TempDir::new().expect("temp dir");
    let (geo, path) = start(&dir);
    let new = city_file("Hamburg", 2);
    std::fs::write(&path, &new[..40]).expect("write");
    assert!(!geo.check());
    assert_eq!(city(&geo).as_deref(), Some("Berlin"));
    std::fs::write(&path, &new).expect("write");
    assert!(geo.check());
    assert_eq!(city(&geo).as_deref(), Some("Hamburg"));
    // A second write right after the first is noticed despite the same size and possibly the same timestamp.
    std::fs::write(&path, city_file("Potsdam", 3)).expect("write");
    geo.check();
    assert_eq!(city(&geo).as_deref(), Some("Potsdam"));
}

#[test]
fn file_written_during_reads_is_never_partly_loaded() {
    let dir = TempDir::new().expect("temp dir");
    let (geo, path) = start(&dir);
    let stop = AtomicBool::new(false);
    let last = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 10.. {
                let city = CITIES[(round % 2) as usize];
                let mut file = std::fs::File::create(&path).expect("truncate");
                for chunk in city_file(city, round).chunks(32) {
                    file.write_all(chunk).expect("write");
                }
                if stop.load(Ordering::Relaxed) {
                    return city;
                }
            }
            unreachable!("endless loop")
        });
        let deadline = Instant::now() + Duration::from_secs(30);
        while geo.reload_status().rejected < 10 && Instant::now() < deadline {
            geo.check();
            let seen = city(&geo).expect("always some city");
            assert!(CITIES.contains(&seen.as_str()), "{seen}");
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("writer thread")
    });
    assert!(geo.reload_status().rejected >= 10, "partial files were read");
    geo.check();
    assert_eq!(city(&geo).as_deref(), Some(last), "the complete file is loaded");
}

#[test]
fn deleted_file_keeps_its_data_until_replaced() {
    let dir = TempDir::new().expect("temp dir");
    std::fs::write(dir.path().join("dbip-2026-10.mmdb"), city_file("October", 1)).expect("write");
    let geo = open(args_for(dir.path().to_owned()));
    std::fs::remove_file(dir.path().join("dbip-2026-10.mmdb")).expect("remove");
    assert!(!geo.check());
    assert_eq!(city(&geo).as_deref(), Some("October"));
    std::fs::write(dir.path().join("dbip-2026-11.mmdb"), city_file("November", 2)).expect("write");
    assert!(geo.check());
    assert_eq!((city(&geo).as_deref(), geo.databases().len()), (Some("November"), 2));
}

#[test]
fn deleted_database_is_dropped_at_the_next_reload() {
    let dir = TempDir::new().expect("temp dir");
    let [city_path, asn_path] = ["city.mmdb", "asn.mmdb"].map(|name| dir.path().join(name));
    let asn = |name: &str| {
        Builder::new("asn")
            .add(NET, &Value::map([("asn", Value::from("AS64500")), ("as_name", Value::from(name))]))
    };
    for geo_db in [vec![dir.path().to_owned()], vec![city_path.clone(), asn_path.clone()]] {
        replace(&city_path, &city_file("Berlin", 1));
        replace(&asn_path, &asn("Old").finish());
        let geo = open(GeoArgs { geo_db, ..GeoArgs::default() });
        std::fs::remove_file(&city_path).expect("remove");
        for _ in 0..2 {
            assert!(!geo.check());
            assert_eq!((city(&geo).as_deref(), geo.databases().len()), (Some("Berlin"), 3));
            let end = "; deleted, and in use until another file is loaded: city.mmdb";
            assert!(geo.summary(0).ends_with(end), "{}", geo.summary(0));
        }
        replace(&asn_path, &asn("New").finish());
        assert!(geo.check());
        assert_eq!((city(&geo), geo.databases().len()), (None, 2));
        assert!(!geo.summary(0).contains("city.mmdb"), "{}", geo.summary(0));
        assert!(!geo.check() && geo.reload_status().deleted.is_empty());
        replace(&city_path, &city_file("Hamburg", 2));
        assert!(geo.check(), "loaded again once it exists");
        assert_eq!(city(&geo).as_deref(), Some("Hamburg"));
    }
}

#[test]
fn only_newest_build_of_a_type_in_a_directory_is_used() {
    let dir = TempDir::new().expect("temp dir");
    let file = |name: &str, bytes: Vec<u8>| std::fs::write(dir.path().join(name), bytes).expect("write");
    let older = |city: &str| {
        let record = Value::map([("city", Value::from(city)), ("postcode", Value::from("10115"))]);
        Builder::new("dbip-city").build_epoch(1).add(NET, &record).add("216.160.83.0/24", &record).finish()
    };
    let only_in_older = |geo: &Geo| {
        let ip = "216.160.83.1".parse().expect("IP address");
        geo.lookup(ip, 0, |location| location.city.map(str::to_owned))
    };
    file("a-older.mmdb", older("October"));
    file("b-newer.mmdb", city_file("November", 2));
    file("c-older.mmdb", older("October"));
    file("other.mmdb", Builder::new("asn").add(NET, &Value::map([("asn", Value::from("AS64500"))])).finish());
    let geo = open(args_for(dir.path().to_owned()));
    let names: Vec<_> = geo.databases().into_iter().map(|database| database.name).collect();
    assert_eq!(names, ["b-newer.mmdb", "other.mmdb", "built-in country data"]);
    assert_eq!((city(&geo).as_deref(), only_in_older(&geo)), (Some("November"), None));
    file("a-older.mmdb", city_file("December", 3));
    assert!(geo.check());
    assert_eq!((city(&geo).as_deref(), geo.databases().len()), (Some("December"), 3));
}

#[test]
fn databases_of_two_vendors_with_the_same_type_are_both_used() {
    let dir = TempDir::new().expect("temp dir");
    for (name, vendor, net) in [
        ("a.mmdb", "vendor A, built 2026-10-01", NET),
        ("b.mmdb", "vendor B", "216.160.83.0/24"),
        ("c.mmdb", "vendor A, built 2026-11-01", "89.160.20.0/24"),
        // As in ip-location-db, whose files have no description.
        ("dbip-city.mmdb", "", "81.2.69.0/25"),
        ("geolite2-city.mmdb", "", "81.2.69.128/25"),
    ] {
        let record = Value::map([("city", Value::from(name))]);
        let epoch = u64::from(name == "c.mmdb");
        let builder = Builder::new("city").description(vendor).build_epoch(epoch).add(net, &record);
        std::fs::write(dir.path().join(name), builder.finish()).expect("write");
    }
    let geo = open(args_for(dir.path().to_owned()));
    let names: Vec<_> = geo.databases().into_iter().map(|database| database.name).collect();
    let expected = ["c.mmdb", "b.mmdb", "dbip-city.mmdb", "geolite2-city.mmdb", "built-in country data"];
    assert_eq!(names, expected, "c.mmdb is a newer build of a.mmdb");
}

#[test]
fn files_without_a_type_are_all_used() {
    let dir = TempDir::new().expect("temp dir");
    for (name, net, epoch) in [("a.mmdb", NET, 1), ("b.mmdb", "216.160.83.0/24", 2)] {
        let builder =
            Builder::new("").build_epoch(epoch).add(net, &Value::map([("city", Value::from(name))]));
        std::fs::write(dir.path().join(name), builder.finish()).expect("write");
    }
    let geo = open(args_for(dir.path().to_owned()));
    assert_eq!((city(&geo).as_deref(), geo.databases().len()), (Some("a.mmdb"), 3));
}

#[test]
fn invalid_file_at_startup_is_skipped_if_another_loads() {
    let dir = TempDir::new().expect("temp dir");
    let (bad, good) = (dir.path().join("a.mmdb"), dir.path().join("b.mmdb"));
    std::fs::write(&bad, b"invalid").expect("write");
    std::fs::write(&good, city_file("Berlin", 1)).expect("write");
    let both = GeoArgs { geo_db: vec![bad.clone(), good], ..GeoArgs::default() };
    assert_eq!(city(&open(both)).as_deref(), Some("Berlin"));
    assert!(matches!(Geo::open(&args_for(bad)), Err(GeoError::NothingLoaded { .. })));
    assert!(matches!(
        Geo::open(&args_for(dir.path().join("missing.mmdb"))),
        Err(GeoError::NothingLoaded { .. })
    ));
}

#[test]
fn file_in_empty_directory_is_loaded_once_complete() {
    let dir = TempDir::new().expect("temp dir");
    let geo = open(args_for(dir.path().to_owned()));
    assert!(geo.only_built_in());
    std::fs::write(dir.path().join(".hidden.mmdb"), city_file("Hidden", 1)).expect("write");
    assert!(!geo.check(), "hidden files are downloads in progress");
    std::fs::write(dir.path().join("city.mmdb"), city_file("Hamburg", 1)).expect("write");
    assert!(geo.check());
    assert_eq!(city(&geo).as_deref(), Some("Hamburg"));
}

#[test]
fn replaced_list_is_loaded_and_invalid_list_is_rejected() {
    let dir = TempDir::new().expect("temp dir");
    let list = dir.path().join("hosting.txt");
    std::fs::write(&list, "13335\tCloudflare\n").expect("write");
    let sample = testkit::mmdb::sample::file();
    let geo = open(GeoArgs { hosting_asns: Some(list.clone()), ..args_for(sample.path().to_owned()) });
    let hosting = |ip: &str| geo.lookup(ip.parse().expect("IP address"), 0, |location| location.hosting);
    assert_eq!((hosting("1.1.1.1"), hosting("8.8.8.8")), (Some(true), Some(false)));
    replace(&list, b"# comment\nAS15169 Google\n");
    assert!(geo.check());
    assert_eq!((hosting("1.1.1.1"), hosting("8.8.8.8")), (Some(false), Some(true)));
    replace(&list, b"not a list\n");
    assert!(!geo.check());
    assert_eq!(hosting("8.8.8.8"), Some(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_task_loads_replaced_file() {
    let dir = TempDir::new().expect("temp dir");
    let path = dir.path().join("city.mmdb");
    std::fs::write(&path, city_file("Berlin", 1)).expect("write");
    let geo = open(GeoArgs { geo_check_interval: Duration::from_millis(10), ..args_for(path.clone()) });
    let watch = tokio::spawn(geo.clone().watch(|_| ()));
    replace(&path, &city_file("Hamburg", 2));
    let loaded = async {
        while city(&geo).as_deref() != Some("Hamburg") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), loaded).await.expect("loaded in time");
    watch.abort();
}

#[test]
fn lookups_succeed_during_reloads() {
    const RELOADS: u64 = 200;
    let dir = TempDir::new().expect("temp dir");
    let (geo, path) = start(&dir);
    let (done, lookups) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let seen = city(&geo).expect("always some city");
                    assert!(CITIES.contains(&seen.as_str()), "{seen}");
                    lookups.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..RELOADS {
            let bytes = city_file(CITIES[(round % 2) as usize], round + 10);
            match round % 4 {
                0 => replace(&path, &bytes[..bytes.len() / 2]),
                1 => std::fs::write(&path, &bytes).expect("write"),
                2 => drop(std::fs::remove_file(&path)),
                _ => replace(&path, &bytes),
            }
            geo.check();
        }
        done.store(true, Ordering::Relaxed);
    });
    let counts = geo.reload_status();
    assert_eq!((counts.loaded, counts.rejected), (1 + RELOADS / 2, RELOADS / 4));
    assert!(lookups.load(Ordering::Relaxed) > 1_000);
}

/// Resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("read /proc (Linux)");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS line");
    line.split_whitespace().nth(1).expect("value").parse().expect("number")
}

#[test]
fn reloading_does_not_leak_memory() {
    let dir = TempDir::new().expect("temp dir");
    let (geo, path) = start(&dir);
    let large = |epoch| {
        let filler = Value::from("x".repeat(2 << 20).as_str());
        let record = Value::map([("city", Value::from("Berlin")), ("filler", filler)]);
        Builder::new("dbip-city").build_epoch(epoch).add(NET, &record).finish()
    };
    let reload = |epoch| {
        replace(&path, &large(epoch));
        assert!(geo.check());
    };
    (0..5).for_each(reload);
    let before = resident_kib();
    (5..65).for_each(reload);
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 50 << 10, "grew by {grown} KiB after 60 reloads of 2 MiB");
}
