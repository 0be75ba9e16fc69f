//! F15: whatever happens to the files, look-ups go on with the last good data and never fail.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lookup_svc::geo::writer::{Builder, Value};
use lookup_svc::geo::{Geo, GeoArgs, GeoError};
use tempfile::TempDir;

const NET: &str = "192.0.2.0/24";
const CITIES: [&str; 2] = ["Berlin", "A city with a much longer name, so that the size changes"];

fn city_file(city: &str, epoch: u64) -> Vec<u8> {
    let record = Value::map([("city", Value::from(city)), ("country_code", Value::from("DE"))]);
    Builder::new("dbip-city").build_epoch(epoch).add(NET, &record).finish()
}

fn replace(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes).expect("writes");
    std::fs::rename(new, path).expect("renames");
}

fn open(args: GeoArgs) -> Geo {
    Geo::open(&args).expect("loads")
}

fn one(path: PathBuf) -> GeoArgs {
    GeoArgs { geo_db: vec![path], ..GeoArgs::default() }
}

fn city(geo: &Geo) -> Option<String> {
    geo.lookup("192.0.2.1".parse().expect("address"), 0, |place| place.city.map(str::to_owned))
}

fn start(folder: &TempDir) -> (Geo, PathBuf) {
    let path = folder.path().join("city.mmdb");
    std::fs::write(&path, city_file("Berlin", 1)).expect("writes");
    (open(one(path.clone())), path)
}

#[test]
fn a_replaced_file_is_taken_over_and_its_build_time_shown() {
    let folder = TempDir::new().expect("folder");
    let (geo, path) = start(&folder);
    assert!(!geo.check(), "nothing changed");
    replace(&path, &city_file("Hamburg", 2));
    assert!(geo.check());
    assert_eq!((city(&geo).as_deref(), geo.databases()[0].build_epoch), (Some("Hamburg"), 2));
}

#[test]
fn every_kind_of_broken_file_is_refused_and_the_old_one_stays() {
    let folder = TempDir::new().expect("folder");
    let (geo, path) = start(&folder);
    let good = city_file("Hamburg", 2);
    let useless = Builder::new("other").add(NET, &Value::map([("colour", Value::from("blue"))])).finish();
    let broken: Vec<Vec<u8>> = vec![
        Vec::new(),
        good[..good.len() / 2].to_vec(),
        good[..good.len() - 1].to_vec(),
        b"<!DOCTYPE html><html>no database</html>".to_vec(),
        [0x1f, 0x8b, 8, 0, 0, 0].to_vec(),
        vec![0; 4096],
        useless,
    ];
    for (index, bytes) in broken.iter().enumerate() {
        replace(&path, bytes);
        assert!(!geo.check(), "broken file {index} was taken");
        assert_eq!(city(&geo).as_deref(), Some("Berlin"), "broken file {index}");
        assert_eq!(geo.reload_counts().refused, index as u64 + 1);
        geo.check();
        assert_eq!(geo.reload_counts().refused, index as u64 + 1, "refused once per change");
    }
    replace(&path, &good);
    assert!(geo.check());
    assert_eq!(city(&geo).as_deref(), Some("Hamburg"));
}

#[test]
fn no_flipped_bit_panics_or_breaks_a_look_up() {
    let folder = TempDir::new().expect("folder");
    let (geo, path) = start(&folder);
    let good = city_file("Hamburg", 2);
    for position in 0..good.len() {
        let mut bytes = good.clone();
        bytes[position] ^= 1 << (position % 8);
        replace(&path, &bytes);
        geo.check();
        for ip in ["192.0.2.1", "0.0.0.0", "255.255.255.255", "::", "2001:db8::1", "ffff::"] {
            geo.lookup(ip.parse().expect("address"), 0, |place| format!("{place:?}"));
        }
    }
}

#[test]
fn an_overwrite_in_place_is_safe_and_is_seen_when_it_is_complete() {
    let folder = TempDir::new().expect("folder");
    let (geo, path) = start(&folder);
    let new = city_file("Hamburg", 2);
    std::fs::write(&path, &new[..40]).expect("truncates in place");
    assert!(!geo.check());
    assert_eq!(city(&geo).as_deref(), Some("Berlin"));
    std::fs::write(&path, &new).expect("completes in place");
    assert!(geo.check());
    assert_eq!(city(&geo).as_deref(), Some("Hamburg"));
    // Same size, perhaps the same time stamp: a second write right after the first.
    std::fs::write(&path, city_file("Potsdam", 3)).expect("overwrites");
    geo.check();
    assert_eq!(city(&geo).as_deref(), Some("Potsdam"));
}

#[test]
fn a_file_that_is_written_while_it_is_read_is_never_half_believed() {
    let folder = TempDir::new().expect("folder");
    let (geo, path) = start(&folder);
    let enough = AtomicBool::new(false);
    let last = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 10.. {
                let city = CITIES[(round % 2) as usize];
                let mut file = std::fs::File::create(&path).expect("truncates in place");
                for piece in city_file(city, round).chunks(32) {
                    file.write_all(piece).expect("writes");
                }
                if enough.load(Ordering::Relaxed) {
                    return city;
                }
            }
            unreachable!("the rounds have no end")
        });
        let end = Instant::now() + Duration::from_secs(30);
        while geo.reload_counts().refused < 10 && Instant::now() < end {
            geo.check();
            let seen = city(&geo).expect("always some city");
            assert!(CITIES.contains(&seen.as_str()), "{seen}");
        }
        enough.store(true, Ordering::Relaxed);
        writer.join().expect("the writer ends")
    });
    assert!(geo.reload_counts().refused >= 10, "half files were met");
    geo.check();
    assert_eq!(city(&geo).as_deref(), Some(last), "what is complete is taken");
}

#[test]
fn a_deleted_file_keeps_its_data_until_another_takes_its_place() {
    let folder = TempDir::new().expect("folder");
    std::fs::write(folder.path().join("dbip-2026-10.mmdb"), city_file("October", 1)).expect("writes");
    let geo = open(one(folder.path().to_owned()));
    std::fs::remove_file(folder.path().join("dbip-2026-10.mmdb")).expect("removes");
    assert!(!geo.check());
    assert_eq!(city(&geo).as_deref(), Some("October"));
    std::fs::write(folder.path().join("dbip-2026-11.mmdb"), city_file("November", 2)).expect("writes");
    assert!(geo.check());
    assert_eq!((city(&geo).as_deref(), geo.databases().len()), (Some("November"), 1));
}

#[test]
fn at_the_start_a_broken_file_is_skipped_if_another_loads() {
    let folder = TempDir::new().expect("folder");
    let (bad, good) = (folder.path().join("a.mmdb"), folder.path().join("b.mmdb"));
    std::fs::write(&bad, b"broken").expect("writes");
    std::fs::write(&good, city_file("Berlin", 1)).expect("writes");
    let both = GeoArgs { geo_db: vec![bad.clone(), good], ..GeoArgs::default() };
    assert_eq!(city(&open(both)).as_deref(), Some("Berlin"));
    assert!(matches!(Geo::open(&one(bad)), Err(GeoError::NothingLoaded { .. })));
    assert!(matches!(
        Geo::open(&one(folder.path().join("missing.mmdb"))),
        Err(GeoError::NothingLoaded { .. })
    ));
}

#[test]
fn an_empty_folder_shows_the_sample_until_the_first_download_arrives() {
    let folder = TempDir::new().expect("folder");
    let geo = open(one(folder.path().to_owned()));
    assert_eq!(geo.databases()[0].name, "built-in sample");
    std::fs::write(folder.path().join(".hidden.mmdb"), city_file("Hidden", 1)).expect("writes");
    assert!(!geo.check(), "a download in progress is not read");
    std::fs::write(folder.path().join("city.mmdb"), city_file("Hamburg", 1)).expect("writes");
    assert!(geo.check());
    assert_eq!(city(&geo).as_deref(), Some("Hamburg"));
}

#[test]
fn the_lists_are_replaced_at_run_time_and_a_broken_one_is_refused() {
    let folder = TempDir::new().expect("folder");
    let list = folder.path().join("hosting.txt");
    std::fs::write(&list, "13335\tCloudflare\n").expect("writes");
    let geo = open(GeoArgs { hosting_asns: Some(list.clone()), ..GeoArgs::default() });
    let hosting = |ip: &str| geo.lookup(ip.parse().expect("address"), 0, |place| place.hosting);
    assert_eq!((hosting("1.1.1.1"), hosting("8.8.8.8")), (Some(true), Some(false)));
    replace(&list, b"# moved\nAS15169 Google\n");
    assert!(geo.check());
    assert_eq!((hosting("1.1.1.1"), hosting("8.8.8.8")), (Some(false), Some(true)));
    replace(&list, b"not a list\n");
    assert!(!geo.check());
    assert_eq!(hosting("8.8.8.8"), Some(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_background_task_takes_over_a_new_file() {
    let folder = TempDir::new().expect("folder");
    let path = folder.path().join("city.mmdb");
    std::fs::write(&path, city_file("Berlin", 1)).expect("writes");
    let geo = open(GeoArgs { geo_check_interval: Duration::from_millis(10), ..one(path.clone()) });
    let watch = tokio::spawn(geo.clone().watch());
    replace(&path, &city_file("Hamburg", 2));
    let seen = async {
        while city(&geo).as_deref() != Some("Hamburg") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), seen).await.expect("taken over");
    watch.abort();
}

#[test]
fn a_thousand_reloads_under_load_lose_no_look_up() {
    const RELOADS: u64 = 1_000;
    let folder = TempDir::new().expect("folder");
    let (geo, path) = start(&folder);
    let (done, looked) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let seen = city(&geo).expect("always some city");
                    assert!(CITIES.contains(&seen.as_str()), "{seen}");
                    looked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..RELOADS {
            let bytes = city_file(CITIES[(round % 2) as usize], round + 10);
            match round % 4 {
                0 => replace(&path, &bytes[..bytes.len() / 2]),
                1 => std::fs::write(&path, &bytes).expect("overwrites in place"),
                2 => drop(std::fs::remove_file(&path)),
                _ => replace(&path, &bytes),
            }
            geo.check();
        }
        done.store(true, Ordering::Relaxed);
    });
    let counts = geo.reload_counts();
    assert_eq!((counts.loaded, counts.refused), (1 + RELOADS / 2, RELOADS / 4));
    assert!(looked.load(Ordering::Relaxed) > 1_000);
}

/// Resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("has it");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[test]
fn reloading_does_not_grow_the_process() {
    let folder = TempDir::new().expect("folder");
    let (geo, path) = start(&folder);
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
    let before = resident();
    (5..155).for_each(reload);
    let grown = resident().saturating_sub(before);
    assert!(grown < 100 << 10, "{grown} KiB more after 150 reloads of 2 MiB");
}
