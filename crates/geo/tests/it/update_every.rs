//! `geo-update --every` continues after a failed or killed update, and exits on SIGTERM.

use std::path::Path;
use std::time::Duration;

use crate::update::server::{Body, Response, Server};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::mmdb::sample;
use testkit::process::Service;
use testkit::wait::eventually;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

fn start(server: &Server, to: &Path) -> Service {
    let to = to.to_str().expect("UTF-8");
    Service::spawn(
        "lookup-svc",
        &["geo-update", &server.url("city.mmdb"), "--to", to, "--every", "10ms"],
        &[],
    )
}

async fn wait_for_requests(server: &Server, count: usize) {
    let enough = async || (server.requests().len() >= count).then_some(());
    eventually(WAIT_TIMEOUT, format!("{count} requests"), enough).await;
}

fn has_partial_file(dir: &Path) -> bool {
    let mut entries = std::fs::read_dir(dir).expect("read directory").filter_map(Result::ok);
    entries.any(|entry| entry.path().extension().is_some_and(|extension| extension == "part"))
}

#[tokio::test]
async fn every_repeats_until_sigterm_and_leaves_no_partial_file() {
    let server = Server::start(|request, previous| match previous {
        0 => Response::status(404),
        1 => Response::tagged(request, &sample::build(), "\"v1\""),
        2 => Response::status(304),
        // The next download stalls until the signal arrives.
        _ => Response::ok(&sample::build()).body(Body::StallAfter(100)),
    })
    .await;
    let dir = TempDir::new().expect("temp dir");
    let mut update = start(&server, dir.path());
    wait_for_requests(&server, 4).await;
    assert!(has_partial_file(dir.path()));
    update.signal(Signal::TERM);
    assert!(update.wait_exit(WAIT_TIMEOUT).await.success(), "{}", update.logs());
    assert_eq!(std::fs::read(dir.path().join("city.mmdb")).expect("file exists"), sample::build());
    let no_partial_file = async || (!has_partial_file(dir.path())).then_some(());
    eventually(WAIT_TIMEOUT, "the partial file is deleted", no_partial_file).await;
}

#[tokio::test]
async fn killed_update_is_repeated_by_the_same_process() {
    let server = Server::start(|request, previous| match previous {
        0 => Response::ok(&sample::build()).body(Body::StallAfter(100)),
        _ => Response::tagged(request, &sample::build(), "\"v1\""),
    })
    .await;
    let dir = TempDir::new().expect("temp dir");
    let mut update = start(&server, dir.path());
    wait_for_requests(&server, 1).await;
    let pid = update.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
    let child = children.trim().parse().ok().and_then(Pid::from_raw);
    kill_process(child.expect("one process runs the update"), Signal::KILL).expect("kill");
    let installed = async || dir.path().join("city.mmdb").exists().then_some(());
    eventually(WAIT_TIMEOUT, "the database is installed", installed).await;
    assert!(update.is_running() && update.logs().contains("update failed: signal: 9"), "{}", update.logs());
}
