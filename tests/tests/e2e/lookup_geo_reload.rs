//! Replacing, corrupting, overwriting or deleting the geo database under load fails no request. Without a
//! valid file, the old data stays in use. A directory that can't be read is logged.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use quota_client::wire::Scope;
use testkit::loadgen::Load;
use testkit::lookup::{JsonResponse, Lookup, Stack, WAIT_TIMEOUT};
use testkit::mmdb::sample;
use testkit::wait::eventually;

const HIGH_LIMITS: [&str; 4] = ["--burst-limit", "65535", "--daily-limit", "1000000"];

/// The sample database with `city` instead of Berlin.
fn renamed(city: &[u8; 6]) -> Vec<u8> {
    let mut bytes = sample::build();
    let offsets: Vec<_> = (0..bytes.len() - 6).filter(|at| &bytes[*at..at + 6] == b"Berlin").collect();
    assert!(!offsets.is_empty(), "sample contains Berlin");
    for at in offsets {
        bytes[at..at + 6].copy_from_slice(city);
    }
    bytes
}

/// Replaces the file atomically, like geo-update.
fn replace(file: &Path, bytes: &[u8]) {
    let new = file.with_extension("new");
    fs::write(&new, bytes).unwrap();
    fs::rename(new, file).unwrap();
}

async fn city(lookup: &Lookup, key: &str) -> String {
    let response = JsonResponse::fetch(lookup.get_ip(key).header("x-forwarded-for", "81.2.69.9")).await;
    response.body["city"].as_str().unwrap_or_default().to_owned()
}

/// How often lookup-svc has rejected a database file, from its metrics.
async fn rejected_loads(lookup: &Lookup) -> f64 {
    let metrics = lookup.metrics().await;
    let lines =
        metrics.lines().filter(|line| line.starts_with("geo_database_loads") && line.contains("refused"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Waits until a response has this city.
async fn wait_city(lookup: &Lookup, key: &str, name: &str) {
    let what = format!("city is {name}");
    eventually(WAIT_TIMEOUT, what, async || (city(lookup, key).await == name).then_some(())).await;
}

/// Continuous requests. The outcome is the status and whether the city came from the test database.
fn load(lookup: &Lookup, key: &str) -> Load {
    let next_request = lookup.ip_requests(key);
    Load::start(4, move || {
        let request = next_request().header("x-forwarded-for", "81.2.69.9");
        async move {
            let response = JsonResponse::fetch(request).await;
            let from_database = response.body["city"].as_str().is_some_and(|city| city.starts_with("Cty-"));
            format!("{} {from_database}", response.status)
        }
    })
}

/// Loads 30 new databases one after the other. Memory must not grow.
async fn reload_repeatedly(lookup: &Lookup, key: &str, file: &Path) {
    let mut before = 0;
    for round in 1..=30 {
        let name = format!("Cty-{round:02}");
        replace(file, &renamed(name.as_bytes().try_into().unwrap()));
        wait_city(lookup, key, &name).await;
        if round == 5 {
            before = lookup.service.rss();
        }
    }
    let growth = lookup.service.rss().saturating_sub(before);
    assert!(growth < 10 << 20, "memory grew by {growth} bytes in 25 reloads");
}

/// Replaces the database with invalid files, overwrites it in place and deletes it. The old data must stay in use.
async fn corrupt(lookup: &Lookup, key: &str, file: &Path) {
    let valid = renamed(b"Cty-31");
    let invalid: [&[u8]; 4] = [&valid[..valid.len() / 2], b"", b"<html>not found</html>", &[0; 4096]];
    for bytes in invalid {
        let before = rejected_loads(lookup).await;
        replace(file, bytes);
        eventually(WAIT_TIMEOUT, "file is rejected", async || {
            (rejected_loads(lookup).await > before).then_some(())
        })
        .await;
        assert_eq!(city(lookup, key).await, "Cty-30", "old data stays in use");
    }
    let before = rejected_loads(lookup).await;
    // Truncates the file in place. If it were memory-mapped, the process would die with SIGBUS.
    fs::write(file, b"short").unwrap();
    eventually(WAIT_TIMEOUT, "file is rejected", async || {
        (rejected_loads(lookup).await > before).then_some(())
    })
    .await;
    assert_eq!(city(lookup, key).await, "Cty-30");
    fs::remove_file(file).unwrap();
    assert_eq!(city(lookup, key).await, "Cty-30");
}

#[tokio::test]
async fn geo_file_changes_under_load_fail_no_request() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("city.mmdb");
    fs::write(&file, renamed(b"Cty-00")).unwrap();
    let flags = ["--geo-db", file.to_str().unwrap(), "--geo-check-interval", "20ms"];
    let stack = Stack::start(&HIGH_LIMITS, &flags).await;
    let (lookup, key) = (&stack.lookup, stack.key_with_scope(Scope::Full).await.secret);
    assert_eq!(city(lookup, &key).await, "Cty-00");
    let load = load(lookup, &key);
    reload_repeatedly(lookup, &key, &file).await;
    corrupt(lookup, &key, &file).await;
    replace(&file, &renamed(b"Cty-32"));
    wait_city(lookup, &key, "Cty-32").await;
    let report = load.stop().await;
    assert_eq!(report.count("200 true"), report.samples.len(), "{report}");
}

/// What `/docs` says about the geo data must contain `text`.
async fn wait_docs(lookup: &Lookup, text: &str) {
    eventually(WAIT_TIMEOUT, format!("/docs contains {text:?}"), async || {
        let page = lookup.get("/docs").send().await.unwrap().text().await.unwrap();
        page.contains(text).then_some(())
    })
    .await;
}

#[tokio::test]
async fn unreadable_directory_is_logged_and_loaded_once_readable() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("city.mmdb"), sample::build()).unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o000)).unwrap();
    // Root may read every directory, unless the process lacks these capabilities.
    let without_privileges = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"];
    let wrapper = if fs::read_dir(dir.path()).is_ok() { &without_privileges[..] } else { &[] };
    let flags = ["--geo-db", dir.path().to_str().unwrap(), "--geo-check-interval", "20ms"];
    let lookup = Lookup::start_under(wrapper, "http://127.0.0.1:9", &flags, &[]).await;
    wait_docs(&lookup, "Only the built-in country data is in use").await;
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    wait_docs(&lookup, "Where no other database has the country").await;
    let log = lookup.service.logs();
    let errors: Vec<_> = log.lines().filter(|line| line.contains("geo directory can't be read")).collect();
    assert!(
        matches!(errors[..], [line] if line.contains("ERROR") && line.contains("Permission denied")),
        "{log}"
    );
}
