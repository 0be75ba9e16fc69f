//! `geo-update --every` continues after a failure and exits on SIGTERM. This test has a process of its own, because the
//! signal would affect other tests.

#[path = "geo_update/server.rs"]
#[expect(dead_code, reason = "shared with geo_update.rs, which uses all of it")]
mod server;

use clap::Parser;
use lookup_svc::geo_update::{self, GeoUpdateArgs};
use server::{Body, Response, Server};
use tempfile::TempDir;
use testkit::mmdb::sample;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: GeoUpdateArgs,
}

#[tokio::test]
async fn every_repeats_until_sigterm_and_leaves_no_partial_file() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let server = Server::start(|request, previous| match previous {
        0 => Response::status(404),
        1 => Response::tagged(request, &sample::build(), "\"v1\""),
        2 => Response::status(304),
        // The next download stalls until the signal arrives.
        _ => Response::ok(&sample::build()).body(Body::StallAfter(100)),
    })
    .await;
    let dir = TempDir::new().expect("temp dir");
    let to = dir.path().to_str().expect("UTF-8");
    let cli = Cli::parse_from(["geo-update", &server.url("city.mmdb"), "--to", to, "--every", "10ms"]);
    let update = tokio::spawn(geo_update::run(cli.args));
    while server.requests().len() < 4 {
        tokio::task::yield_now().await;
    }
    let pid = std::process::id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("run kill").success());
    update.await.expect("no panic").expect("clean exit");
    assert_eq!(std::fs::read(dir.path().join("city.mmdb")).expect("file exists"), sample::build());
    let names = std::fs::read_dir(dir.path())
        .expect("read directory")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert_eq!(names.filter(|name| name.ends_with(".part")).count(), 0);
}
