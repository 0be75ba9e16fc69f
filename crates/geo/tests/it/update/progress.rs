//! Progress output: a bar on a terminal, plain lines elsewhere.

use indicatif::HumanBytes;
use tempfile::TempDir;
use testkit::process::binary;
use testkit::tools::require_tool;
use tokio::process::Command;

use super::server::{Body, Response, Server};
use super::support::*;

/// Truncates the first response, so that the output always shows a half-finished download.
async fn truncating_server() -> Server {
    let file = database("New");
    Server::start(move |request, previous| {
        let response = Response::tagged(request, &file, "\"v1\"");
        if previous == 0 { response.body(Body::TruncateAfter(file.len() / 2)) } else { response }
    })
    .await
}

fn arguments(server: &Server, dir: &TempDir) -> Vec<String> {
    let to = dir.path().to_str().expect("UTF-8");
    let arguments = [&server.url("city.mmdb"), "--to", to, "--retries", "3"];
    arguments.map(str::to_owned).to_vec()
}

/// The output on a terminal with this `TERM`. `None` if `script`, which provides the terminal, is missing: the test is
/// then skipped.
async fn on_terminal(term: &str, arguments: &[String]) -> Option<String> {
    if !require_tool("script") {
        return None;
    }
    let command = format!("'{}' geo-update '{}'", binary("lookup-svc").display(), arguments.join("' '"));
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("TERM", term).env("SHELL", "/bin/sh");
    let (status, text) = output(&mut script).await;
    assert!(status.success(), "{text}");
    Some(text)
}

/// Checks the first line (received and total bytes), the retry line and the last line (installed).
fn assert_plain_lines(text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    let total = HumanBytes(database("New").len() as u64);
    assert!(lines[0].starts_with("city: ") && lines[0].ends_with(&format!(" of {total}")), "{text}");
    let is_retry = |line: &&str| {
        line.starts_with("city: can't download from 127.0.0.1: ") && line.ends_with("; retry 1 of 3 in 1s")
    };
    assert!(lines.iter().any(is_retry), "{text}");
    assert_eq!(lines.last(), Some(&"city: installed city.mmdb"), "{text}");
    assert!(!text.contains(['\x1b', '█', '░']), "{text:?}");
}

/// As in the chart, where a collector reads the logs of all containers.
#[tokio::test]
async fn every_line_is_json_with_json_log_format() {
    let (server, dir) = (truncating_server().await, TempDir::new().expect("temp dir"));
    let arguments = arguments(&server, &dir);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let environment = [("IP_LOOKUP_LOG_FORMAT", "json")];
    let (status, installed) = program(&environment, &arguments).await;
    assert!(status.success() && installed.contains("geo-update: city: installed city.mmdb"), "{installed}");
    let unknown = ["nowhere", "--to", dir.path().to_str().expect("UTF-8")];
    let (status, failed) = program(&environment, &unknown).await;
    assert!(!status.success(), "{failed}");
    for line in installed.lines().chain(failed.lines()) {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line.is_object()), "{line}");
    }
}

#[tokio::test]
async fn piped_output_is_plain_lines() {
    let (server, dir) = (truncating_server().await, TempDir::new().expect("temp dir"));
    let arguments = arguments(&server, &dir);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (status, text) = program(&[("TERM", "xterm")], &arguments).await;
    assert!(status.success(), "{text}");
    assert_plain_lines(&text);
    assert!(!text.contains('\r'), "{text:?}");
    let (_, text) = program(&[("TERM", "xterm")], &arguments).await;
    assert_eq!(text, "city: unchanged\n");
}

#[tokio::test]
async fn unknown_total_size_is_omitted() {
    let server = Server::start(|_, _| Response::ok(b"").body(Body::Endless)).await;
    let dir = TempDir::new().expect("temp dir");
    let run = run(&server.url("city.mmdb"), dir.path(), &["--max-size", "1000000"]).await;
    let first = run.output.lines().next().expect("a line");
    assert!(
        first.starts_with("city: ") && first.ends_with("iB") && !first.contains(" of "),
        "{}",
        run.output
    );
}

#[tokio::test]
async fn terminal_output_is_a_bar() {
    let (server, dir) = (truncating_server().await, TempDir::new().expect("temp dir"));
    let Some(text) = on_terminal("xterm", &arguments(&server, &dir)).await else { return };
    let mut bars = text.split("city [").skip(1).filter_map(|rest| Some(rest.split_once(']')?.0));
    assert!(bars.any(|bar| bar.contains('█') && bar.contains('░')), "half-filled bar: {text:?}");
    assert!(text.contains("\r\x1b[2K"), "redrawn on the same line: {text:?}");
    assert!(text.contains("\x1b[2Kcity: installed city.mmdb\r\n"), "bar is cleared before a line: {text:?}");
    assert!(text.ends_with("\r\x1b[2K"), "bar is cleared at the end: {text:?}");
    assert!(!text.contains("iB of "), "no plain progress lines: {text:?}");
}

#[tokio::test]
async fn dumb_terminal_output_is_plain_lines() {
    let (server, dir) = (truncating_server().await, TempDir::new().expect("temp dir"));
    let Some(text) = on_terminal("dumb", &arguments(&server, &dir)).await else { return };
    assert_plain_lines(&text);
}
