//! `account create`, `account list`, `account delete`.

use crate::desk::Desk;

#[tokio::test]
async fn an_account_is_created_listed_and_deleted() {
    let desk = Desk::open().await;
    let said = desk.text(&["account", "create", "Ada@Example.org"]).await;
    assert!(said.contains("Created the account ada@example.org"), "{said}");
    assert!(said.contains("key create --account ada@example.org"), "{said}");
    let listed = desk.text(&["account", "list"]).await;
    assert!(listed.starts_with(" ID") && listed.contains("ada@example.org"), "{listed}");
    assert!(listed.contains(" UTC") && listed.ends_with("1 account\n"), "{listed}");
    let said = desk.text(&["account", "delete", "ADA@example.org", "--yes"]).await;
    assert_eq!(said, "Deleted the account ada@example.org with 0 keys.\n");
    assert_eq!(desk.text(&["account", "list"]).await, "0 accounts\n");
}

#[tokio::test]
async fn programs_read_the_same_as_json() {
    let desk = Desk::open().await;
    assert_eq!(desk.json(&["account", "list"]).await, serde_json::json!({ "accounts": [] }));
    let created = desk.json(&["account", "create", "ada"]).await;
    assert_eq!((&created["login"], &created["credential_version"]), (&"ada".into(), &0.into()));
    assert_eq!(desk.json(&["account", "list"]).await, serde_json::json!({ "accounts": [created] }));
    desk.another_key("ada", "laptop").await;
    let deleted = desk.json(&["account", "delete", "ada", "--yes"]).await;
    let expected = serde_json::json!({ "deleted": true, "account": "ada", "id": created["id"], "keys": 1 });
    assert_eq!(deleted, expected);
}

#[tokio::test]
async fn a_list_longer_than_a_page_is_whole() {
    let desk = Desk::open().await;
    let line = |n| format!("{{\"login\":\"user{n}\",\"created_at\":{n},\"keys\":[]}}\n");
    let lines: String = (0..1_203).map(line).collect();
    desk.run_with_input(&["import"], &lines).await.success();
    let listed = desk.json(&["account", "list"]).await;
    let logins =
        listed["accounts"].as_array().unwrap().iter().map(|account| account["login"].as_str().unwrap());
    let logins: std::collections::BTreeSet<_> = logins.collect();
    assert_eq!(logins.len(), 1_203);
    let text = desk.text(&["account", "list"]).await;
    assert_eq!(text.lines().count(), 1 + 1_203 + 1, "one heading, the accounts, their number");
    assert!(text.ends_with("1,203 accounts\n"));
    let columns = |line: &str| line.find("user");
    let first = text.lines().nth(1).and_then(columns);
    assert!(text.lines().skip(1).take(1_203).all(|line| columns(line) == first), "the pages line up");
}

#[tokio::test]
async fn a_taken_login_and_a_wrong_one_are_refused() {
    let desk = Desk::open().await;
    desk.text(&["account", "create", "ada"]).await;
    let said = desk.error(&["account", "create", "ADA"]).await;
    assert!(said.contains("there is an account ADA already"), "{said}");
    let said = desk.error(&["account", "create", "a b"]).await;
    assert!(said.contains("1 to 254 characters"), "{said}");
}

#[tokio::test]
async fn nothing_is_deleted_when_nobody_can_be_asked() {
    let desk = Desk::open().await;
    let (id, _) = desk.key("ada").await;
    for args in [["account", "delete", "ada"], ["key", "delete", &id]] {
        let said = desk.run_with_input(&args, "y\n").await.failure();
        assert!(said.contains("--yes"), "{said}");
    }
    assert_eq!(desk.json(&["key", "list", "--account", "ada"]).await["keys"][0]["id"], id.as_str());
}

#[tokio::test]
async fn deleting_an_account_that_is_not_there_says_so() {
    let desk = Desk::open().await;
    let said = desk.error(&["account", "delete", "nobody", "--yes"]).await;
    assert!(said.contains("there is no account nobody"), "{said}");
}
