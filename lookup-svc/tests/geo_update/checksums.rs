//! Checksums: those that providers publish, and the one that the operator pins.

use std::path::Path;

use lookup_svc::geo_update::{Outcome, UpdateError};
use tempfile::TempDir;

use crate::server::{Reply, Server};
use crate::support::*;

/// The providers that publish a sum, with what they need.
const PUBLISHING: [(&str, &[&str]); 2] = [
    ("maxmind", &["--maxmind-account-id", "1", "--maxmind-license-key", "k"]),
    ("ipinfo", &["--ipinfo-token", "t"]),
];

/// A provider whose answer to the question for the sum is `sum`.
async fn publishing(sum: &Reply) -> Server {
    let (sum, file) = (sum.clone(), database("New"));
    Server::start(move |request, _| match is_for_the_sum(&request.path) {
        true => sum.clone(),
        false => Reply::tagged(request, &file, "\"v1\""),
    })
    .await
}

fn is_for_the_sum(path: &str) -> bool {
    path.contains(".sha256") || path.contains("/checksums")
}

/// A sum in the provider's format.
fn sum(provider: &str, hex: &str) -> Reply {
    match provider {
        "maxmind" => Reply::ok(format!("{hex}  city_20260101.tar.gz\n").as_bytes()),
        _ => Reply::ok(format!("{{\"checksums\": {{\"md5\": \"x\", \"sha256\": \"{hex}\"}}}}").as_bytes()),
    }
}

/// Brings `city.mmdb` up to date from `server` in the provider's place.
async fn update_city(provider: (&str, &[&str]), server: &Server, folder: &Path) -> Run {
    let url = server.url("");
    let common = ["--provider-url", &url, "--accept-license", "--editions", "city"];
    run(provider.0, folder, &[&common, provider.1].concat()).await
}

#[tokio::test]
async fn what_differs_from_the_published_sum_is_refused() {
    for provider in PUBLISHING {
        let server = publishing(&sum(provider.0, &sha256(b"other"))).await;
        let folder = folder_with_old();
        let run = update_city(provider, &server, folder.path()).await;
        assert!(matches!(run.error(), UpdateError::Checksum), "{}: {}", provider.0, run.error());
        assert_eq!(server.requests().len(), 2, "the sum and the file");
        assert_untouched(folder.path());
    }
}

#[tokio::test]
async fn an_answer_that_is_no_sum_is_refused_before_anything_is_downloaded() {
    let right = sha256(&database("New"));
    for provider in PUBLISHING {
        let answers = [
            sum(provider.0, &right[1..]),
            sum(provider.0, &"g".repeat(64)),
            sum(provider.0, ""),
            Reply::ok(b"<!DOCTYPE html><html>Please sign in</html>").with("content-type", "text/html"),
            Reply::ok(b"{\"checksums\": {\"sha256\": \""),
            Reply::ok(b"{\"checksums\": {\"md5\": \"x\"}}"),
            Reply::ok(b"{\"checksums\": {\"sha256\": 5}}"),
            Reply::ok(b"null"),
            Reply::ok(b""),
            Reply::ok(b"\xff\xfe"),
            Reply::ok(&[b' '; 20_000]),
            Reply::status(204),
            Reply::status(304),
        ];
        for (index, answer) in answers.iter().enumerate() {
            let server = publishing(answer).await;
            let folder = folder_with_old();
            let run = update_city(provider, &server, folder.path()).await;
            let refused = run.result.is_err() && matches!(run.error(), UpdateError::ChecksumFormat);
            assert!(refused, "{} {index}: {}", provider.0, run.all_text());
            assert_eq!(server.requests().len(), 1, "{} {index}", provider.0);
            assert_untouched(folder.path());
        }
    }
}

#[tokio::test]
async fn a_missing_sum_is_a_failure_except_at_ipinfo_which_has_files_without_one() {
    for status in [404, 410] {
        let server = publishing(&Reply::status(status)).await;
        let folder = folder_with_old();
        let maxmind = update_city(PUBLISHING[0], &server, folder.path()).await;
        assert!(matches!(maxmind.error(), UpdateError::NotFound), "{}", maxmind.error());
        assert_untouched(folder.path());
        update_city(PUBLISHING[1], &server, folder.path()).await.result.expect("works");
        assert_eq!(city(&folder.path().join("city.mmdb")), "New");
    }
}

#[tokio::test]
async fn a_sum_that_is_refused_or_cannot_be_had_now_is_not_a_missing_one() {
    for provider in PUBLISHING {
        for status in [401, 403, 500] {
            let server = publishing(&Reply::status(status)).await;
            let folder = folder_with_old();
            let run = update_city(provider, &server, folder.path()).await;
            let fits = matches!(run.error(), UpdateError::Denied(401 | 403) | UpdateError::Status(500));
            assert!(fits, "{} {status}: {}", provider.0, run.error());
            assert_untouched(folder.path());
        }
    }
}

#[tokio::test]
async fn a_new_published_sum_is_enforced_although_the_server_calls_the_file_unchanged() {
    for provider in PUBLISHING {
        let file = database("New");
        let server = Server::start(move |request, before| match is_for_the_sum(&request.path) {
            true if before == 0 => sum(provider.0, &sha256(&file)),
            true => sum(provider.0, &sha256(b"other")),
            false => Reply::tagged(request, &file, "\"v1\""),
        })
        .await;
        let folder = TempDir::new().expect("folder");
        update_city(provider, &server, folder.path()).await.result.expect("works");
        let run = update_city(provider, &server, folder.path()).await;
        let refused = run.result.is_err() && matches!(run.error(), UpdateError::Checksum);
        assert!(refused, "{}: {}", provider.0, run.all_text());
        assert_eq!(city(&folder.path().join("city.mmdb")), "New", "the file stays");
    }
}

#[tokio::test]
async fn a_wrong_pin_is_refused() {
    let server = Server::start(|_, _| Reply::ok(&database("New"))).await;
    let folder = folder_with_old();
    let wrong = run(&server.url("city.mmdb"), folder.path(), &["--sha256", &sha256(b"other")]).await;
    assert!(matches!(wrong.error(), UpdateError::Checksum));
    assert_untouched(folder.path());
    let right = run(&server.url("city.mmdb"), folder.path(), &["--sha256", &sha256(&database("New"))]).await;
    right.result.expect("works");
    assert_eq!(city(&folder.path().join("city.mmdb")), "New");
}

#[tokio::test]
async fn a_pin_that_came_or_changed_after_the_installation_is_enforced() {
    let server = Server::start(|request, _| Reply::tagged(request, &database("New"), "\"v1\"")).await;
    let (url, right, wrong) = (server.url("city.mmdb"), sha256(&database("New")), sha256(b"other"));
    for first in [&[][..], &["--sha256", &right]] {
        let folder = TempDir::new().expect("folder");
        run(&url, folder.path(), first).await.result.expect("works");
        let changed = run(&url, folder.path(), &["--sha256", &wrong]).await;
        let refused = changed.result.is_err() && matches!(changed.error(), UpdateError::Checksum);
        assert!(refused, "{}", changed.all_text());
        assert_eq!(city(&folder.path().join("city.mmdb")), "New", "the file stays");
        let asked = server.requests().len();
        let again = run(&url, folder.path(), &["--sha256", &right]).await.result.expect("works");
        assert!(matches!(again[..], [Outcome::Unchanged(_)]), "{again:?}");
        assert_eq!(server.requests().len(), asked, "what fits the pin is not asked for again");
    }
}

#[tokio::test]
async fn a_changed_pin_fetches_its_file_past_a_server_that_would_call_the_old_one_unchanged() {
    let server = Server::start(|request, before| match request.header("if-none-match") {
        Some(_) => Reply::status(304),
        None => Reply::ok(&database(if before == 0 { "Old" } else { "New" })).with("etag", "\"same\""),
    })
    .await;
    let folder = TempDir::new().expect("folder");
    for name in ["Old", "New"] {
        let pin = sha256(&database(name));
        let run = run(&server.url("city.mmdb"), folder.path(), &["--sha256", &pin]).await;
        assert!(matches!(run.result.expect("works")[..], [Outcome::Installed(_)]), "{}", run.output);
        assert_eq!(city(&folder.path().join("city.mmdb")), name);
    }
}

#[tokio::test]
async fn a_pin_that_is_none_or_has_no_single_file_is_said_before_anything_is_asked() {
    let folder = folder_with_old();
    let sum = sha256(b"x");
    for (source, pin) in
        [("http://127.0.0.1:1/x.mmdb", "abc"), ("dbip-lite", &sum), ("maxmind", &sum), ("ipinfo", &sum)]
    {
        let run = run(source, folder.path(), &["--sha256", pin]).await;
        assert!(matches!(run.error(), UpdateError::Usage(_)), "{source}: {}", run.error());
        assert!(run.error().to_string().contains("--sha256"), "{}", run.error());
    }
    assert_untouched(folder.path());
}
