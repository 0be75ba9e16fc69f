//! Credentials go to the provider and nowhere else.

use std::path::Path;

use lookup_svc::geo_update::UpdateError;
use tempfile::TempDir;

use crate::server::{Reply, Server};
use crate::support::*;

#[tokio::test]
async fn credentials_are_in_no_line_no_error_and_no_file() {
    const TOKEN: &str = "t0psecret";
    let file = database("New");
    let sums = format!("{{\"checksums\": {{\"md5\": \"x\", \"sha256\": \"{}\"}}}}", sha256(&file));
    let server = Server::start(move |request, _| match request.path.as_str() {
        "/data/ipinfo_lite.mmdb/checksums?token=t0psecret" => Reply::ok(sums.as_bytes()),
        "/data/ipinfo_lite.mmdb?token=t0psecret" => Reply::ok(&file),
        path if path.starts_with("/data/loop") => Reply::status(302).with("location", path),
        _ => Reply::status(500),
    })
    .await;
    let folder = TempDir::new().expect("folder");
    let nobody = "http://127.0.0.1:1/".to_owned();
    for (url, edition, works) in [
        (server.url(""), "ipinfo_lite", true),
        (server.url(""), "loop", false),
        (server.url(""), "broken", false),
        (nobody, "ipinfo_lite", false),
    ] {
        let more =
            ["--provider-url", &url, "--accept-license", "--ipinfo-token", TOKEN, "--editions", edition];
        let run = run("ipinfo", folder.path(), &more).await;
        assert_eq!(run.result.is_ok(), works, "{}", run.all_text());
        assert!(!run.all_text().contains(TOKEN), "{}", run.all_text());
        assert!(!format!("{:?}", parse("ipinfo", folder.path(), &more)).contains(TOKEN));
    }
    assert_in_no_file(TOKEN, folder.path());
}

fn assert_in_no_file(secret: &str, folder: &Path) {
    for entry in std::fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        let text = String::from_utf8_lossy(&std::fs::read(&path).expect("readable")).into_owned();
        assert!(!text.contains(secret) && !path.display().to_string().contains(secret), "{}", path.display());
    }
}

/// In URLs as a password and as a token, wherever a URL can go wrong.
const SECRET: &str = "s3cret";

/// Answers in all the ways that are worth a line of output.
async fn server_with_secrets() -> Server {
    Server::start(|request, _| match request.path.split_once('?') {
        Some(("/city.mmdb", "token=s3cret")) => Reply::tagged(request, &database("New"), "\"v1\""),
        Some(("/loop.mmdb", _)) => Reply::status(302).with("location", &request.path),
        Some(("/page.mmdb", _)) => Reply::ok(b"<html></html>"),
        Some(("/secret.mmdb", _)) => Reply::status(401),
        _ => Reply::status(500),
    })
    .await
}

/// URLs with both, and whether the download works.
fn sources_with_secrets(server: &Server) -> Vec<(String, bool)> {
    let at = |place: &str| format!("http://user:s3cret@{place}?token=s3cret");
    let good = at(&format!("{}/city.mmdb", server.address));
    let bad = ["loop", "page", "secret", "broken"].map(|name| at(&format!("{}/{name}.mmdb", server.address)));
    let odd = ["127.0.0.1:1/city.mmdb", "[nowhere/city.mmdb", "127.0.0.1:99999/city.mmdb"].map(at);
    let ftp = at("127.0.0.1/city.mmdb").replace("http", "ftp");
    // Twice: the second time it is unchanged.
    let works = [(good.clone(), true), (good, true)];
    works.into_iter().chain(bad.into_iter().chain(odd).chain([ftp]).map(|url| (url, false))).collect()
}

#[tokio::test]
async fn secrets_in_a_url_are_in_no_line_no_error_and_no_file() {
    let server = server_with_secrets().await;
    let folder = TempDir::new().expect("folder");
    for (source, works) in sources_with_secrets(&server) {
        let run = run(&source, folder.path(), &[]).await;
        assert_eq!(run.result.is_ok(), works, "{source}: {}", run.all_text());
        assert!(!run.all_text().contains(SECRET), "{}", run.all_text());
        let arguments = parse(&source, folder.path(), &["--maxmind-account-id", SECRET]);
        assert!(!format!("{arguments:?} {arguments:#?}").contains(SECRET), "{arguments:?}");
    }
    assert_eq!(server.requests()[0].header("authorization"), Some("Basic dXNlcjpzM2NyZXQ="));
    assert_in_no_file(SECRET, folder.path());
}

#[tokio::test]
async fn the_program_shows_no_secret_however_much_it_is_asked_to_log() {
    let server = server_with_secrets().await;
    let folder = TempDir::new().expect("folder");
    let to = folder.path().to_str().expect("UTF-8");
    for (source, works) in sources_with_secrets(&server) {
        let environment =
            [("GEO_UPDATE_SOURCE", source.as_str()), ("LOG_LEVEL", "trace"), ("RUST_LOG", "trace")];
        let (status, text) =
            program(&environment, &["--to", to, "--retry-delay", "1ms", "--retries", "1"]).await;
        assert_eq!(status.success(), works, "{text}");
        assert!(!text.is_empty() && !text.contains(SECRET), "{text}");
    }
}

#[tokio::test]
async fn help_and_a_wrong_command_line_show_no_secret_of_the_environment() {
    let environment = [
        ("GEO_UPDATE_SOURCE", "http://user:s3cret@127.0.0.1:1/city.mmdb?token=s3cret"),
        ("MAXMIND_ACCOUNT_ID", SECRET),
        ("MAXMIND_LICENSE_KEY", SECRET),
        ("IPINFO_TOKEN", SECRET),
    ];
    for arguments in [&["--help"][..], &["-h"], &[], &["--to", "/tmp", "--retries", "many"], &["--unknown"]] {
        let (_, text) = program(&environment, arguments).await;
        assert!(text.contains("Usage") || text.contains("--help"), "{text}");
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[tokio::test]
async fn a_redirect_to_another_host_takes_no_credentials_along() {
    let storage = Server::start(|_, _| Reply::status(404)).await;
    let there = storage.url("signed");
    let server = Server::start(move |_, _| Reply::status(302).with("location", &there)).await;
    let folder = TempDir::new().expect("folder");
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
    for (source, more) in [("maxmind", &maxmind[..]), ("ipinfo", &ipinfo)] {
        assert!(matches!(run(source, folder.path(), more).await.error(), UpdateError::NotFound));
    }
    assert!(!server.requests().is_empty() && !storage.requests().is_empty());
    for request in storage.requests() {
        assert_eq!((request.header("authorization"), request.header("referer")), (None, None));
    }
}
