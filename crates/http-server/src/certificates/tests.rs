//! Tests replaced, broken and expired files.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration, time::UNIX_EPOCH};

use tempfile::TempDir;
use tokio::sync::watch;

use super::*;
use crate::{Tls, TlsArgs};

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
    Certificates::load([(folder.join("tls.crt"), folder.join("tls.key"))].into_iter(), None)
}

fn serves(certificates: &Certificates, name: &str) -> bool {
    certificates.pairs[0].value().is_some_and(|loaded| loaded.is_for(name))
}

/// What `action` logs.
fn log(action: impl FnOnce()) -> String {
    let file = tempfile::NamedTempFile::new().expect("log");
    let writer = Arc::new(file.reopen().expect("log"));
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
    tracing::subscriber::with_default(subscriber, action);
    fs::read_to_string(file.path()).expect("log")
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
    let warnings = log(|| {
        certificates.reload();
        certificates.reload();
    });
    assert_eq!(warnings.matches("certificate rejected").count(), 1, "{warnings}");
    assert!(warnings.contains("do not belong together"), "{warnings}");
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
    let time = |text: &str| text.parse::<Timestamp>().expect("time").into();
    let summary = certificates.summary(time("2031-02-19T12:00:00Z")).expect("no certificate is missing");
    assert!(summary.ends_with("tls.crt expires in 9 days (2031-03-01)"), "{summary}");
    let summary = certificates.summary(time("2031-03-01T00:00:01Z")).expect("no certificate is missing");
    assert!(summary.ends_with("tls.crt has EXPIRED (2031-03-01)"), "{summary}");
}

/// A certificate and its key, as the text of one file.
fn combined(name: &str) -> String {
    let (certificate, key) = pem(name, 2040);
    key + &certificate
}

#[test]
fn managed_file_may_be_missing_and_is_used_once_it_exists() {
    let folder = TempDir::new().expect("folder");
    let file = folder.path().join("certificate.pem");
    let managed = ManagedCertificate::new(file.clone(), "waiting for the CA");
    let certificates = Certificates::load([].into_iter(), Some(managed.clone())).expect("may be missing");
    assert_eq!(certificates.summary(SystemTime::now()), Err("waiting for the CA".to_owned()));
    fs::write(&file, "garbage").expect("write");
    certificates.reload();
    assert!(certificates.summary(SystemTime::now()).is_err());
    fs::write(&file, combined("a.example")).expect("write");
    certificates.reload();
    assert!(serves(&certificates, "a.example"));
    managed.set_status("renewal failed");
    let summary = certificates.summary(SystemTime::now()).expect("no certificate is missing");
    assert!(
        summary.contains("certificate.pem expires in ") && summary.ends_with("; renewal failed"),
        "{summary}"
    );
    let unusable = folder.path().join("unusable.pem");
    fs::write(&unusable, "garbage").expect("write");
    let managed = ManagedCertificate::new(unusable, "waiting");
    let certificates = Certificates::load([].into_iter(), Some(managed)).expect("is replaced later");
    assert_eq!(certificates.summary(SystemTime::now()), Err("waiting".to_owned()));
}

#[tokio::test]
async fn missing_managed_certificate_is_not_ready_until_it_exists() {
    let folder = TempDir::new().expect("folder");
    let file = folder.path().join("certificate.pem");
    let managed = ManagedCertificate::new(file.clone(), "waiting for the CA");
    let args = TlsArgs { managed: Some(managed.clone()), ..TlsArgs::default() };
    let tls = Tls::load(&args).expect("may be missing").expect("TLS");
    let (report, mut reports) = watch::channel(Ok(String::new()));
    // Only a change of the status makes it read the file within the test.
    let interval = Duration::from_secs(3600);
    let follow = tokio::spawn(tls.follow_files(interval, move |state| drop(report.send(state))));
    let failed = |text| move |state: &Result<String, String>| *state == Err(String::from(text));
    reports.wait_for(failed("waiting for the CA")).await.expect("a report");
    managed.set_status("the order failed");
    reports.wait_for(failed("the order failed")).await.expect("a report");
    fs::write(&file, combined("a.example")).expect("write");
    managed.set_status("");
    let is_ready = |state: &Result<String, String>| {
        state.as_ref().is_ok_and(|detail| detail.contains("certificate.pem expires in "))
    };
    reports.wait_for(is_ready).await.expect("a report");
    follow.abort();
}

#[test]
fn pem_with_key_and_chain_in_one_text_is_checked() {
    let loaded = LoadedCertificate::from_pem(combined("a.example").as_bytes(), None).expect("valid");
    assert!(loaded.is_for("a.example") && !loaded.is_for("b.example") && !loaded.is_for("not a name"));
    assert!(loaded.validity.contains(&SystemTime::now()));
    let mismatch = pem("a.example", 2040).0 + &pem("a.example", 2040).1;
    assert!(LoadedCertificate::from_pem(mismatch.as_bytes(), None).is_err());
}

#[test]
fn unchanged_certificate_is_not_replaced_after_a_read_error() {
    let folder = TempDir::new().expect("folder");
    let pair = pem("a.example", 2040);
    write(folder.path(), &pair);
    let certificates = load(folder.path()).expect("valid pair");
    let log = log(|| {
        fs::remove_file(folder.path().join("tls.key")).expect("remove");
        certificates.reload();
        write(folder.path(), &pair);
        certificates.reload();
    });
    assert!(log.contains("key removed") && log.contains("the content in use again"), "{log}");
    assert!(!log.contains("certificate loaded"), "{log}");
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn certificate_der(year: i32) -> Vec<u8> {
    let mut params = rcgen::CertificateParams::new(["a.example".to_owned()]).expect("valid name");
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 3, 1);
    let key = rcgen::KeyPair::generate().expect("key");
    params.self_signed(&key).expect("certificate").der().to_vec()
}

#[test]
fn both_time_formats_are_read() {
    // From 2050 on, certificates use the format with four digits of the year.
    for (year, seconds) in [(2031, 1_930_089_600), (2050, 2_529_705_600)] {
        assert_eq!(validity(&certificate_der(year)), Some(at(978_307_200)..at(seconds)));
    }
    assert_eq!(time((UTC_TIME, b"990101000000Z")), Some(at(915_148_800)));
}

#[test]
fn truncated_or_changed_certificate_never_panics() {
    let der = certificate_der(2031);
    for length in 0..der.len() {
        let _ = validity(&der[..length]);
    }
    for position in 0..der.len() {
        let mut changed = der.clone();
        changed[position] ^= 0xFF;
        let _ = validity(&changed);
    }
    assert_eq!(validity(&der[..100]), None);
}
