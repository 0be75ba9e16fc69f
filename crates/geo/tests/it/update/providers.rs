//! Providers, their required arguments, and the target directory.

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use geo::update::{UpdateError, UpdateResult};
use tempfile::TempDir;

use super::server::{Response, Server};
use super::support::*;

#[tokio::test]
async fn dbip_falls_back_to_previous_month_then_is_unchanged() {
    let (this_month, packed) = (Mutex::new(None), gz(&database("New")));
    let server = Server::start(move |request, _| {
        // The first request is for this month: its path ends like `2026-10.mmdb.gz`, which has 15 characters.
        let mut this_month = this_month.lock().expect("not poisoned");
        let suffix = this_month.get_or_insert_with(|| request.path[request.path.len() - 15..].to_owned());
        match request.path.ends_with(suffix.as_str()) {
            true => Response::status(404),
            false => Response::tagged(request, &packed, "\"v1\""),
        }
    })
    .await;
    let dir = TempDir::new().expect("temp dir");
    let extra = ["--provider-url", &server.url("")];
    let run_1 = run("dbip-lite", dir.path(), &extra).await;
    assert_eq!(run_1.result.expect("update succeeds").len(), 2, "{}", run_1.output);
    assert_eq!(
        listing(dir.path()),
        (vec!["dbip-asn-lite.mmdb".to_owned(), "dbip-city-lite.mmdb".to_owned()], vec![])
    );
    assert_eq!(city(&dir.path().join("dbip-city-lite.mmdb")), "New");
    let mode = dir.path().join("dbip-city-lite.mmdb").metadata().expect("file exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "readable by other users");
    let run_2 = run("dbip-lite", dir.path(), &extra).await;
    assert!(
        run_2.result.expect("update succeeds").iter().all(|result| matches!(result, UpdateResult::Unchanged))
    );
    assert_eq!(server.requests().len(), 8, "two files, two months, two runs");
    std::fs::write(dir.path().join("dbip-city-lite.mmdb"), b"damaged").expect("write");
    run("dbip-lite", dir.path(), &extra).await.result.expect("update succeeds");
    assert_eq!(city(&dir.path().join("dbip-city-lite.mmdb")), "New", "a damaged file is downloaded again");
}

#[tokio::test]
async fn maxmind_download_is_skipped_while_checksum_matches() {
    let archive = tar_gz("GeoLite2_20260101/GeoLite2-City.mmdb", &database("New"));
    let sum = format!("{}  GeoLite2-City_20260101.tar.gz\n", sha256(&archive));
    let server = Server::start(move |request, _| match request.path.as_str() {
        "/geoip/databases/GeoLite2-City/download?suffix=tar.gz.sha256" => Response::ok(sum.as_bytes()),
        "/geoip/databases/GeoLite2-City/download?suffix=tar.gz" => Response::ok(&archive),
        path => panic!("{path}"),
    })
    .await;
    let dir = TempDir::new().expect("temp dir");
    let key = dir.path().join("key");
    std::fs::write(&key, "s3cret-key\n").expect("write");
    let url = server.url("");
    let extra = [
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
    let run_1 = run("maxmind", dir.path(), &extra).await;
    run_1.result.as_ref().expect("update succeeds");
    assert_eq!(city(&dir.path().join("GeoLite2-City.mmdb")), "New");
    assert_eq!(server.requests()[1].header("authorization"), Some("Basic NDI6czNjcmV0LWtleQ=="));
    run("maxmind", dir.path(), &extra).await.result.expect("update succeeds");
    assert_eq!(server.requests().len(), 3, "the second run requests only the checksum");
    assert!(!run_1.all_text().contains("s3cret"));
}

#[tokio::test]
async fn ipinfo_edition_in_a_folder_is_downloaded() {
    let file = database("New");
    let server = Server::start(move |request, _| match request.path.as_str() {
        "/data/free/country_asn.mmdb?token=t" => Response::ok(&file),
        _ => Response::status(404),
    })
    .await;
    let dir = TempDir::new().expect("temp dir");
    let url = server.url("");
    let args = ["--provider-url", &url, "--accept-license", "--ipinfo-token", "t", "--editions"];
    let free = run("ipinfo", dir.path(), &[&args[..], &["free/country_asn"]].concat()).await;
    free.result.expect("update succeeds");
    assert_eq!(listing(dir.path()), (vec!["free-country_asn.mmdb".to_owned()], vec![]));
    let outside = run("ipinfo", dir.path(), &[&args[..], &["../country_asn"]].concat()).await;
    assert!(matches!(outside.error(), UpdateError::Usage(_)), "{}", outside.error());
}

#[tokio::test]
async fn missing_argument_or_invalid_source_is_a_usage_error() {
    let dir = TempDir::new().expect("temp dir");
    for (source, extra, mentioned) in [
        ("maxmind", &["--maxmind-account-id", "1", "--maxmind-license-key", "k"][..], "--accept-license"),
        ("ipinfo", &["--ipinfo-token", "t"], "--accept-license"),
        ("maxmind", &["--accept-license"], "--maxmind-account-id"),
        ("ipinfo", &["--accept-license"], "--ipinfo-token"),
        ("ftp://example.com/x.mmdb", &[], "URL"),
        ("something", &[], "URL"),
    ] {
        let run = run(source, dir.path(), extra).await;
        assert!(
            matches!(run.error(), UpdateError::Usage(text) if text.contains(mentioned)),
            "{source}: {}",
            run.error()
        );
    }
    assert_eq!(listing(dir.path()), (vec![], vec![]));
}

#[tokio::test]
async fn stale_files_are_deleted_and_second_run_is_locked_out() {
    let server = Server::start(|_, _| Response::ok(&database("New"))).await;
    let dir = TempDir::new().expect("temp dir");
    std::fs::write(dir.path().join(".geo-update-abc123.part"), b"half").expect("write");
    run(&server.url("city.mmdb"), dir.path(), &[]).await.result.expect("update succeeds");
    assert_eq!(listing(dir.path()), (vec!["city.mmdb".to_owned()], vec![]));
    let lock = std::fs::File::open(dir.path().join(".geo-update.lock")).expect("file exists");
    lock.lock().expect("lock");
    let locked = run(&server.url("city.mmdb"), dir.path(), &[]).await;
    assert!(matches!(locked.error(), UpdateError::Locked), "{}", locked.all_text());
}
