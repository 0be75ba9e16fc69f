//! Runs the script that updates the built-in country data, with packages of its own.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use geo::{Geo, GeoArgs};
use serde_json::Value as Json;
use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};

const LICENSE: &str = "Licensed under a Creative Commons Attribution 4.0 International License.";
const PACKAGE_JSON: &str = r#"{"version": "2.3.2026061719", "license": "CC0-1.0"}"#;

fn database(networks: &[(&str, &str)]) -> Vec<u8> {
    let add = |builder: Builder, (network, country): &(&str, &str)| {
        builder.add(network, &Value::map([("country_code", Value::from(*country))]))
    };
    let builder = Builder::new("country").build_epoch(1_781_725_900);
    networks.iter().fold(builder, add).finish()
}

/// The files of a package with the usual licenses.
fn package<'a>(name: &'a str, bytes: &'a [u8]) -> Vec<(&'a str, &'a [u8])> {
    vec![("package.json", PACKAGE_JSON.as_bytes()), ("NRO_LICENSE", LICENSE.as_bytes()), (name, bytes)]
}

fn database_package(database: &[u8]) -> Vec<(&str, &[u8])> {
    package("geo-whois-asn-country.mmdb", database)
}

fn operators_package(operators: &str) -> Vec<(&str, &[u8])> {
    package("asn-country-ipv6-num.csv", operators.as_bytes())
}

/// Runs the script with packages of these files. Returns its directory, too.
fn run(packages: [&[(&str, &[u8])]; 2]) -> (TempDir, Output) {
    let dir = TempDir::new().expect("temp dir");
    fs::create_dir(dir.path().join("data")).expect("directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("built-in-geo.py");
    fs::copy(script, dir.path().join("built-in-geo.py")).expect("copy");
    for (archive, files) in ["database.tgz", "operators.tgz"].into_iter().zip(packages) {
        fs::create_dir(dir.path().join("package")).expect("directory");
        for (name, bytes) in files {
            fs::write(dir.path().join("package").join(name), bytes).expect("write");
        }
        let status = Command::new("tar").current_dir(&dir).args(["-czf", archive, "package"]).status();
        assert!(status.expect("tar").success());
        fs::remove_dir_all(dir.path().join("package")).expect("remove");
    }
    let arguments = ["built-in-geo.py", "database.tgz", "operators.tgz"];
    let output = Command::new("python3").current_dir(&dir).args(arguments).output();
    (dir, output.expect("python3"))
}

fn sha256sum(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().expect("sha256sum");
    String::from_utf8(output.stdout).expect("UTF-8").split(' ').next().expect("checksum").to_owned()
}

/// The database that the script has written.
fn written(dir: &TempDir) -> Vec<u8> {
    let compressed = fs::read(dir.path().join("data/built-in-geo.mmdb.gz")).expect("data");
    let mut bytes = Vec::new();
    GzDecoder::new(&compressed[..]).read_to_end(&mut bytes).expect("gzip");
    bytes
}

#[test]
fn database_is_compressed_and_recorded() {
    let database = database(&[("193.0.6.0/24", "NL")]);
    let (dir, output) = run([&database_package(&database), &operators_package("")]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(written(&dir), database);
    let record = fs::read(dir.path().join("data/built-in-geo.json")).expect("record");
    let record: Json = serde_json::from_slice(&record).expect("JSON");
    assert_eq!((&record["version"], &record["date"]), (&"2.3.2026061719".into(), &"2026-06-17".into()));
    assert_eq!(record["operators_version"], "2.3.2026061719");
    let path = dir.path().join("geo-whois-asn-country.mmdb");
    fs::write(&path, &database).expect("write");
    assert_eq!(record["sha256"], sha256sum(&path));
    assert_eq!(record["package_sha256"], sha256sum(&dir.path().join("database.tgz")));
    assert_eq!(record["operators_package_sha256"], sha256sum(&dir.path().join("operators.tgz")));
}

#[test]
fn file_of_a_release_is_used_as_it_is_and_others_are_rejected() {
    let database = database(&[("193.0.6.0/24", "NL"), ("2400:4000::/22", "AU")]);
    let (dir, _) = run([&database_package(&database), &operators_package("")]);
    let run = |name: &str| {
        fs::write(dir.path().join(name), &database).expect("write");
        Command::new("python3").current_dir(&dir).args(["built-in-geo.py", name]).output().expect("python3")
    };
    let output = run("user-country.mmdb");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(written(&dir), database);
    let record = fs::read(dir.path().join("data/built-in-geo.json")).expect("record");
    let record: Json = serde_json::from_slice(&record).expect("JSON");
    assert_eq!(
        (&record["file"], &record["license"], &record["date"]),
        (&"user-country.mmdb".into(), &"PDDL-1.0".into(), &"2026-06-17".into())
    );
    assert_eq!(record["sha256"], sha256sum(&dir.path().join("user-country.mmdb")));
    let output = run("geolite2-country.mmdb");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("other licenses"));
}

#[test]
fn ipv6_network_in_australia_gets_country_of_its_operator() {
    let database = database(&[
        ("1.0.0.0/24", "AU"),
        ("2400:4000::/22", "AU"),
        ("2400:8000::/22", "AU"),
        ("2a00::/16", "BD"),
        ("2a01::/16", "NL"),
    ]);
    let range = |first: &str, last: &str, country: &str| {
        let number = |ip: &str| ip.parse::<std::net::Ipv6Addr>().expect("IP address").to_bits();
        format!("{},{},{country}\n", number(first), number(last))
    };
    let operators = [
        range("2400:4000:8::", "2400:4000:f:ffff:ffff:ffff:ffff:ffff", "BD"),
        range("2400:4000:10::", "2400:4000:10::7", "NL"),
        // No record of the database has this country.
        range("2400:4000:20::", "2400:4000:2f:ffff:ffff:ffff:ffff:ffff", "TH"),
        range("2400:8000::", "2400:83ff:ffff:ffff:ffff:ffff:ffff:ffff", "NL"),
        range("2a00::", "2a01:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "AU"),
    ];
    let (dir, output) = run([&database_package(&database), &operators_package(&operators.concat())]);
    assert!(output.status.success(), "{output:?}");
    let path = dir.path().join("result.mmdb");
    fs::write(&path, written(&dir)).expect("write");
    let geo = Geo::open(&GeoArgs { geo_db: vec![path], ..GeoArgs::default() }).expect("valid database");
    for (ip, country) in [
        ("1.0.0.1", "AU"),
        ("2400:4000:7:ffff::", "AU"),
        ("2400:4000:8::", "BD"),
        ("2400:4000:f:ffff:ffff:ffff:ffff:ffff", "BD"),
        ("2400:4000:10::7", "NL"),
        ("2400:4000:10::8", "AU"),
        ("2400:4000:20::1", "AU"),
        ("2400:43ff::1", "AU"),
        ("2400:83ff::1", "NL"),
        ("2a00::1", "BD"),
        ("2a01::1", "NL"),
    ] {
        let found =
            geo.lookup(ip.parse().expect("IP address"), 0, |location| location.country.map(str::to_owned));
        assert_eq!(found.as_deref(), Some(country), "{ip}");
    }
}

#[test]
fn package_with_other_license_is_rejected() {
    let other = PACKAGE_JSON.replace("CC0-1.0", "CC-BY-SA-4.0");
    let database = database(&[("193.0.6.0/24", "NL")]);
    let (usual_database, usual_operators) = (database_package(&database), operators_package(""));
    let assert_rejected = |packages: [&[(&str, &[u8])]; 2]| {
        let (dir, output) = run(packages);
        assert!(!output.status.success(), "{output:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains("has other licenses than before"), "{message}");
        assert!(!dir.path().join("data/built-in-geo.json").exists());
    };
    for unusual in [
        ("package.json", other.as_bytes()),
        ("NRO_LICENSE", b"All rights reserved."),
        ("MORE_LICENSE", b"No commercial use."),
    ] {
        // A later file replaces an earlier one with the same name.
        assert_rejected([&[&usual_database[..], &[unusual]].concat(), &usual_operators]);
        assert_rejected([&usual_database, &[&usual_operators[..], &[unusual]].concat()]);
    }
}
