//! What commands do if quota-svc is unreachable or serves only charges, if its URL is invalid, and if the pipe that
//! they write to is closed.

use std::process::Stdio;

use super::cli_harness::{CliHarness, command, run};

#[tokio::test]
async fn unreachable_quota_svc_error_names_url_and_flags() {
    let mut cli = CliHarness::start().await;
    cli.quota.service.kill();
    let url = cli.quota.url().to_owned();
    for args in [["account", "list"], ["key", "list"], ["export", "--output=json"]] {
        let account = if args[0] == "key" { vec!["--account", "ada"] } else { vec![] };
        let error = cli.error(&[&args[..], &account].concat()).await;
        for part in [url.as_str(), "--quota-url", "--store-file", "--redis-url"] {
            assert!(error.contains(part), "no {part} in {error}");
        }
    }
}

#[tokio::test]
async fn errors_are_json_with_json_output() {
    let mut cli = CliHarness::start().await;
    let error = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
    let missing = error(cli.error(&["account", "show", "eve", "--output", "json"]).await);
    assert_eq!(missing["error"], "account_not_found", "{missing}");
    assert!(missing["message"].as_str().unwrap().contains("quota-svc account create eve"), "{missing}");
    cli.text(&["account", "create", "ada"]).await;
    let exists = error(cli.error(&["account", "create", "ada", "--output", "json"]).await);
    assert_eq!(exists["error"], "account_exists", "{exists}");
    cli.quota.service.kill();
    let unreachable = error(cli.error(&["account", "list", "--output", "json"]).await);
    assert_eq!(unreachable["error"], "unreachable", "{unreachable}");
}

#[tokio::test]
async fn url_is_read_from_environment_or_flag() {
    let cli = CliHarness::start().await;
    let mut create = command(&["account", "create", "ada"]);
    create.env("IP_LOOKUP_QUOTA_URL", cli.quota.url());
    run(create, "").await.success();
    let list = command(&["account", "list", "--quota-url", cli.quota.url()]);
    assert!(run(list, "").await.success().stdout.contains("ada"));
}

#[tokio::test]
async fn invalid_url_error_omits_the_password() {
    for url in ["127.0.0.1:8082", "https://u:hush@127.0.0.1", "http://u:hush@127.0.0.1:1"] {
        let error = run(command(&["--quota-url", url, "account", "list"]), "").await.failure();
        assert!(error.contains("--quota-url") && !error.contains("hush"), "{error}");
    }
}

#[tokio::test]
async fn charges_only_quota_svc_rejects_commands() {
    let cli = CliHarness::start_with(&["--serve", "charges"]).await;
    let error = cli.error(&["account", "list"]).await;
    assert!(error.contains("--serve charges") && error.contains("--quota-url"), "{error}");
}

#[tokio::test]
async fn list_to_closed_pipe_is_not_an_error() {
    let cli = CliHarness::start().await;
    let mut list = command(&["--quota-url", cli.quota.url(), "account", "list"]);
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
async fn export_to_closed_pipe_fails() {
    let cli = CliHarness::start().await;
    cli.create_account_and_key("ada").await;
    let mut export = command(&["--quota-url", cli.quota.url(), "export"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = export.stdout(Stdio::from(writer)).spawn().unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("the export is incomplete"), "{output:?}");
}
