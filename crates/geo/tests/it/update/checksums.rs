//! Checksums published by providers, and checksums pinned by the operator.

use std::path::Path;

use geo::update::{UpdateError, UpdateResult};
use tempfile::TempDir;

use super::server::{Response, Server};
use super::support::*;

/// Providers that publish checksums, with their required arguments.
const PROVIDERS: [(&str, &[&str]); 2] = [
    ("maxmind", &["--maxmind-account-id", "1", "--maxmind-license-key", "k"]),
    ("ipinfo", &["--ipinfo-token", "t"]),
];

/// A provider that responds to checksum requests with `sum`.
async fn server_with_checksum(sum: &Response) -> Server {
    let (sum, file) = (sum.clone(), database("New"));
    Server::start(move |request, _| match is_checksum_path(&request.path) {
        true => sum.clone(),
        false => Response::tagged(request, &file, "\"v1\""),
    })
    .await
}

fn is_checksum_path(path: &str) -> bool {
    path.contains(".sha256") || path.contains("/checksums")
}

/// A checksum in the provider's format.
fn checksum_response(provider: &str, hex: &str) -> Response {
    match provider {
        "maxmind" => Response::ok(format!("{hex}  city_20260101.tar.gz\n").as_bytes()),
        _ => Response::ok(format!("{{\"checksums\": {{\"md5\": \"x\", \"sha256\": \"{hex}\"}}}}").as_bytes()),
    }
}

/// Updates `city.mmdb`, with `server` as the provider.
async fn update_city(provider: (&str, &[&str]), server: &Server, dir: &Path) -> Run {
    let url = server.url("");
    let common = ["--provider-url", &url, "--accept-license", "--editions", "city"];
    run(provider.0, dir, &[&common, provider.1].concat()).await
}

#[tokio::test]
async fn published_checksum_mismatch_is_rejected() {
    for provider in PROVIDERS {
        let server = server_with_checksum(&checksum_response(provider.0, &sha256(b"other"))).await;
        let dir = dir_with_old_file();
        let run = update_city(provider, &server, dir.path()).await;
        assert!(matches!(run.error(), UpdateError::Checksum), "{}: {}", provider.0, run.error());
        assert_eq!(server.requests().len(), 2, "checksum and file");
        assert_unchanged(dir.path());
    }
}

#[tokio::test]
async fn invalid_checksum_is_rejected_before_download() {
    let correct = sha256(&database("New"));
    for provider in PROVIDERS {
        let responses = [
            checksum_response(provider.0, &correct[1..]),
            checksum_response(provider.0, &"g".repeat(64)),
            checksum_response(provider.0, ""),
            Response::ok(b"<!DOCTYPE html><html>Please sign in</html>").with("content-type", "text/html"),
            Response::ok(b"{\"checksums\": {\"sha256\": \""),
            Response::ok(b"{\"checksums\": {\"md5\": \"x\"}}"),
            Response::ok(b"{\"checksums\": {\"sha256\": 5}}"),
            Response::ok(b"null"),
            Response::ok(b""),
            Response::ok(b"\xff\xfe"),
            Response::ok(&[b' '; 20_000]),
            Response::status(204),
            Response::status(304),
        ];
        for (index, response) in responses.iter().enumerate() {
            let server = server_with_checksum(response).await;
            let dir = dir_with_old_file();
            let run = update_city(provider, &server, dir.path()).await;
            let rejected = run.result.is_err() && matches!(run.error(), UpdateError::ChecksumFormat);
            assert!(rejected, "{} {index}: {}", provider.0, run.all_text());
            assert_eq!(server.requests().len(), 1, "{} {index}", provider.0);
            assert_unchanged(dir.path());
        }
    }
}

#[tokio::test]
async fn missing_checksum_fails_maxmind_but_not_ipinfo() {
    for status in [404, 410] {
        let server = server_with_checksum(&Response::status(status)).await;
        let dir = dir_with_old_file();
        let maxmind = update_city(PROVIDERS[0], &server, dir.path()).await;
        assert!(matches!(maxmind.error(), UpdateError::NotFound), "{}", maxmind.error());
        assert_unchanged(dir.path());
        update_city(PROVIDERS[1], &server, dir.path()).await.result.expect("update succeeds");
        assert_eq!(city(&dir.path().join("city.mmdb")), "New");
    }
}

#[tokio::test]
async fn checksum_401_403_and_500_fail_the_update() {
    for provider in PROVIDERS {
        for status in [401, 403, 500] {
            let server = server_with_checksum(&Response::status(status)).await;
            let dir = dir_with_old_file();
            let run = update_city(provider, &server, dir.path()).await;
            let expected =
                matches!(run.error(), UpdateError::CredentialsRejected(401 | 403) | UpdateError::Status(500));
            assert!(expected, "{} {status}: {}", provider.0, run.error());
            assert_unchanged(dir.path());
        }
    }
}

#[tokio::test]
async fn new_published_checksum_is_enforced_despite_304() {
    for provider in PROVIDERS {
        let file = database("New");
        let server = Server::start(move |request, previous| match is_checksum_path(&request.path) {
            true if previous == 0 => checksum_response(provider.0, &sha256(&file)),
            true => checksum_response(provider.0, &sha256(b"other")),
            false => Response::tagged(request, &file, "\"v1\""),
        })
        .await;
        let dir = TempDir::new().expect("temp dir");
        update_city(provider, &server, dir.path()).await.result.expect("update succeeds");
        let run = update_city(provider, &server, dir.path()).await;
        let rejected = run.result.is_err() && matches!(run.error(), UpdateError::Checksum);
        assert!(rejected, "{}: {}", provider.0, run.all_text());
        assert_eq!(city(&dir.path().join("city.mmdb")), "New", "installed file is unchanged");
    }
}

#[tokio::test]
async fn pinned_checksum_mismatch_is_rejected() {
    let server = Server::start(|_, _| Response::ok(&database("New"))).await;
    let dir = dir_with_old_file();
    let wrong = run(&server.url("city.mmdb"), dir.path(), &["--sha256", &sha256(b"other")]).await;
    assert!(matches!(wrong.error(), UpdateError::Checksum));
    assert_unchanged(dir.path());
    let right = run(&server.url("city.mmdb"), dir.path(), &["--sha256", &sha256(&database("New"))]).await;
    right.result.expect("update succeeds");
    assert_eq!(city(&dir.path().join("city.mmdb")), "New");
}

#[tokio::test]
async fn pin_added_or_changed_after_install_is_enforced() {
    let server = Server::start(|request, _| Response::tagged(request, &database("New"), "\"v1\"")).await;
    let (url, right, wrong) = (server.url("city.mmdb"), sha256(&database("New")), sha256(b"other"));
    for first_pin in [&[][..], &["--sha256", &right]] {
        let dir = TempDir::new().expect("temp dir");
        run(&url, dir.path(), first_pin).await.result.expect("update succeeds");
        let changed = run(&url, dir.path(), &["--sha256", &wrong]).await;
        let rejected = changed.result.is_err() && matches!(changed.error(), UpdateError::Checksum);
        assert!(rejected, "{}", changed.all_text());
        assert_eq!(city(&dir.path().join("city.mmdb")), "New", "installed file is unchanged");
        let requests = server.requests().len();
        let again = run(&url, dir.path(), &["--sha256", &right]).await.result.expect("update succeeds");
        assert!(matches!(again[..], [UpdateResult::Unchanged]), "{again:?}");
        assert_eq!(server.requests().len(), requests, "no request if the installed file matches");
    }
}

#[tokio::test]
async fn file_is_downloaded_unconditionally_after_pin_change() {
    let server = Server::start(|request, previous| match request.header("if-none-match") {
        Some(_) => Response::status(304),
        None => Response::ok(&database(if previous == 0 { "Old" } else { "New" })).with("etag", "\"same\""),
    })
    .await;
    let dir = TempDir::new().expect("temp dir");
    for name in ["Old", "New"] {
        let pin = sha256(&database(name));
        let run = run(&server.url("city.mmdb"), dir.path(), &["--sha256", &pin]).await;
        assert!(
            matches!(run.result.expect("update succeeds")[..], [UpdateResult::Installed]),
            "{}",
            run.output
        );
        assert_eq!(city(&dir.path().join("city.mmdb")), name);
    }
}

#[tokio::test]
async fn invalid_pin_is_rejected_before_any_request() {
    let dir = dir_with_old_file();
    let sum = sha256(b"x");
    for (source, pin) in
        [("http://127.0.0.1:1/x.mmdb", "abc"), ("dbip-lite", &sum), ("maxmind", &sum), ("ipinfo", &sum)]
    {
        let run = run(source, dir.path(), &["--sha256", pin]).await;
        assert!(matches!(run.error(), UpdateError::Usage(_)), "{source}: {}", run.error());
        assert!(run.error().to_string().contains("--sha256"), "{}", run.error());
    }
    assert_unchanged(dir.path());
}
