//! What can be seen of the work: a bar on a terminal, plain lines elsewhere.

use e2e::tools::require_tool;
use indicatif::HumanBytes;
use tempfile::TempDir;
use tokio::process::Command;

use crate::server::{Body, Reply, Server};
use crate::support::*;

/// Cuts the first answer off half-way, so that half a file is certain to be seen.
async fn cutting_off() -> Server {
    let file = database("New");
    Server::start(move |request, before| {
        let reply = Reply::tagged(request, &file, "\"v1\"");
        if before == 0 { reply.body(Body::CutAfter(file.len() / 2)) } else { reply }
    })
    .await
}

fn arguments(server: &Server, folder: &TempDir) -> Vec<String> {
    let to = folder.path().to_str().expect("UTF-8");
    let arguments = [&server.url("city.mmdb"), "--to", to, "--retry-delay", "1ms", "--retries", "3"];
    arguments.map(str::to_owned).to_vec()
}

/// What the program writes on a terminal of this kind; `None` where the test is skipped.
async fn on_terminal(kind: &str, arguments: &[String]) -> Option<String> {
    if !require_tool("script") {
        return None;
    }
    let command = format!("'{PROGRAM}' geo-update '{}'", arguments.join("' '"));
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("TERM", kind).env("SHELL", "/bin/sh");
    let (status, text) = output(&mut script).await;
    assert!(status.success(), "{text}");
    Some(text)
}

/// The first line tells how much of the whole has arrived, another of the new attempt, the last of the end.
fn assert_plain_lines(text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    let total = HumanBytes(database("New").len() as u64);
    assert!(lines[0].starts_with("city: ") && lines[0].ends_with(&format!(" of {total}")), "{text}");
    assert!(lines.iter().any(|line| line.ends_with("; attempt 2 of 4 in 1ms")), "{text}");
    assert_eq!(lines.last(), Some(&"city: installed city.mmdb"), "{text}");
    assert!(!text.contains(['\x1b', '█', '░']), "{text:?}");
}

#[tokio::test]
async fn elsewhere_than_on_a_terminal_there_are_plain_lines() {
    let (server, folder) = (cutting_off().await, TempDir::new().expect("folder"));
    let arguments = arguments(&server, &folder);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (status, text) = program(&[("TERM", "xterm")], &arguments).await;
    assert!(status.success(), "{text}");
    assert_plain_lines(&text);
    assert!(!text.contains('\r'), "{text:?}");
    let (_, text) = program(&[("TERM", "xterm")], &arguments).await;
    assert_eq!(text, "city: unchanged\n");
}

#[tokio::test]
async fn a_size_that_is_not_announced_is_not_shown() {
    let server = Server::start(|_, _| Reply::ok(b"").body(Body::Endless)).await;
    let folder = TempDir::new().expect("folder");
    let run = run(&server.url("city.mmdb"), folder.path(), &["--max-size", "1000000"]).await;
    let first = run.output.lines().next().expect("a line");
    assert!(
        first.starts_with("city: ") && first.ends_with("iB") && !first.contains(" of "),
        "{}",
        run.output
    );
}

#[tokio::test]
async fn on_a_terminal_there_is_a_bar() {
    let (server, folder) = (cutting_off().await, TempDir::new().expect("folder"));
    let Some(text) = on_terminal("xterm", &arguments(&server, &folder)).await else { return };
    let mut bars = text.split("city [").skip(1).filter_map(|rest| Some(rest.split_once(']')?.0));
    assert!(bars.any(|bar| bar.contains('█') && bar.contains('░')), "half-way: {text:?}");
    assert!(text.contains("\r\x1b[2K"), "drawn over in its place: {text:?}");
    assert!(text.contains("\x1b[2Kcity: installed city.mmdb\r\n"), "lines do not run into it: {text:?}");
    assert!(text.ends_with("\r\x1b[2K"), "it is gone at the end: {text:?}");
    assert!(!text.contains("iB of "), "no plain line besides: {text:?}");
}

#[tokio::test]
async fn on_a_terminal_that_cannot_draw_there_are_plain_lines() {
    let (server, folder) = (cutting_off().await, TempDir::new().expect("folder"));
    let Some(text) = on_terminal("dumb", &arguments(&server, &folder)).await else { return };
    assert_plain_lines(&text);
}
