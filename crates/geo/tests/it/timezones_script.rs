//! Runs the script that updates the built-in timezone data, with packages of its own.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use tempfile::TempDir;
use testkit::tzif::fixed_offset;

/// A directory with the script.
fn set_up() -> TempDir {
    let dir = TempDir::new().expect("temp dir");
    fs::create_dir(dir.path().join("data")).expect("directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("timezones.py");
    fs::copy(script, dir.path().join("timezones.py")).expect("copy");
    dir
}

/// Runs the script with a package of this version.
fn run(dir: &TempDir, version: &str, flags: &[&str]) -> Output {
    let zoneinfo = dir.path().join("tzdata/zoneinfo");
    fs::create_dir_all(zoneinfo.join("Europe")).expect("directory");
    let write = |name: &str, bytes: &[u8]| fs::write(zoneinfo.join(name), bytes).expect("write");
    write("tzdata.zi", format!("# version {version}\n# more\n").as_bytes());
    write("zone.tab", b"DE\t+5230+01322\tEurope/Berlin\n");
    write("Europe/Berlin", &fixed_offset(1));
    write("Europe/__init__.py", b"");
    let zip = ["-m", "zipfile", "-c", "package.whl", "tzdata"];
    assert!(Command::new("python3").current_dir(dir).args(zip).status().expect("python3").success());
    let mut command = Command::new("python3");
    command.current_dir(dir).args(["timezones.py", "package.whl"]).args(flags).output().expect("python3")
}

#[test]
fn timezones_and_their_version_are_written() {
    let dir = set_up();
    let output = run(&dir, "2026f", &[]);
    assert!(output.status.success(), "{output:?}");
    let data = |name: &str| fs::read(dir.path().join("data").join(name)).expect("data");
    assert_eq!(data("zone.tab"), b"DE\t+5230+01322\tEurope/Berlin\n");
    let archive = data("timezones.tar.gz");
    let mut files = HashMap::new();
    for entry in tar::Archive::new(GzDecoder::new(&archive[..])).entries().expect("archive") {
        let mut entry = entry.expect("entry");
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("content");
        files.insert(entry.path().expect("path").display().to_string(), bytes);
    }
    let expected = [("+VERSION", b"2026f".to_vec()), ("Europe/Berlin", fixed_offset(1))];
    assert_eq!(files, expected.map(|(name, bytes)| (name.to_owned(), bytes)).into());
    assert!(run(&dir, "2026f", &[]).status.success() && data("timezones.tar.gz") == archive, "reproducible");
}

#[test]
fn check_fails_if_the_package_is_newer() {
    let dir = set_up();
    assert!(run(&dir, "2026f", &[]).status.success());
    let output = run(&dir, "2026f", &["--check"]);
    assert!(output.status.success(), "{output:?}");
    let output = run(&dir, "2026g", &["--check"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && message.contains("tzdata 2026g is available, 2026f is built in"),
        "{message}"
    );
}
