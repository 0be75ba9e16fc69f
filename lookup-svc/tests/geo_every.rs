//! `geo-update --every` goes on after a failure and ends on SIGTERM (alone in its process).

#[path = "geo_update/server.rs"]
#[expect(dead_code, reason = "shared with geo_update.rs, which uses all of it")]
mod server;

use clap::Parser;
use lookup_svc::geo::sample;
use lookup_svc::geo_update::{self, GeoUpdateArgs};
use server::{Body, Reply, Server};
use tempfile::TempDir;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: GeoUpdateArgs,
}

#[tokio::test]
async fn it_repeats_until_sigterm_and_leaves_nothing_half_done() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let server = Server::start(|request, before| match before {
        0 => Reply::status(404),
        1 => Reply::tagged(request, sample::BYTES, "\"v1\""),
        2 => Reply::status(304),
        // The next version hangs in mid-download when the signal comes.
        _ => Reply::ok(sample::BYTES).body(Body::StallAfter(100)),
    })
    .await;
    let folder = TempDir::new().expect("folder");
    let to = folder.path().to_str().expect("UTF-8");
    let cli = Cli::parse_from(["geo-update", &server.url("city.mmdb"), "--to", to, "--every", "10ms"]);
    let update = tokio::spawn(geo_update::run(cli.args));
    while server.requests().len() < 4 {
        tokio::task::yield_now().await;
    }
    let pid = std::process::id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    update.await.expect("no panic").expect("ends well");
    assert_eq!(std::fs::read(folder.path().join("city.mmdb")).expect("there"), sample::BYTES);
    let left = std::fs::read_dir(folder.path())
        .expect("folder")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert_eq!(left.filter(|name| name.ends_with(".part")).count(), 0);
}
