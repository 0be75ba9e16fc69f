//! Providers, what they need, and the target folder.

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use lookup_svc::geo_update::{Outcome, UpdateError};
use tempfile::TempDir;

use crate::server::{Reply, Server};
use crate::support::*;

#[tokio::test]
async fn dbip_falls_back_to_last_month_and_is_unchanged_the_second_time() {
    let (first, packed) = (Mutex::new(None), gz(&database("New")));
    let server = Server::start(move |request, _| {
        let mut month = first.lock().expect("not poisoned");
        let this = month.get_or_insert_with(|| request.path[request.path.len() - 15..].to_owned());
        match request.path.ends_with(this.as_str()) {
            true => Reply::status(404),
            false => Reply::tagged(request, &packed, "\"v1\""),
        }
    })
    .await;
    let folder = TempDir::new().expect("folder");
    let more = ["--provider-url", &server.url("")];
    let run_1 = run("dbip-lite", folder.path(), &more).await;
    assert_eq!(run_1.result.expect("works").len(), 2, "{}", run_1.output);
    assert_eq!(
        listing(folder.path()),
        (vec!["dbip-asn-lite.mmdb".to_owned(), "dbip-city-lite.mmdb".to_owned()], vec![])
    );
    assert_eq!(city(&folder.path().join("dbip-city-lite.mmdb")), "New");
    let mode = folder.path().join("dbip-city-lite.mmdb").metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "another user may read it");
    let run_2 = run("dbip-lite", folder.path(), &more).await;
    assert!(run_2.result.expect("works").iter().all(|outcome| matches!(outcome, Outcome::Unchanged(_))));
    assert_eq!(server.requests().len(), 8, "two files, two months, two rounds");
    std::fs::write(folder.path().join("dbip-city-lite.mmdb"), b"damaged").expect("writes");
    run("dbip-lite", folder.path(), &more).await.result.expect("works");
    assert_eq!(city(&folder.path().join("dbip-city-lite.mmdb")), "New", "a damaged file is fetched anew");
}

#[tokio::test]
async fn maxmind_is_checked_against_its_checksum_and_skipped_while_that_is_the_same() {
    let archive = tar_gz("GeoLite2_20260101/GeoLite2-City.mmdb", &database("New"));
    let sum = format!("{}  GeoLite2-City_20260101.tar.gz\n", sha256(&archive));
    let server = Server::start(move |request, _| match request.path.as_str() {
        "/geoip/databases/GeoLite2-City/download?suffix=tar.gz.sha256" => Reply::ok(sum.as_bytes()),
        "/geoip/databases/GeoLite2-City/download?suffix=tar.gz" => Reply::ok(&archive),
        path => panic!("{path}"),
    })
    .await;
    let folder = TempDir::new().expect("folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "s3cret-key\n").expect("writes");
    let url = server.url("");
    let more = [
        "--provider-url",
        &url,
        "--accept-license",
        "--maxmind-account-id",
        "42",
        "--maxmind-license-key-file",
        key.to_str().expect("UTF-8"),
        "--editions",
        "GeoLite2-City",
    ];
    let run_1 = run("maxmind", folder.path(), &more).await;
    run_1.result.as_ref().expect("works");
    assert_eq!(city(&folder.path().join("GeoLite2-City.mmdb")), "New");
    assert_eq!(server.requests()[1].header("authorization"), Some("Basic NDI6czNjcmV0LWtleQ=="));
    run("maxmind", folder.path(), &more).await.result.expect("works");
    assert_eq!(server.requests().len(), 3, "the second time only the checksum is asked for");
    assert!(!run_1.all_text().contains("s3cret"));
}

#[tokio::test]
async fn keyed_providers_need_the_licence_and_the_key() {
    let folder = TempDir::new().expect("folder");
    for (source, more, missing) in [
        ("maxmind", &["--maxmind-account-id", "1", "--maxmind-license-key", "k"][..], "--accept-license"),
        ("ipinfo", &["--ipinfo-token", "t"], "--accept-license"),
        ("maxmind", &["--accept-license"], "--maxmind-account-id"),
        ("ipinfo", &["--accept-license"], "--ipinfo-token"),
        ("ftp://example.com/x.mmdb", &[], "URL"),
        ("something", &[], "URL"),
    ] {
        let run = run(source, folder.path(), more).await;
        assert!(
            matches!(run.error(), UpdateError::Usage(text) if text.contains(missing)),
            "{source}: {}",
            run.error()
        );
    }
    assert_eq!(listing(folder.path()), (vec![], vec![]));
}

#[tokio::test]
async fn leftovers_of_a_killed_run_are_removed_and_two_runs_do_not_meet() {
    let server = Server::start(|_, _| Reply::ok(&database("New"))).await;
    let folder = TempDir::new().expect("folder");
    std::fs::write(folder.path().join(".geo-update-abc123.part"), b"half").expect("writes");
    run(&server.url("city.mmdb"), folder.path(), &[]).await.result.expect("works");
    assert_eq!(listing(folder.path()), (vec!["city.mmdb".to_owned()], vec![]));
    let lock = std::fs::File::open(folder.path().join(".geo-update.lock")).expect("there");
    lock.lock().expect("free");
    let busy = run(&server.url("city.mmdb"), folder.path(), &[]).await;
    assert!(matches!(busy.error(), UpdateError::Busy), "{}", busy.all_text());
}
