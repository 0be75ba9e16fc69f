//! What a command says when quota-svc is away, is another one, or when nobody listens.

use std::process::Stdio;

use crate::desk::{Desk, command, said};

#[tokio::test]
async fn without_a_quota_svc_it_says_where_it_looked_and_what_to_do() {
    let mut desk = Desk::open().await;
    desk.quota.service.kill();
    let url = desk.quota.url().to_owned();
    for args in [["account", "list"], ["key", "list"], ["export", "--output=json"]] {
        let account = if args[0] == "key" { vec!["--account", "ada"] } else { vec![] };
        let said = desk.error(&[&args[..], &account].concat()).await;
        for part in [url.as_str(), "--quota-url", "--store-file", "--redis-url"] {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
}

#[tokio::test]
async fn the_url_comes_from_the_environment_or_from_either_side_of_the_command() {
    let desk = Desk::open().await;
    let mut by_environment = command(&["account", "create", "ada"]);
    by_environment.env("QUOTA_URL", desk.quota.url());
    said(by_environment, "").await.success();
    let after = command(&["account", "list", "--quota-url", desk.quota.url()]);
    assert!(said(after, "").await.success().stdout.contains("ada"));
}

#[tokio::test]
async fn a_url_that_is_none_is_explained_without_its_password() {
    for url in ["127.0.0.1:8082", "https://u:hush@127.0.0.1", "http://u:hush@127.0.0.1:1"] {
        let said = said(command(&["--quota-url", url, "account", "list"]), "").await.failure();
        assert!(said.contains("--quota-url") && !said.contains("hush"), "{said}");
    }
}

#[tokio::test]
async fn a_sidecar_that_only_charges_points_to_another() {
    let desk = Desk::open_with(&["--serve", "charges"]).await;
    let said = desk.error(&["account", "list"]).await;
    assert!(said.contains("--serve charges") && said.contains("--quota-url"), "{said}");
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_error() {
    let desk = Desk::open().await;
    let mut list = command(&["--quota-url", desk.quota.url(), "account", "list"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = list.stdout(Stdio::from(writer)).spawn().unwrap();
    drop(list);
    drop(child.stdin.take());
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[tokio::test]
async fn half_an_export_is_an_error_even_where_nobody_reads() {
    let desk = Desk::open().await;
    desk.key("ada").await;
    let mut export = command(&["--quota-url", desk.quota.url(), "export"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = export.stdout(Stdio::from(writer)).spawn().unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("not whole"), "{output:?}");
}
