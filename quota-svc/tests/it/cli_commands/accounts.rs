//! The `account` commands, and `overview`.

use super::cli_harness::CliHarness;

#[tokio::test]
async fn account_is_created_listed_and_deleted() {
    let cli = CliHarness::start().await;
    let output = cli.text(&["account", "create", "Ada@Example.org"]).await;
    assert!(output.contains("Created account ada@example.org"), "{output}");
    assert!(output.contains("key create --account ada@example.org"), "{output}");
    let listed = cli.text(&["account", "list"]).await;
    assert!(listed.starts_with(" ID") && listed.contains("ada@example.org"), "{listed}");
    assert!(listed.contains(" UTC") && listed.ends_with("1 account\n"), "{listed}");
    let output = cli.text(&["account", "delete", "ADA@example.org", "--yes"]).await;
    assert_eq!(output, "Deleted account ada@example.org with 0 keys.\n");
    assert_eq!(cli.text(&["account", "list"]).await, "0 accounts\n");
}

#[tokio::test]
async fn json_output_covers_create_list_and_delete() {
    let cli = CliHarness::start().await;
    assert_eq!(cli.json(&["account", "list"]).await, serde_json::json!({ "accounts": [] }));
    let created = cli.json(&["account", "create", "ada"]).await;
    assert_eq!((&created["login"], &created["credential_version"]), (&"ada".into(), &0.into()));
    assert_eq!(cli.json(&["account", "list"]).await, serde_json::json!({ "accounts": [created] }));
    cli.create_key("ada", "laptop").await;
    let deleted = cli.json(&["account", "delete", "ada", "--yes"]).await;
    let expected = serde_json::json!({ "deleted": true, "account": "ada", "id": created["id"], "keys": 1 });
    assert_eq!(deleted, expected);
}

#[tokio::test]
async fn account_is_suspended_restored_signed_out_and_made_an_admin() {
    let cli = CliHarness::start().await;
    let (key, _) = cli.create_account_and_key("ada").await;
    let suspended = cli.json(&["account", "suspend", "ada", "--reason", "abuse"]).await;
    assert_eq!((&suspended["suspension"]["reason"], &suspended["changed"]), (&"abuse".into(), &true.into()));
    assert_eq!(cli.json(&["key", "show", &key]).await["suspended"], true);
    let again = cli.text(&["account", "suspend", "ada", "--reason", "abuse"]).await;
    assert!(again.starts_with("Nothing has changed") && again.contains(": abuse"), "{again}");
    let error = cli.error(&["account", "suspend", "ada", "--reason", "  "]).await;
    assert!(error.contains("needs a reason"), "{error}");
    let counts = cli.json(&["overview"]).await["counts"].clone();
    assert_eq!(
        (&counts["accounts"], &counts["suspended"], &counts["active"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert!(cli.text(&["overview"]).await.contains("1, 1 suspended"));
    assert!(cli.json(&["account", "restore", "ada"]).await.get("suspension").is_none());
    assert!(cli.json(&["key", "show", &key]).await.get("suspended").is_none());
    assert_eq!(cli.json(&["account", "end-sessions", "ada"]).await["changed"], true);
    assert_eq!(cli.json(&["account", "set-role", "ada", "admin"]).await["role"], "admin");
    assert_eq!(cli.json(&["account", "set-role", "ada", "owner"]).await["role"], "owner");
    let events = cli.json(&["account", "events", "ada"]).await;
    let kinds: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["role_changed", "role_changed", "sessions_ended", "restored", "suspended"]);
    let text = cli.text(&["account", "events", "ada"]).await;
    assert!(text.contains("abuse (by the operator)"), "{text}");
}

#[tokio::test]
async fn list_covers_all_pages() {
    let cli = CliHarness::start().await;
    let line = |n| format!("{{\"login\":\"user{n}\",\"created_at\":{n},\"keys\":[]}}\n");
    let lines: String = (0..1_203).map(line).collect();
    cli.run_with_input(&["import"], &lines).await.success();
    let listed = cli.json(&["account", "list"]).await;
    let logins =
        listed["accounts"].as_array().unwrap().iter().map(|account| account["login"].as_str().unwrap());
    let logins: std::collections::BTreeSet<_> = logins.collect();
    assert_eq!(logins.len(), 1_203);
    let text = cli.text(&["account", "list"]).await;
    assert_eq!(text.lines().count(), 1 + 1_203 + 1, "one heading, the accounts, one total");
    assert!(text.ends_with("1,203 accounts\n"));
    let login_column = |line: &str| line.find("user");
    let first = text.lines().nth(1).and_then(login_column);
    assert!(
        text.lines().skip(1).take(1_203).all(|line| login_column(line) == first),
        "pages are not aligned"
    );
}

#[tokio::test]
async fn taken_and_invalid_logins_are_rejected() {
    let cli = CliHarness::start().await;
    cli.text(&["account", "create", "ada"]).await;
    let error = cli.error(&["account", "create", "ADA"]).await;
    assert!(error.contains("account ADA already exists"), "{error}");
    let error = cli.error(&["account", "create", "a b"]).await;
    assert!(error.contains("A login can't contain spaces."), "{error}");
}

#[tokio::test]
async fn deletion_without_terminal_requires_yes() {
    let cli = CliHarness::start().await;
    let (id, _) = cli.create_account_and_key("ada").await;
    for args in [["account", "delete", "ada"], ["key", "delete", &id]] {
        let error = cli.run_with_input(&args, "y\n").await.failure();
        assert!(error.contains("--yes"), "{error}");
    }
    assert_eq!(cli.json(&["key", "list", "--account", "ada"]).await["keys"][0]["id"], id.as_str());
}

#[tokio::test]
async fn deleting_unknown_account_fails() {
    let cli = CliHarness::start().await;
    let error = cli.error(&["account", "delete", "bob", "--yes"]).await;
    assert!(error.contains("account bob does not exist"), "{error}");
}
