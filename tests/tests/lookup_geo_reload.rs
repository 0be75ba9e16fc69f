//! A geo database that is replaced, broken, overwritten and deleted under load (F15): old data goes on, nobody notices.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use e2e::loadgen::Load;
use e2e::lookup::{Answer, Lookup, PATIENCE, Stack};
use e2e::tools::project;
use e2e::wait::eventually;
use quota_client::wire::Scope;

const GENEROUS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];

fn sample() -> Vec<u8> {
    fs::read(project().join("lookup-svc/data/sample.mmdb")).unwrap()
}

/// The sample with another city of the same length in the place of Berlin.
fn renamed(city: &[u8; 6]) -> Vec<u8> {
    let mut bytes = sample();
    let places: Vec<_> = (0..bytes.len() - 6).filter(|at| &bytes[*at..at + 6] == b"Berlin").collect();
    assert!(!places.is_empty(), "the sample knows Berlin");
    for at in places {
        bytes[at..at + 6].copy_from_slice(city);
    }
    bytes
}

/// Puts a new file in the place of the old one, as geo-update does.
fn replace(file: &Path, bytes: &[u8]) {
    let new = file.with_extension("new");
    fs::write(&new, bytes).unwrap();
    fs::rename(new, file).unwrap();
}

async fn city(lookup: &Lookup, key: &str) -> String {
    let answer = Answer::of(lookup.ask(key).header("x-forwarded-for", "192.0.2.9")).await;
    answer.body["city"].as_str().unwrap_or_default().to_owned()
}

async fn refused(lookup: &Lookup) -> f64 {
    let metrics = lookup.metrics().await;
    let lines =
        metrics.lines().filter(|line| line.starts_with("geo_database_loads") && line.contains("refused"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Waits until a request shows this city.
async fn shows(lookup: &Lookup, key: &str, name: &str) {
    let what = format!("{name} is seen");
    eventually(PATIENCE, what, async || (city(lookup, key).await == name).then_some(())).await;
}

/// Requests without a pause; the outcome is the status and whether the database was there.
fn load(lookup: &Lookup, key: &str) -> Load {
    let ask = lookup.asking(key);
    Load::start(4, move || {
        let request = ask().header("x-forwarded-for", "192.0.2.9");
        async move {
            let answer = Answer::of(request).await;
            let known = answer.body["city"].as_str().is_some_and(|city| city.starts_with("Cty-"));
            format!("{} {known}", answer.status)
        }
    })
}

/// Thirty new databases, one after the other; memory stays as it is.
async fn renew(lookup: &Lookup, key: &str, file: &Path) {
    let mut before = 0;
    for round in 1..=30 {
        let name = format!("Cty-{round:02}");
        replace(file, &renamed(name.as_bytes().try_into().unwrap()));
        shows(lookup, key, &name).await;
        if round == 5 {
            before = lookup.service.rss();
        }
    }
    let grown = lookup.service.rss().saturating_sub(before);
    assert!(grown < 10 << 20, "{grown} bytes more after 25 reloads");
}

/// Files that are no database, put in place of the good one; then one overwritten in place, and none at all.
async fn damage(lookup: &Lookup, key: &str, file: &Path) {
    let whole = renamed(b"Cty-31");
    let broken: [&[u8]; 4] = [&whole[..whole.len() / 2], b"", b"<html>not found</html>", &[0; 4096]];
    for bytes in broken {
        let before = refused(lookup).await;
        replace(file, bytes);
        eventually(PATIENCE, "it is refused", async || (refused(lookup).await > before).then_some(())).await;
        assert_eq!(city(lookup, key).await, "Cty-30", "the old one stays");
    }
    // A file that is mapped into memory would now end the process with SIGBUS.
    let before = refused(lookup).await;
    fs::write(file, b"short").unwrap();
    eventually(PATIENCE, "it is refused", async || (refused(lookup).await > before).then_some(())).await;
    assert_eq!(city(lookup, key).await, "Cty-30");
    fs::remove_file(file).unwrap();
    assert_eq!(city(lookup, key).await, "Cty-30");
}

#[tokio::test]
async fn replacing_and_breaking_the_database_under_load_fails_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("city.mmdb");
    fs::write(&file, renamed(b"Cty-00")).unwrap();
    let flags = ["--geo-db", file.to_str().unwrap(), "--geo-check-interval", "20ms"];
    let stack = Stack::start(&GENEROUS, &flags).await;
    let (lookup, key) = (&stack.lookup, stack.key(Scope::Full).await.secret);
    assert_eq!(city(lookup, &key).await, "Cty-00");
    let load = load(lookup, &key);
    renew(lookup, &key, &file).await;
    damage(lookup, &key, &file).await;
    replace(&file, &renamed(b"Cty-32"));
    shows(lookup, &key, "Cty-32").await;
    let report = load.stop().await;
    assert_eq!(report.count("200 true"), report.samples.len(), "{report}");
}
