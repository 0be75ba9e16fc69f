//! Faulty servers: truncated, stalled and endless downloads, wrong content, redirect loops.

use std::io::Read;
use std::time::Duration;

use geo::update::{DailyUpdate, GeoUpdateArgs, UpdateError};
use tempfile::TempDir;

use super::server::{Body, Response, Server};
use super::support::*;

#[tokio::test]
async fn interrupted_download_starts_again() {
    for stall in [false, true] {
        // The file is replaced during the download.
        let (old, new) = (database("Old"), database("New"));
        let server = Server::start(move |request, previous| match previous {
            0 if stall => Response::tagged(request, &old, "\"v1\"").body(Body::StallAfter(old.len() / 2)),
            0 => Response::tagged(request, &old, "\"v1\"").body(Body::TruncateAfter(old.len() / 2)),
            _ => Response::tagged(request, &new, "\"v2\""),
        })
        .await;
        let dir = TempDir::new().expect("temp dir");
        let idle_timeout = Duration::from_millis(300);
        let args = GeoUpdateArgs { idle_timeout, ..parse(&server.url("city.mmdb"), dir.path(), &[]) };
        let run = run_args(args).await;
        run.result.as_ref().unwrap_or_else(|error| panic!("{error:#} {}", run.output));
        assert_eq!(server.requests()[1].header("range"), None, "some servers ignore If-Range");
        assert_eq!(city(&dir.path().join("city.mmdb")), "New");
        assert_eq!(listing(dir.path()).1, Vec::<String>::new());
    }
}

#[tokio::test]
async fn unreachable_host_is_named_for_each_database() {
    let dir = TempDir::new().expect("temp dir");
    let run = run("dbip-lite", dir.path(), &["--provider-url", "http://127.0.0.1:1/"]).await;
    for database in ["dbip-city-lite", "dbip-asn-lite"] {
        let start = format!("{database}: can't download from 127.0.0.1: ");
        let retries = run.output.lines().filter(|line| line.starts_with(&start) && line.contains("; retry "));
        assert_eq!(retries.count(), 3, "{}", run.output);
    }
    let error = format!("{:#}", run.result.expect_err("update fails"));
    assert!(
        error.starts_with("2 of 2 databases failed; first error: dbip-city-lite: can't download"),
        "{error}"
    );
}

#[tokio::test]
async fn error_status_fails_after_retries_and_keeps_old_file() {
    for (status, attempts) in [(503, 4), (429, 4), (401, 1), (403, 1), (404, 1), (418, 1)] {
        let server = Server::start(move |_, _| Response::status(status)).await;
        let dir = dir_with_old_file();
        let run = run(&server.url("city.mmdb"), dir.path(), &[]).await;
        match run.error() {
            UpdateError::Status(503 | 429 | 418)
            | UpdateError::CredentialsRejected(401 | 403)
            | UpdateError::NotFound => {}
            error => panic!("{error}"),
        }
        assert_eq!(server.requests().len(), attempts, "{status}");
        assert_unchanged(dir.path());
    }
}

#[tokio::test]
async fn unexpected_304_fails_the_update() {
    for (interrupted, attempts) in [(false, 1), (true, 2)] {
        let respond = move |previous| match interrupted && previous == 0 {
            true => Response::ok(&database("New")).with("etag", "\"v1\"").body(Body::TruncateAfter(100)),
            false => Response::status(304),
        };
        let server = Server::start(move |_, previous| respond(previous)).await;
        let empty = TempDir::new().expect("temp dir");
        assert_unexpected_304(&run(&server.url("city.mmdb"), empty.path(), &[]).await);
        assert_eq!(listing(empty.path()), (vec![], vec![]));
        assert_eq!(server.requests().len(), attempts);
        let server = Server::start(move |_, previous| respond(previous)).await;
        let dir = dir_with_old_file();
        assert_unexpected_304(&run(&server.url("city.mmdb"), dir.path(), &[]).await);
        assert_unchanged(dir.path());
    }
}

#[tokio::test]
async fn unexpected_304_for_file_without_etag_fails() {
    let server = Server::start(|_, previous| match previous {
        0 => Response::ok(&database("New")),
        _ => Response::status(304),
    })
    .await;
    let dir = TempDir::new().expect("temp dir");
    run(&server.url("city.mmdb"), dir.path(), &[]).await.result.expect("update succeeds");
    assert_unexpected_304(&run(&server.url("city.mmdb"), dir.path(), &[]).await);
    assert_eq!(city(&dir.path().join("city.mmdb")), "New");
}

fn assert_unexpected_304(run: &Run) {
    let rejected = run.result.is_err() && matches!(run.error(), UpdateError::NotModified);
    assert!(rejected && run.output.contains("304"), "{}", run.all_text());
}

#[tokio::test]
async fn web_page_of_any_content_type_is_rejected() {
    for kind in ["text/html; charset=utf-8", "application/octet-stream"] {
        let server = Server::start(move |_, _| {
            Response::ok(b"\n<!DOCTYPE html><html><body>Please sign in</body></html>")
                .with("content-type", kind)
        })
        .await;
        let dir = dir_with_old_file();
        assert!(matches!(run(&server.url("city.mmdb"), dir.path(), &[]).await.error(), UpdateError::WebPage));
        assert_unchanged(dir.path());
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn redirect_is_followed_and_loop_fails() {
    let server = Server::start(|request, _| match request.path.as_str() {
        "/city.mmdb" => Response::status(302).with("location", "/target"),
        "/target" => Response::ok(&database("New")),
        _ => Response::status(302).with("location", "/loop.mmdb"),
    })
    .await;
    let dir = dir_with_old_file();
    assert!(matches!(run(&server.url("loop.mmdb"), dir.path(), &[]).await.error(), UpdateError::Redirect));
    assert!(server.requests().len() <= 7, "{}", server.requests().len());
    assert_unchanged(dir.path());
    run(&server.url("city.mmdb"), dir.path(), &[]).await.result.expect("update succeeds");
    assert_eq!(city(&dir.path().join("city.mmdb")), "New");
}

#[tokio::test]
async fn download_and_unpacked_size_are_limited() {
    let bomb = gz(&vec![0; 50 << 20]);
    let server = Server::start(move |request, _| match request.path.as_str() {
        "/endless.mmdb" => Response::ok(b"").body(Body::Endless),
        "/bomb.mmdb.gz" => Response::ok(&bomb),
        _ => Response::ok(&vec![b'x'; 2 << 20]),
    })
    .await;
    for path in ["endless.mmdb", "bomb.mmdb.gz", "large.mmdb"] {
        let dir = dir_with_old_file();
        let run = run(&server.url(path), dir.path(), &["--max-size", "1000000"]).await;
        assert!(matches!(run.error(), UpdateError::TooLarge(1_000_000)), "{path}: {}", run.error());
        assert_unchanged(dir.path());
    }
}

#[tokio::test]
async fn expanding_archives_use_little_memory() {
    const EXPANDED: u64 = 100 << 20;
    let archives = [
        // Extension headers, which are skipped.
        ("longname.tar.gz", tar_gz_with_extension(tar::EntryType::GNULongName, EXPANDED)),
        ("pax.tar.gz", tar_gz_with_extension(tar::EntryType::XHeader, EXPANDED)),
        // Not an archive, so it is unpacked as a database, and rejected without being read into memory.
        ("zeros.mmdb.gz", gz_zeros(EXPANDED)),
    ];
    let served = archives.clone();
    let server = Server::start(move |request, _| {
        let (_, content) = served.iter().find(|(name, _)| request.path.ends_with(name)).expect("known file");
        Response::ok(content)
    })
    .await;
    for (name, content) in archives {
        assert!(content.len() < 4 << 20, "{name} has {} bytes", content.len());
        let dir = dir_with_old_file();
        let (url, to) = (server.url(name), dir.path().to_str().expect("UTF-8"));
        let arguments = [url.as_str(), "--to", to, "--retries", "0"];
        let Some((text, peak)) = program_with_peak_memory(&arguments).await else { return };
        assert!(peak < 60 << 20, "{name}: {} MiB", peak >> 20);
        assert!(text.contains("contains no .mmdb file") || text.contains("not a valid MMDB file"), "{text}");
    }
}

fn gz_zeros(size: u64) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::copy(&mut std::io::repeat(0).take(size), &mut encoder).expect("write to memory");
    encoder.finish().expect("write to memory")
}

#[tokio::test]
async fn stalled_download_ends_at_timeout() {
    let server = Server::start(|_, _| Response::ok(&database("New")).body(Body::StallAfter(10))).await;
    let dir = dir_with_old_file();
    let args = parse(&server.url("city.mmdb"), dir.path(), &[]);
    let run = run_args(GeoUpdateArgs { timeout: Duration::from_millis(200), ..args }).await;
    assert!(matches!(run.error(), UpdateError::TimedOut(_)));
    assert_unchanged(dir.path());
}

#[tokio::test]
async fn trickled_download_ends_at_timeout() {
    let server = Server::start(|_, _| Response::ok(&database("New")).body(Body::Trickle)).await;
    let dir = dir_with_old_file();
    let args = GeoUpdateArgs {
        idle_timeout: Duration::from_secs(3),
        timeout: Duration::from_secs(4),
        ..parse(&server.url("city.mmdb"), dir.path(), &[])
    };
    let run = tokio::time::timeout(Duration::from_secs(20), run_args(args));
    let run = run.await.expect("the run ends at its timeout");
    assert!(matches!(run.error(), UpdateError::TimedOut(_)), "{}", run.error());
    assert_eq!(server.requests().len(), 1, "never idle, so no retry");
    assert_unchanged(dir.path());
}

#[tokio::test]
async fn invalid_archives_and_contents_are_rejected() {
    let good = database("New");
    let contents = [
        gz(&good[..good.len() / 2]),
        gz(b"hello"),
        tar_gz("GeoLite2_20260101/readme.md", &good),
        gz(&good)[..200].to_vec(),
        Vec::new(),
    ];
    for (index, content) in contents.into_iter().enumerate() {
        let server = Server::start(move |_, _| Response::ok(&content)).await;
        let dir = dir_with_old_file();
        let run = run(&server.url("city.mmdb.gz"), dir.path(), &[]).await;
        let rejected = matches!(
            run.error(),
            UpdateError::Unusable(_) | UpdateError::NoDatabase | UpdateError::Archive(_)
        );
        assert!(rejected, "content {index}: {}", run.error());
        assert_unchanged(dir.path());
    }
}

#[tokio::test]
async fn cause_of_a_failure_is_reported_once() {
    let dir = dir_with_old_file();
    let missing = ["--accept-license", "--ipinfo-token-file", "/nonexistent/token"];
    let error = run("ipinfo", dir.path(), &missing).await.result.expect_err("the file does not exist");
    assert_eq!(format!("{error:#}"), "can't read /nonexistent/token: No such file or directory (os error 2)");

    let unused_port = testkit::ports::ReservedPort::new();
    let run = run(&format!("http://{}/city.mmdb", unused_port.addr()), dir.path(), &[]).await;
    assert_eq!(run.output.lines().count(), 4, "three retries and the failure: {}", run.output);
    let error = format!("{:#}", run.result.expect_err("nothing listens there"));
    for line in run.output.lines().chain([error.as_str()]) {
        assert_eq!(line.matches("Connection refused").count(), 1, "{line}");
    }
    assert_unchanged(dir.path());
}

#[test]
fn daily_update_rejects_sources_that_need_an_account() {
    let new = |source: &str| DailyUpdate::new(&source.into(), "geo".as_ref());
    assert!(new("dbip-lite").is_ok() && new("https://geo.example/city.mmdb").is_ok());
    for source in ["maxmind", "ipinfo", "dbip"] {
        let error = new(source).expect_err("the source is rejected").to_string();
        assert!(error.contains("the command geo-update"), "{source}: {error}");
    }
}
