//! Credentials are sent only to the provider and appear in no output, error or file.

use std::path::Path;

use geo::update::UpdateError;
use tempfile::TempDir;

use super::server::{Response, Server};
use super::support::*;

#[tokio::test]
async fn token_is_in_no_output_error_or_file() {
    const TOKEN: &str = "t0psecret";
    let file = database("New");
    let sums = format!("{{\"checksums\": {{\"md5\": \"x\", \"sha256\": \"{}\"}}}}", sha256(&file));
    let server = Server::start(move |request, _| match request.path.as_str() {
        "/data/ipinfo_lite.mmdb/checksums?token=t0psecret" => Response::ok(sums.as_bytes()),
        "/data/ipinfo_lite.mmdb?token=t0psecret" => Response::ok(&file),
        path if path.starts_with("/data/loop") => Response::status(302).with("location", path),
        _ => Response::status(500),
    })
    .await;
    let dir = TempDir::new().expect("temp dir");
    let unreachable = "http://127.0.0.1:1/".to_owned();
    for (url, edition, succeeds) in [
        (server.url(""), "ipinfo_lite", true),
        (server.url(""), "loop", false),
        (server.url(""), "broken", false),
        (unreachable, "ipinfo_lite", false),
    ] {
        let extra =
            ["--provider-url", &url, "--accept-license", "--ipinfo-token", TOKEN, "--editions", edition];
        let run = run("ipinfo", dir.path(), &extra).await;
        assert_eq!(run.result.is_ok(), succeeds, "{}", run.all_text());
        assert!(!run.all_text().contains(TOKEN), "{}", run.all_text());
        assert!(!format!("{:?}", parse("ipinfo", dir.path(), &extra)).contains(TOKEN));
    }
    assert_in_no_file(TOKEN, dir.path());
}

fn assert_in_no_file(secret: &str, dir: &Path) {
    for entry in std::fs::read_dir(dir).expect("read directory") {
        let path = entry.expect("entry").path();
        let text = String::from_utf8_lossy(&std::fs::read(&path).expect("read")).into_owned();
        assert!(!text.contains(secret) && !path.display().to_string().contains(secret), "{}", path.display());
    }
}

/// The password and the token in the URLs, and the value of credential options.
const SECRET: &str = "s3cret";

/// A provider that responds in every way about which geo-update prints something: success, redirect loop, web page, 401
/// and 500.
async fn server_with_secrets() -> Server {
    Server::start(|request, _| match request.path.split_once('?') {
        Some(("/city.mmdb", "token=s3cret")) => Response::tagged(request, &database("New"), "\"v1\""),
        Some(("/loop.mmdb", _)) => Response::status(302).with("location", &request.path),
        Some(("/page.mmdb", _)) => Response::ok(b"<html></html>"),
        Some(("/secret.mmdb", _)) => Response::status(401),
        _ => Response::status(500),
    })
    .await
}

/// URLs with password and token, and whether the download succeeds.
fn sources_with_secrets(server: &Server) -> Vec<(String, bool)> {
    let url = |target: &str| format!("http://user:s3cret@{target}?token=s3cret");
    let good = url(&format!("{}/city.mmdb", server.address));
    let bad =
        ["loop", "page", "secret", "broken"].map(|name| url(&format!("{}/{name}.mmdb", server.address)));
    let invalid = ["127.0.0.1:1/city.mmdb", "[nowhere/city.mmdb", "127.0.0.1:99999/city.mmdb"].map(url);
    let ftp = url("127.0.0.1/city.mmdb").replace("http", "ftp");
    // The same URL twice: the second time, the file is unchanged.
    let succeeding = [(good.clone(), true), (good, true)];
    succeeding
        .into_iter()
        .chain(bad.into_iter().chain(invalid).chain([ftp]).map(|url| (url, false)))
        .collect()
}

#[tokio::test]
async fn url_secrets_are_in_no_output_error_or_file() {
    let server = server_with_secrets().await;
    let dir = TempDir::new().expect("temp dir");
    for (source, succeeds) in sources_with_secrets(&server) {
        let run = run(&source, dir.path(), &[]).await;
        assert_eq!(run.result.is_ok(), succeeds, "{source}: {}", run.all_text());
        assert!(!run.all_text().contains(SECRET), "{}", run.all_text());
        let arguments = parse(&source, dir.path(), &["--maxmind-account-id", SECRET]);
        assert!(!format!("{arguments:?} {arguments:#?}").contains(SECRET), "{arguments:?}");
    }
    assert_eq!(server.requests()[0].header("authorization"), Some("Basic dXNlcjpzM2NyZXQ="));
    assert_in_no_file(SECRET, dir.path());
}

#[tokio::test]
async fn trace_logging_shows_no_secret() {
    let server = server_with_secrets().await;
    let dir = TempDir::new().expect("temp dir");
    let to = dir.path().to_str().expect("UTF-8");
    for (source, succeeds) in sources_with_secrets(&server) {
        let environment = [
            ("IP_LOOKUP_GEO_UPDATE_SOURCE", source.as_str()),
            ("IP_LOOKUP_LOG_LEVEL", "trace"),
            ("RUST_LOG", "trace"),
        ];
        let (status, text) = program(&environment, &["--to", to, "--retries", "1"]).await;
        assert_eq!(status.success(), succeeds, "{text}");
        assert!(!text.is_empty() && !text.contains(SECRET), "{text}");
    }
}

#[tokio::test]
async fn help_and_usage_errors_show_no_secret() {
    let environment = [
        ("IP_LOOKUP_GEO_UPDATE_SOURCE", "http://user:s3cret@127.0.0.1:1/city.mmdb?token=s3cret"),
        ("IP_LOOKUP_MAXMIND_ACCOUNT_ID", SECRET),
        ("IP_LOOKUP_MAXMIND_LICENSE_KEY", SECRET),
        ("IP_LOOKUP_IPINFO_TOKEN", SECRET),
    ];
    for arguments in [&["--help"][..], &["-h"], &[], &["--to", "/tmp", "--retries", "many"], &["--unknown"]] {
        let (_, text) = program(&environment, arguments).await;
        assert!(text.contains("Usage") || text.contains("--help"), "{text}");
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[tokio::test]
async fn redirect_to_another_host_drops_credentials() {
    let storage = Server::start(|_, _| Response::status(404)).await;
    let target = storage.url("signed");
    let server = Server::start(move |_, _| Response::status(302).with("location", &target)).await;
    let dir = TempDir::new().expect("temp dir");
    let url = server.url("");
    let maxmind = [
        "--provider-url",
        &url,
        "--accept-license",
        "--maxmind-account-id",
        "1",
        "--maxmind-license-key",
        "s3cret",
    ];
    let ipinfo = ["--provider-url", &url, "--accept-license", "--ipinfo-token", "s3cret"];
    for (source, extra) in [("maxmind", &maxmind[..]), ("ipinfo", &ipinfo)] {
        assert!(matches!(run(source, dir.path(), extra).await.error(), UpdateError::NotFound));
    }
    assert!(!server.requests().is_empty() && !storage.requests().is_empty());
    for request in storage.requests() {
        assert_eq!((request.header("authorization"), request.header("referer")), (None, None));
    }
}
