//! What the log and the error at start say about missing, invalid and replaced geo files.

use std::fmt::{Debug, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use geo::{Geo, GeoArgs};
use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

/// Collects the events of one thread, one line each.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    /// Runs `action` and returns what it logged.
    fn of(action: impl FnOnce()) -> String {
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), action);
        let text = log.0.lock().expect("not poisoned");
        text.clone()
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().expect("not poisoned").push_str(&(line.0 + "\n"));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

fn write_city(path: &Path, city: &str) {
    let record = Value::map([("city", Value::from(city))]);
    std::fs::write(path, Builder::new("dbip-city").add("81.2.69.0/24", &record).finish()).expect("write");
}

fn args<const N: usize>(paths: [PathBuf; N]) -> GeoArgs {
    GeoArgs { geo_db: paths.into(), ..GeoArgs::default() }
}

/// The error at start.
fn start_error(args: &GeoArgs) -> String {
    Geo::open(args).err().expect("nothing can be loaded").to_string()
}

#[test]
fn start_error_names_file_and_reason() {
    let dir = TempDir::new().expect("temp dir");
    let (missing, invalid) = (dir.path().join("typo.mmdb"), dir.path().join("invalid.mmdb"));
    let log = Log::of(|| {
        assert_eq!(start_error(&args([missing.clone()])), format!("{} was not found", missing.display()));
    });
    assert!(!log.contains("typo.mmdb"), "the error alone reports it: {log}");
    let no_directory = dir.path().join("typo/geo");
    assert_eq!(
        start_error(&args([no_directory.clone()])),
        format!("{} was not found", no_directory.display())
    );
    std::fs::write(&invalid, b"<html>").expect("write");
    let expected = format!("{} is not a valid MMDB file: ", invalid.display());
    for path in [invalid.clone(), dir.path().to_owned()] {
        let error = start_error(&args([path]));
        assert!(error.starts_with(&expected), "{error}");
    }
    let list = dir.path().join("list.txt");
    let with_list = GeoArgs { hosting_asns: Some(list.clone()), ..GeoArgs::default() };
    assert_eq!(start_error(&with_list), format!("{} was not found", list.display()));
    std::fs::write(&list, "64500 Example\nnot a network\n").expect("write");
    let error = start_error(&with_list);
    assert!(error.starts_with(&format!("{} is invalid at line 2", list.display())), "{error}");
}

#[test]
fn mistyped_path_is_logged_once_as_not_found() {
    let dir = TempDir::new().expect("temp dir");
    let (good, missing) = (dir.path().join("good.mmdb"), dir.path().join("typo.mmdb"));
    write_city(&good, "Berlin");
    let log = Log::of(|| {
        let geo = Geo::open(&args([missing.clone(), good])).expect("load geo data");
        assert!(!geo.check() && !geo.check());
        write_city(&missing, "Hamburg");
        assert!(geo.check(), "loaded once it exists");
    });
    let warnings: Vec<_> = log.lines().filter(|line| line.starts_with("WARN")).collect();
    assert!(matches!(warnings[..], [line] if line.contains("typo.mmdb error=was not found")), "{log}");
}

#[test]
fn broken_link_in_a_directory_is_reported_once_until_its_file_exists() {
    let dir = TempDir::new().expect("temp dir");
    let file = dir.path().join("city.data");
    std::os::unix::fs::symlink(&file, dir.path().join("link.mmdb")).expect("link");
    let log = Log::of(|| {
        let geo = Geo::open(&args([dir.path().to_owned()])).expect("starts with the built-in data");
        assert!(!geo.check() && !geo.check());
        let reason = "link.mmdb is a link to a file that does not exist";
        assert_eq!(geo.reload_status().rejections, [reason]);
        write_city(&file, "Hamburg");
        assert!(geo.check(), "loaded once it exists");
        assert!(geo.reload_status().rejections.is_empty());
    });
    assert_eq!(log.matches("is a link to a file that does not exist").count(), 1, "{log}");
}

#[test]
fn empty_directory_is_logged_once() {
    let dir = TempDir::new().expect("temp dir");
    let log = Log::of(|| {
        let geo = Geo::open(&args([dir.path().to_owned()])).expect("starts with the built-in data");
        assert!(!geo.check() && !geo.check());
        write_city(&dir.path().join("city.mmdb"), "Hamburg");
        assert!(geo.check(), "loaded once it exists");
    });
    let warnings: Vec<_> = log.lines().filter(|line| line.starts_with("WARN")).collect();
    assert!(matches!(warnings[..], [line] if line.contains("has no .mmdb file yet")), "{log}");
}

#[test]
fn replaced_file_is_not_logged_as_kept() {
    let dir = TempDir::new().expect("temp dir");
    let (october, november) = (dir.path().join("2026-10.mmdb"), dir.path().join("2026-11.mmdb"));
    write_city(&october, "October");
    let geo = Geo::open(&args([dir.path().to_owned()])).expect("load geo data");
    let log = Log::of(|| {
        std::fs::remove_file(&october).expect("remove");
        write_city(&november, "November");
        assert!(geo.check());
    });
    assert!(!log.contains("keeps_previous") && log.contains("replaced"), "{log}");
    let log = Log::of(|| {
        std::fs::remove_file(&november).expect("remove");
        assert!(!geo.check() && !geo.check());
    });
    assert_eq!(log.matches("keeps_previous=true").count(), 1, "{log}");
}

#[test]
fn database_with_a_newer_build_is_logged_as_not_used() {
    let dir = TempDir::new().expect("temp dir");
    for name in ["october.mmdb", "november.mmdb"] {
        let record = Value::map([("city", Value::from(name))]);
        let epoch = u64::from(name == "november.mmdb");
        let file = Builder::new("dbip-city").build_epoch(epoch).add("81.2.69.0/24", &record).finish();
        std::fs::write(dir.path().join(name), file).expect("write");
    }
    let log = Log::of(|| drop(Geo::open(&args([dir.path().to_owned()])).expect("usable")));
    let line = log.lines().find(|line| line.contains("geo database not used")).expect("a line");
    assert!(
        line.starts_with("WARN") && line.contains("october.mmdb") && line.contains("november.mmdb"),
        "{line}"
    );
}
