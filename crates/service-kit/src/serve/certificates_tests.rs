//! Tests replaced, broken and expired files.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A certificate for `name` and its key, as PEM.
fn pem(name: &str, expiry_year: i32) -> (String, String) {
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).expect("valid name");
    params.not_after = rcgen::date_time_ymd(expiry_year, 3, 1);
    let key = rcgen::KeyPair::generate().expect("key");
    (params.self_signed(&key).expect("certificate").pem(), key.serialize_pem())
}

fn write(folder: &Path, (certificate, key): &(String, String)) {
    fs::create_dir_all(folder).expect("folder");
    fs::write(folder.join("tls.crt"), certificate).expect("write");
    fs::write(folder.join("tls.key"), key).expect("write");
}

fn load(folder: &Path) -> anyhow::Result<Certificates> {
    Certificates::load([(folder.join("tls.crt"), folder.join("tls.key"))].into_iter())
}

fn serves(certificates: &Certificates, name: &str) -> bool {
    let name = ServerName::try_from(name).expect("valid name");
    certificates.loaded[0].load().is_for(&name)
}

#[test]
fn replaced_files_are_used() {
    let folder = TempDir::new().expect("folder");
    write(folder.path(), &pem("a.example", 2040));
    let certificates = load(folder.path()).expect("valid pair");
    write(folder.path(), &pem("b.example", 2040));
    certificates.reload();
    assert!(serves(&certificates, "b.example") && !serves(&certificates, "a.example"));
}

#[test]
fn link_swapped_to_older_files_is_followed() {
    let folder = TempDir::new().expect("folder");
    for name in ["b.example", "a.example"] {
        write(&folder.path().join(name), &pem(name, 2040));
    }
    // As the kubelet does: the files are in a folder behind a link, which is replaced by a rename.
    let (link, new) = (folder.path().join("current"), folder.path().join("new"));
    symlink("a.example", &link).expect("link");
    let certificates = load(&link).expect("valid pair");
    symlink("b.example", &new).expect("link");
    fs::rename(&new, &link).expect("rename");
    certificates.reload();
    assert!(serves(&certificates, "b.example"));
}

#[test]
fn unusable_pair_is_rejected_and_old_one_stays() {
    let folder = TempDir::new().expect("folder");
    let (old, other) = (pem("a.example", 2040), pem("b.example", 2040));
    let (garbage, empty) = ("garbage".to_owned(), String::new());
    let text = "-----BEGIN CERTIFICATE-----\nZ2FyYmFnZQ==\n-----END CERTIFICATE-----\n".to_owned();
    write(folder.path(), &old);
    let certificates = load(folder.path()).expect("valid pair");
    for broken in [
        (other.0.clone(), old.1.clone()),
        (old.0.clone(), other.1.clone()),
        (garbage.clone(), old.1.clone()),
        (old.0.clone(), garbage),
        (empty.clone(), empty),
        (text, old.1.clone()),
    ] {
        write(folder.path(), &broken);
        assert!(load(folder.path()).is_err(), "{broken:?}");
        certificates.reload();
        assert!(serves(&certificates, "a.example"));
    }
    fs::remove_file(folder.path().join("tls.key")).expect("remove");
    certificates.reload();
    assert!(serves(&certificates, "a.example"));
    write(folder.path(), &other);
    certificates.reload();
    assert!(serves(&certificates, "b.example"), "a valid pair is used again");
}

#[test]
fn error_is_reported_once_per_change() {
    let folder = TempDir::new().expect("folder");
    let (old, other) = (pem("a.example", 2040), pem("b.example", 2040));
    write(folder.path(), &old);
    let certificates = load(folder.path()).expect("valid pair");
    write(folder.path(), &(other.0, old.1));
    assert!(certificates.files[0].load_if_changed().is_err());
    assert!(certificates.files[0].load_if_changed().is_ok_and(|loaded| loaded.is_none()));
}

#[test]
fn load_error_names_the_files_and_the_reason() {
    let folder = TempDir::new().expect("folder");
    write(folder.path(), &(pem("a.example", 2040).0, pem("b.example", 2040).1));
    let error = format!("{:#}", load(folder.path()).expect_err("mismatch"));
    for part in ["tls.crt", "tls.key", "do not belong together"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn summary_has_days_left_or_says_expired() {
    let folder = TempDir::new().expect("folder");
    write(folder.path(), &pem("a.example", 2031));
    let certificates = load(folder.path()).expect("valid pair");
    let time = |text| humantime::parse_rfc3339(text).expect("time");
    let summary = certificates.summary(time("2031-02-19T12:00:00Z"));
    assert!(summary.ends_with("tls.crt expires in 9 days (2031-03-01)"), "{summary}");
    let summary = certificates.summary(time("2031-03-01T00:00:01Z"));
    assert!(summary.ends_with("tls.crt has EXPIRED (2031-03-01)"), "{summary}");
}
