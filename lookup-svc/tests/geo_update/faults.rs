//! Servers that cut off, stall, lie, never end or redirect in circles.

use std::time::Duration;

use lookup_svc::geo_update::UpdateError;
use tempfile::TempDir;

use crate::server::{Body, Reply, Server};
use crate::support::*;

#[tokio::test]
async fn a_cut_off_download_goes_on_where_it_stopped() {
    for stall in [false, true] {
        let file = database("New");
        let size = file.len();
        let server = Server::start(move |request, before| {
            let reply = Reply::tagged(request, &file, "\"v1\"");
            match (before, stall) {
                (0, false) => reply.body(Body::CutAfter(size / 2)),
                (0, true) => reply.body(Body::StallAfter(size / 2)),
                _ => reply,
            }
        })
        .await;
        let folder = TempDir::new().expect("folder");
        let run = run(&server.url("city.mmdb"), folder.path(), &["--idle-timeout", "300ms"]).await;
        run.result.as_ref().unwrap_or_else(|error| panic!("{error:#} {}", run.output));
        let second = server.requests()[1].clone();
        assert_eq!(
            (second.header("range"), second.header("if-range")),
            (Some(format!("bytes={}-", size / 2).as_str()), Some("\"v1\""))
        );
        assert_eq!(city(&folder.path().join("city.mmdb")), "New");
        assert_eq!(listing(folder.path()).1, Vec::<String>::new());
    }
}

#[tokio::test]
async fn without_a_version_or_with_a_new_one_it_starts_again() {
    for tag in [None, Some("\"v2\"")] {
        let (old, new) = (database("Half"), database("New"));
        let server = Server::start(move |request, before| match (before, tag) {
            (0, _) => Reply::ok(&old)
                .with("etag", if tag.is_some() { "\"v1\"" } else { "W/\"weak\"" })
                .body(Body::CutAfter(100)),
            (_, Some(tag)) => Reply::tagged(request, &new, tag),
            (_, None) => Reply::ok(&new),
        })
        .await;
        let folder = TempDir::new().expect("folder");
        run(&server.url("city.mmdb"), folder.path(), &[]).await.result.expect("works");
        assert_eq!(city(&folder.path().join("city.mmdb")), "New", "{tag:?}");
    }
}

#[tokio::test]
async fn it_gives_up_after_the_allowed_attempts_and_keeps_the_old_file() {
    for (reply, attempts) in [(503, 4), (429, 4), (401, 1), (403, 1), (404, 1), (418, 1)] {
        let server = Server::start(move |_, _| Reply::status(reply)).await;
        let folder = folder_with_old();
        let run = run(&server.url("city.mmdb"), folder.path(), &[]).await;
        match run.error() {
            UpdateError::Status(503 | 429 | 418) | UpdateError::Denied(401 | 403) | UpdateError::NotFound => {
            }
            error => panic!("{error}"),
        }
        assert_eq!(server.requests().len(), attempts, "{reply}");
        assert_untouched(folder.path());
    }
}

#[tokio::test]
async fn not_modified_counts_only_as_the_answer_to_a_condition() {
    for (half_received, attempts) in [(false, 1), (true, 2)] {
        let answer = move |before| match half_received && before == 0 {
            true => Reply::ok(&database("New")).with("etag", "\"v1\"").body(Body::CutAfter(100)),
            false => Reply::status(304),
        };
        let server = Server::start(move |_, before| answer(before)).await;
        let empty = TempDir::new().expect("folder");
        assert_unasked(&run(&server.url("city.mmdb"), empty.path(), &[]).await);
        assert_eq!(listing(empty.path()), (vec![], vec![]));
        assert_eq!(server.requests().len(), attempts);
        let server = Server::start(move |_, before| answer(before)).await;
        let folder = folder_with_old();
        assert_unasked(&run(&server.url("city.mmdb"), folder.path(), &[]).await);
        assert_untouched(folder.path());
    }
}

#[tokio::test]
async fn not_modified_is_no_answer_where_the_installed_file_has_no_version() {
    let server = Server::start(|_, before| match before {
        0 => Reply::ok(&database("New")),
        _ => Reply::status(304),
    })
    .await;
    let folder = TempDir::new().expect("folder");
    run(&server.url("city.mmdb"), folder.path(), &[]).await.result.expect("works");
    assert_unasked(&run(&server.url("city.mmdb"), folder.path(), &[]).await);
    assert_eq!(city(&folder.path().join("city.mmdb")), "New");
}

fn assert_unasked(run: &Run) {
    let refused = run.result.is_err() && matches!(run.error(), UpdateError::NotModified);
    assert!(refused && run.output.contains("304"), "{}", run.all_text());
}

#[tokio::test]
async fn a_web_page_is_no_database_whatever_it_calls_itself() {
    for kind in ["text/html; charset=utf-8", "application/octet-stream"] {
        let server = Server::start(move |_, _| {
            Reply::ok(b"\n<!DOCTYPE html><html><body>Please sign in</body></html>").with("content-type", kind)
        })
        .await;
        let folder = folder_with_old();
        assert!(matches!(
            run(&server.url("city.mmdb"), folder.path(), &[]).await.error(),
            UpdateError::WebPage
        ));
        assert_untouched(folder.path());
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_redirect_is_followed_and_a_loop_is_not() {
    let server = Server::start(|request, _| match request.path.as_str() {
        "/city.mmdb" => Reply::status(302).with("location", "/there"),
        "/there" => Reply::ok(&database("New")),
        _ => Reply::status(302).with("location", "/loop.mmdb"),
    })
    .await;
    let folder = folder_with_old();
    assert!(matches!(run(&server.url("loop.mmdb"), folder.path(), &[]).await.error(), UpdateError::Redirect));
    assert!(server.requests().len() <= 7, "{}", server.requests().len());
    assert_untouched(folder.path());
    run(&server.url("city.mmdb"), folder.path(), &[]).await.result.expect("works");
    assert_eq!(city(&folder.path().join("city.mmdb")), "New");
}

#[tokio::test]
async fn endless_announced_and_packed_sizes_are_bounded() {
    let bomb = gz(&vec![0; 50 << 20]);
    let server = Server::start(move |request, _| match request.path.as_str() {
        "/endless.mmdb" => Reply::ok(b"").body(Body::Endless),
        "/bomb.mmdb.gz" => Reply::ok(&bomb),
        _ => Reply::ok(&vec![b'x'; 2 << 20]),
    })
    .await;
    for path in ["endless.mmdb", "bomb.mmdb.gz", "announced.mmdb"] {
        let folder = folder_with_old();
        let run = run(&server.url(path), folder.path(), &["--max-size", "1000000"]).await;
        assert!(matches!(run.error(), UpdateError::TooLarge(1_000_000)), "{path}: {}", run.error());
        assert_untouched(folder.path());
    }
}

#[tokio::test]
async fn the_whole_takes_no_longer_than_allowed() {
    let server = Server::start(|_, _| Reply::ok(&database("New")).body(Body::StallAfter(10))).await;
    let folder = folder_with_old();
    let run = run(&server.url("city.mmdb"), folder.path(), &["--timeout", "200ms"]).await;
    assert!(matches!(run.error(), UpdateError::Deadline(_)));
    assert_untouched(folder.path());
}

#[tokio::test]
async fn a_trickle_that_never_pauses_for_long_ends_by_the_timeout() {
    let server = Server::start(|_, _| Reply::ok(&database("New")).body(Body::Trickle)).await;
    let folder = folder_with_old();
    let (url, limits) = (server.url("city.mmdb"), ["--idle-timeout", "3s", "--timeout", "4s"]);
    let run = tokio::time::timeout(Duration::from_secs(20), run(&url, folder.path(), &limits));
    let run = run.await.expect("ends long before the file does");
    assert!(matches!(run.error(), UpdateError::Deadline(_)), "{}", run.error());
    assert_eq!(server.requests().len(), 1, "never idle, so never tried again");
    assert_untouched(folder.path());
}

#[tokio::test]
async fn sound_archives_with_broken_content_are_refused() {
    let good = database("New");
    let contents = [
        gz(&good[..good.len() / 2]),
        gz(b"hello"),
        tar_gz("GeoLite2_20260101/readme.md", &good),
        gz(&good)[..200].to_vec(),
        Vec::new(),
    ];
    for (index, content) in contents.into_iter().enumerate() {
        let server = Server::start(move |_, _| Reply::ok(&content)).await;
        let folder = folder_with_old();
        let run = run(&server.url("city.mmdb.gz"), folder.path(), &[]).await;
        let refused = matches!(
            run.error(),
            UpdateError::Unusable(_) | UpdateError::NoDatabase | UpdateError::Archive(_)
        );
        assert!(refused, "content {index}: {}", run.error());
        assert_untouched(folder.path());
    }
}
