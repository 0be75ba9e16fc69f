//! `export` and `import`.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use api_key::ApiKey;
use quota_api::{Outcome, SetCredential};
use quota_svc::domain::id::AccountId;
use serde_json::{Value, json};

use super::cli_harness::CliHarness;

/// The fields of an exported key except its digest.
const KEY_FIELDS: &str =
    r#""name":"n","hint":"h","scope":"ip","state":"active","state_since":1,"created_at":1"#;

/// An export line with `keys` keys. Their digests begin with a byte in the account's shard, and then with `from`,
/// `from + 1` and so on.
fn account_line(login: &str, from: u64, keys: u64) -> String {
    let (shard, rest) = (AccountId::of(login).shard(), "0".repeat(46));
    let key = |n| format!("{{\"sha256\":\"{shard:02x}{n:016x}{rest}\",{KEY_FIELDS}}}");
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
async fn export_after_import_has_the_same_lines() {
    let (old, new) = (CliHarness::start_with(&["--burst-limit", "5"]).await, CliHarness::start().await);
    let (id, secret) = old.create_account_and_key("ada").await;
    old.json(&["key", "set-limit", &id, "--daily-limit", "77"]).await;
    let (_, paused) = old.create_key("ada", "phone").await;
    let (inactive, _) = old.create_key("ada", "tablet").await;
    old.json(&["key", "deactivate", &inactive]).await;
    old.charge(&secret, 3).await;
    old.charge(&paused, 6).await;
    let bob = old.json(&["account", "create", "bob"]).await;
    let change = SetCredential { credential: "hash".to_owned(), ..SetCredential::default() };
    old.quota.client().set_credential(bob["id"].as_str().unwrap(), &change).await.unwrap();

    let export = old.text(&["export"]).await;
    assert_eq!(export.lines().count(), 2, "{export}");
    assert!(!export.contains(&secret[4..]) && export.contains("\"daily_limit\":77"), "{export}");
    for part in ["paused", "inactive", "active", "\"credential\":\"hash\"", "\"requests\":5"] {
        assert!(export.contains(part), "no {part} in {export}");
    }
    let imported = new.run_with_input(&["import", "-", "--output", "json"], &export).await.success();
    assert_eq!(serde_json::from_str::<Value>(&imported.stdout).unwrap(), report((2, 0), (3, 0, 0)));
    assert_eq!(lines(&new.text(&["export"]).await), lines(&export));
    assert_eq!(new.json(&["key", "show", &id]).await["used_today"], 3);
}

#[tokio::test]
async fn existing_keys_are_kept_and_excess_keys_skipped() {
    let cli = CliHarness::start().await;
    let file = cli.path("in.jsonl");
    std::fs::write(&file, account_line("ada", 0, 8) + &account_line("bob", 100, 1)).unwrap();
    let import = ["import", file.to_str().unwrap()];
    assert_eq!(cli.json(&import).await, report((2, 0), (9, 0, 0)));
    assert_eq!(cli.json(&import).await, report((0, 2), (0, 9, 0)));
    std::fs::write(&file, account_line("ada", 6, 5)).unwrap();
    assert_eq!(cli.json(&import).await, report((0, 1), (2, 2, 1)));
    let output = cli.text(&import).await;
    assert!(output.contains("EXISTING") && output.contains("at most 10 keys"), "{output}");
}

#[tokio::test]
async fn generated_key_can_be_imported_only_for_logins_of_its_shard() {
    let cli = CliHarness::start().await;
    let generated = cli.text(&["key", "generate", " Ada "]).await;
    let digest = ApiKey::parse(generated.trim_end()).unwrap().digest();
    let line = |login: &str| {
        let key = format!("{{\"sha256\":\"{}\",{KEY_FIELDS}}}", digest.to_hex());
        format!("{{\"login\":\"{login}\",\"created_at\":1,\"keys\":[{key}]}}\n")
    };
    for other in (0..5).map(|n| format!("user{n}")) {
        if AccountId::of(&other).shard() != AccountId::of("ada").shard() {
            let error = cli.run_with_input(&["import"], &line(&other)).await.failure();
            assert!(error.contains("quota-svc key generate LOGIN"), "{error}");
        }
    }
    cli.run_with_input(&["import"], &line("ada")).await.success();
    assert_eq!(cli.charge(generated.trim_end(), 1).await, Outcome::Allowed);
}

#[tokio::test]
async fn concurrent_batches_lose_nothing() {
    let cli = CliHarness::start().await;
    let input: String = (0..3_000).map(|n| account_line(&format!("user{n}"), n * 10, 2)).collect();
    let output = cli.run_with_input(&["import"], &input).await.success();
    assert!(output.stdout.contains("3,000") && output.stdout.contains("6,000"), "{output:?}");
    let exported = cli.run(&["export"]).await.success();
    assert!(exported.stderr.contains("Exported 3,000 accounts with 6,000 keys."), "{}", exported.stderr);
    let key_count =
        |line: &str| serde_json::from_str::<Value>(line).unwrap()["keys"].as_array().unwrap().len();
    assert_eq!(exported.stdout.lines().map(key_count).sum::<usize>(), 6_000);
    assert_eq!(lines(&exported.stdout).len(), 3_000);
}

#[tokio::test]
async fn invalid_line_is_named_and_later_lines_not_sent() {
    let cli = CliHarness::start().await;
    let valid =
        |from: u64, to: u64| (from..to).map(|n| account_line(&format!("user{n}"), n, 1)).collect::<String>();
    for (n, invalid) in
        ["{\"hush\"", "{\"login\":\"hush\"}", "{\"login\":\"a b\",\"created_at\":1,\"keys\":[]}"]
            .into_iter()
            .enumerate()
    {
        let start = n as u64 * 10_000;
        let input = valid(start, start + 450) + invalid + "\n" + &valid(start + 450, start + 1_000);
        let error = cli.run_with_input(&["import"], &input).await.failure();
        assert!(error.contains("line 451") && error.contains("again is safe"), "{error}");
        assert!(error.contains("450 accounts and 450 keys"), "{error}");
        assert!(!error.contains("hush"), "{error}");
        assert_eq!(lines(&cli.text(&["export"]).await).len(), 450 * (n + 1));
    }
}

#[tokio::test]
async fn import_without_quota_svc_fails_while_input_is_open() {
    let mut cli = CliHarness::start().await;
    cli.quota.service.kill();
    let url = cli.quota.url();
    let mut import = super::cli_harness::command(&["--quota-url", url, "import"]);
    let mut child = import.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input: String = (0..200).map(|n| account_line(&format!("user{n}"), n, 1)).collect();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, input.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    drop(stdin);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    for part in ["lines 1 to 200", url, "--quota-url", "again is safe"] {
        assert!(error.contains(part), "no {part} in {error}");
    }
}

#[tokio::test]
async fn export_file_is_atomic_and_private() {
    let mut cli = CliHarness::start().await;
    cli.create_account_and_key("ada").await;
    let file = cli.path("backup.jsonl");
    let path = file.to_str().unwrap().to_owned();
    let written = cli.json(&["export", "--to", &path]).await;
    assert_eq!(written, json!({ "accounts": 1, "keys": 1, "file": path }));
    let content = std::fs::read_to_string(&file).unwrap();
    assert_eq!(content, cli.text(&["export", "--output", "json"]).await, "output format changed the lines");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    cli.text(&["account", "create", "bob"]).await;
    let output = cli.text(&["export", "--to", &path]).await;
    assert_eq!(output, format!("Exported 2 accounts with 1 key to {path}.\n"));
    cli.quota.service.kill();
    cli.error(&["export", "--to", &path]).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 2, "failed export changed the file");
    let entries = std::fs::read_dir(file.parent().unwrap()).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{names:?}");
}

#[tokio::test]
async fn unusable_file_is_named_in_the_error() {
    let cli = CliHarness::start().await;
    let dir = cli.path("");
    let error = cli.error(&["export", "--to", dir.to_str().unwrap()]).await;
    assert!(error.contains("not a regular file"), "{error}");
    let error = cli.error(&["import", "missing.jsonl"]).await;
    assert!(error.contains("can't read missing.jsonl"), "{error}");
}
