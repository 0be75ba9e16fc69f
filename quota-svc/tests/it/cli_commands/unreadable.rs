//! Keys and accounts whose stored data can't be read: list, export, delete.

use std::fs::File;
use std::path::Path;

use redb::backends::FileBackend;
use serde_json::{Value, json};

use super::cli_harness::{CliHarness, string};
use crate::contract::unreadable::{Part, damage_file};

fn damage(file: &Path, part: Part, id: &str) {
    let file = File::options().read(true).write(true).open(file).unwrap();
    damage_file(FileBackend::new(file).unwrap(), part, id);
}

/// The logins of the accounts in an export, with their number of keys.
fn exported(text: &str) -> Vec<(String, usize)> {
    let account = |line: &str| {
        let account: Value = serde_json::from_str(line).unwrap();
        (string(&account["login"]), account["keys"].as_array().unwrap().len())
    };
    let mut accounts: Vec<_> = text.lines().map(account).collect();
    accounts.sort();
    accounts
}

#[tokio::test]
async fn unreadable_key_is_listed_left_out_of_the_export_and_deleted() {
    let mut cli = CliHarness::start().await;
    let (bad, _) = cli.create_account_and_key("ada").await;
    cli.create_key("ada", "phone").await;
    cli.create_account_and_key("bob").await;
    cli.restart(|file| damage(file, Part::Record, &bad)).await;

    let listed = cli.json(&["key", "list", "--account", "ada"]).await;
    assert_eq!((&listed["keys"][0]["name"], &listed["keys"][1]), (&json!("phone"), &Value::Null), "{listed}");
    assert_eq!(
        (&listed["unreadable"][0]["id"], &listed["unreadable"][0]["name"]),
        (&json!(bad), &json!("laptop"))
    );
    let text = cli.text(&["key", "list", "--account", "ada"]).await;
    assert!(text.contains("phone") && text.contains(&bad) && text.contains("key delete ID"), "{text}");

    let export = cli.run(&["export"]).await;
    assert_eq!(export.status.code(), Some(1), "{export:?}");
    assert_eq!(exported(&export.stdout), [("ada".to_owned(), 1), ("bob".to_owned(), 1)]);
    assert!(export.stderr.contains(&bad) && export.stderr.contains("leaves out 1 item"), "{}", export.stderr);
    let file = cli.path("backup.jsonl");
    let export = cli.run(&["export", "--to", file.to_str().unwrap()]).await;
    assert_eq!(export.status.code(), Some(1), "{export:?}");
    assert_eq!(exported(&std::fs::read_to_string(&file).unwrap()).len(), 2, "the rest is in the file");

    let error = cli.error(&["key", "show", &bad]).await;
    assert!(error.contains("can't be read"), "{error}");
    assert_eq!(cli.json(&["key", "delete", &bad, "--yes"]).await, json!({ "deleted": true, "id": bad }));
    assert!(cli.json(&["key", "list", "--account", "ada"]).await.get("unreadable").is_none());
    cli.text(&["export"]).await;
}

#[tokio::test]
async fn account_with_unreadable_key_can_be_deleted() {
    let mut cli = CliHarness::start().await;
    let (bad, _) = cli.create_account_and_key("ada").await;
    cli.restart(|file| damage(file, Part::Meta, &bad)).await;
    let deleted = cli.json(&["account", "delete", "ada", "--yes"]).await;
    assert_eq!((&deleted["deleted"], &deleted["keys"]), (&json!(true), &json!(1)));
    assert!(cli.error(&["key", "show", &bad]).await.contains("no key with ID"));
}

#[tokio::test]
async fn unreadable_account_is_listed_and_deleted_by_login_or_id() {
    let mut cli = CliHarness::start().await;
    let mut ids = Vec::new();
    for login in ["ada", "bob", "eve"] {
        ids.push(string(&cli.json(&["account", "create", login]).await["id"]));
    }
    let (key, _) = cli.create_key("ada", "laptop").await;
    cli.restart(|file| ids[..2].iter().for_each(|id| damage(file, Part::Account, id))).await;

    let listed = cli.json(&["account", "list"]).await;
    assert_eq!(
        (&listed["accounts"][0]["login"], listed["unreadable"].as_array().unwrap().len()),
        (&json!("eve"), 2)
    );
    let export = cli.run(&["export"]).await;
    assert_eq!((export.status.code(), exported(&export.stdout)), (Some(1), vec![("eve".to_owned(), 0)]));
    cli.text(&["account", "delete", "ada", "--yes"]).await;
    cli.text(&["account", "delete", &ids[1], "--yes"]).await;
    let listed = cli.json(&["account", "list"]).await;
    assert_eq!((listed["accounts"].as_array().unwrap().len(), listed.get("unreadable")), (1, None));
    assert!(cli.error(&["key", "show", &key]).await.contains("no key with ID"));
    cli.text(&["account", "create", "ada"]).await;
}
