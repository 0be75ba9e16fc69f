//! Runs the script that updates the built-in country data, with a package of its own.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use serde_json::Value as Json;
use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};

const LICENSE: &str = "Licensed under a Creative Commons Attribution 4.0 International License.";
const PACKAGE_JSON: &str = r#"{"version": "2.3.2026061719", "license": "CC0-1.0"}"#;

fn database() -> Vec<u8> {
    let record = Value::map([("country_code", Value::from("NL"))]);
    Builder::new("country").build_epoch(1_781_725_900).add("193.0.6.0/24", &record).finish()
}

/// Runs the script with a package of these files. Returns its directory, too.
fn run(files: &[(&str, &[u8])]) -> (TempDir, Output) {
    let dir = TempDir::new().expect("temp dir");
    for name in ["data", "package"] {
        fs::create_dir(dir.path().join(name)).expect("directory");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("built-in-geo.py");
    fs::copy(script, dir.path().join("built-in-geo.py")).expect("copy");
    for (name, bytes) in files {
        fs::write(dir.path().join("package").join(name), bytes).expect("write");
    }
    let status = Command::new("tar").current_dir(&dir).args(["-czf", "package.tgz", "package"]).status();
    assert!(status.expect("tar").success());
    let output = Command::new("python3").current_dir(&dir).args(["built-in-geo.py", "package.tgz"]).output();
    (dir, output.expect("python3"))
}

fn sha256sum(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().expect("sha256sum");
    String::from_utf8(output.stdout).expect("UTF-8").split(' ').next().expect("checksum").to_owned()
}

#[test]
fn database_is_compressed_and_recorded() {
    let database = database();
    let (dir, output) = run(&[
        ("package.json", PACKAGE_JSON.as_bytes()),
        ("NRO_LICENSE", LICENSE.as_bytes()),
        ("geo-whois-asn-country.mmdb", &database),
    ]);
    assert!(output.status.success(), "{output:?}");
    let compressed = fs::read(dir.path().join("data/built-in-geo.mmdb.gz")).expect("data");
    let mut bytes = Vec::new();
    GzDecoder::new(&compressed[..]).read_to_end(&mut bytes).expect("gzip");
    assert_eq!(bytes, database);
    let record = fs::read(dir.path().join("data/built-in-geo.json")).expect("record");
    let record: Json = serde_json::from_slice(&record).expect("JSON");
    assert_eq!((&record["version"], &record["date"]), (&"2.3.2026061719".into(), &"2026-06-17".into()));
    assert_eq!(record["sha256"], sha256sum(&dir.path().join("package/geo-whois-asn-country.mmdb")));
    assert_eq!(record["package_sha256"], sha256sum(&dir.path().join("package.tgz")));
}

#[test]
fn package_with_other_license_is_rejected() {
    let other = PACKAGE_JSON.replace("CC0-1.0", "CC-BY-SA-4.0");
    let database = database();
    let assert_rejected = |files: &[(&'static str, &[u8])]| {
        let all = [files, &[("geo-whois-asn-country.mmdb", &database[..])]].concat();
        let (dir, output) = run(&all);
        assert!(!output.status.success(), "{output:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains("has other licenses than before"), "{message}");
        assert!(!dir.path().join("data/built-in-geo.json").exists());
    };
    assert_rejected(&[("package.json", other.as_bytes()), ("NRO_LICENSE", LICENSE.as_bytes())]);
    assert_rejected(&[("package.json", PACKAGE_JSON.as_bytes()), ("NRO_LICENSE", b"All rights reserved.")]);
    let usual = [("package.json", PACKAGE_JSON.as_bytes()), ("NRO_LICENSE", LICENSE.as_bytes())];
    assert_rejected(&[&usual[..], &[("MORE_LICENSE", b"No commercial use.")]].concat());
}
