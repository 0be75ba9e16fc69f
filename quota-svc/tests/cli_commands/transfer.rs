//! `export` and `import`.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use quota_client::wire::SetCredential;
use serde_json::{Value, json};

use crate::desk::Desk;

const KEY: &str = r#""name":"n","hint":"h","scope":"ip","state":"active","state_since":1,"created_at":1"#;

/// Keys whose hash starts with `from`, `from + 1` and so on.
fn account(login: &str, from: u64, keys: u64) -> String {
    let key = |n| format!("{{\"sha256\":\"{n:016x}{}\",{KEY}}}", "0".repeat(48));
    let keys: Vec<_> = (from..from + keys).map(key).collect();
    format!("{{\"login\":\"{login}\",\"created_at\":1,\"keys\":[{}]}}\n", keys.join(","))
}

fn report(accounts: (u64, u64), keys: (u64, u64, u64)) -> Value {
    json!({
        "accounts_created": accounts.0, "accounts_kept": accounts.1,
        "keys_created": keys.0, "keys_kept": keys.1, "keys_refused": keys.2,
    })
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn an_export_imported_elsewhere_exports_the_same() {
    let (old, new) = (Desk::open_with(&["--burst-limit", "5"]).await, Desk::open().await);
    let (id, secret) = old.key("ada").await;
    old.json(&["key", "set-limit", &id, "--daily", "77"]).await;
    let (_, paused) = old.another_key("ada", "phone").await;
    let (inactive, _) = old.another_key("ada", "tablet").await;
    old.json(&["key", "deactivate", &inactive]).await;
    old.charge(&secret, 3).await;
    old.charge(&paused, 6).await;
    let bob = old.json(&["account", "create", "bob"]).await;
    let change = SetCredential { credential: "hash".to_owned(), expected_version: 0, keep_session: None };
    old.quota.client().set_credential(bob["id"].as_str().unwrap(), &change).await.unwrap();

    let export = old.text(&["export"]).await;
    assert_eq!(export.lines().count(), 2, "{export}");
    assert!(!export.contains(&secret[4..]) && export.contains("\"daily_limit\":77"), "{export}");
    for word in ["paused", "inactive", "active", "\"credential\":\"hash\"", "\"requests\":5"] {
        assert!(export.contains(word), "{word} in {export}");
    }
    let imported = new.run_with_input(&["import", "-", "--output", "json"], &export).await.success();
    assert_eq!(serde_json::from_str::<Value>(&imported.stdout).unwrap(), report((2, 0), (3, 0, 0)));
    assert_eq!(lines(&new.text(&["export"]).await), lines(&export));
    assert_eq!(new.json(&["key", "show", &id]).await["used_today"], 3);
}

#[tokio::test]
async fn what_is_there_is_kept_and_what_has_no_place_is_left_out() {
    let desk = Desk::open().await;
    let file = desk.path("in.jsonl");
    std::fs::write(&file, account("ada", 0, 8) + &account("bob", 100, 1)).unwrap();
    let import = ["import", file.to_str().unwrap()];
    assert_eq!(desk.json(&import).await, report((2, 0), (9, 0, 0)));
    assert_eq!(desk.json(&import).await, report((0, 2), (0, 9, 0)));
    std::fs::write(&file, account("ada", 6, 5)).unwrap();
    assert_eq!(desk.json(&import).await, report((0, 1), (2, 2, 1)));
    let said = desk.text(&import).await;
    assert!(said.contains("THERE ALREADY") && said.contains("at most 10 keys"), "{said}");
}

#[tokio::test]
async fn many_batches_under_way_lose_nothing() {
    let desk = Desk::open().await;
    let input: String = (0..3_000).map(|n| account(&format!("user{n}"), n * 10, 2)).collect();
    let said = desk.run_with_input(&["import"], &input).await.success();
    assert!(said.stdout.contains("3,000") && said.stdout.contains("6,000"), "{said:?}");
    let exported = desk.run(&["export"]).await.success();
    assert!(exported.stderr.contains("Exported 3,000 accounts with 6,000 keys."), "{}", exported.stderr);
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["keys"].as_array().unwrap().len();
    assert_eq!(exported.stdout.lines().map(line).sum::<usize>(), 6_000);
    assert_eq!(lines(&exported.stdout).len(), 3_000);
}

#[tokio::test]
async fn a_bad_line_is_named_and_nothing_after_it_is_sent() {
    let desk = Desk::open().await;
    let good =
        |from: u64, to: u64| (from..to).map(|n| account(&format!("user{n}"), n, 1)).collect::<String>();
    for (n, bad) in ["{\"hush\"", "{\"login\":\"hush\"}", "{\"login\":\"a b\",\"created_at\":1,\"keys\":[]}"]
        .into_iter()
        .enumerate()
    {
        let start = n as u64 * 10_000;
        let input = good(start, start + 450) + bad + "\n" + &good(start + 450, start + 1_000);
        let said = desk.run_with_input(&["import"], &input).await.failure();
        assert!(said.contains("line 451") && said.contains("again is safe"), "{said}");
        assert!(said.contains("450 accounts and 450 keys"), "{said}");
        assert!(!said.contains("hush"), "{said}");
        assert_eq!(lines(&desk.text(&["export"]).await).len(), 450 * (n + 1));
    }
}

#[tokio::test]
async fn an_import_without_a_quota_svc_fails_at_once_even_while_its_input_is_open() {
    let mut desk = Desk::open().await;
    desk.quota.service.kill();
    let url = desk.quota.url();
    let mut import = crate::desk::command(&["--quota-url", url, "import"]);
    let mut child = import.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input: String = (0..200).map(|n| account(&format!("user{n}"), n, 1)).collect();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, input.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    drop(stdin);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["lines 1 to 200", url, "--quota-url", "again is safe"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[tokio::test]
async fn an_export_into_a_file_appears_whole_and_for_its_owner_only() {
    let mut desk = Desk::open().await;
    desk.key("ada").await;
    let file = desk.path("backup.jsonl");
    let path = file.to_str().unwrap().to_owned();
    let written = desk.json(&["export", "--to", &path]).await;
    assert_eq!(written, json!({ "accounts": 1, "keys": 1, "file": path }));
    let whole = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        whole,
        desk.text(&["export", "--output", "json"]).await,
        "the lines are the output, in either form"
    );
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    desk.text(&["account", "create", "bob"]).await;
    let said = desk.text(&["export", "--to", &path]).await;
    assert_eq!(said, format!("Exported 2 accounts with 1 key to {path}.\n"));
    desk.quota.service.kill();
    desk.error(&["export", "--to", &path]).await;
    assert_eq!(
        std::fs::read_to_string(&file).unwrap().lines().count(),
        2,
        "a failed export leaves the last one"
    );
    let left = std::fs::read_dir(file.parent().unwrap()).unwrap();
    let left: Vec<_> = left.map(|found| found.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{left:?}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let desk = Desk::open().await;
    let folder = desk.path("");
    let said = desk.error(&["export", "--to", folder.to_str().unwrap()]).await;
    assert!(said.contains("no regular file"), "{said}");
    let said = desk.error(&["import", "missing.jsonl"]).await;
    assert!(said.contains("missing.jsonl can't be read"), "{said}");
}
