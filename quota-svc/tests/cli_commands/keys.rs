//! `key create`, `key list`, `key show`, and unknown keys.

use api_key::ApiKey;
use quota_api::{Charge, ChargeRequest, Outcome};

use crate::cli_harness::{CliHarness, string};

impl CliHarness {
    /// Charges a key `times` times in one batch; returns the last outcome.
    pub async fn charge(&self, key: &str, times: usize) -> Outcome {
        let key_sha256 = Some(ApiKey::parse(key).expect("key is valid").digest().to_hex());
        let charges = vec![Charge { key_sha256, demo: None }; times];
        let response = self.quota.client().charge(&ChargeRequest { charges }).await.unwrap();
        response.verdicts.last().unwrap().outcome
    }
}

#[tokio::test]
async fn created_key_works_and_json_has_all_fields() {
    let cli = CliHarness::start().await;
    let account = cli.json(&["account", "create", "ada"]).await;
    let args = "key create --account ada --name laptop --scope geo --daily-limit 2";
    let key = cli.json(&args.split(' ').collect::<Vec<_>>()).await;
    assert_eq!((&key["account"], &key["account_id"]), (&"ada".into(), &account["id"]));
    assert_eq!((&key["scope"], &key["name"]), (&"geo".into(), &"laptop".into()));
    assert_eq!((&key["state"], &key["daily_limit"]), (&"active".into(), &2.into()));
    let secret = string(&key["key"]);
    let hint = string(&key["hint"]);
    assert!(hint.starts_with(&secret[..8]) && hint.ends_with(&secret[secret.len() - 4..]), "{hint}");
    assert_eq!(cli.charge(&secret, 2).await, Outcome::Allowed);
    assert_eq!(cli.charge(&secret, 1).await, Outcome::DailyExceeded);
    let shown = cli.json(&["key", "show", key["id"].as_str().unwrap()]).await;
    assert_eq!((&shown["account"], &shown["used_today"]), (&"ada".into(), &2.into()));
    assert!(shown.get("key").is_none());
}

#[tokio::test]
async fn text_output_shows_the_key_once() {
    let cli = CliHarness::start().await;
    cli.text(&["account", "create", "ada"]).await;
    let output =
        cli.text(&["key", "create", "--account", "ada", "--name", "my laptop", "--scope", "full"]).await;
    let secrets: Vec<_> = output.split_whitespace().filter_map(|word| ApiKey::parse(word).ok()).collect();
    assert_eq!(secrets.len(), 1, "{output}");
    assert!(output.contains("Save this key now"), "{output}");
    assert!(!output.contains('\u{1b}'), "color without a terminal: {output:?}");
    assert_eq!(cli.charge(secrets[0].expose(), 7).await, Outcome::Allowed);
    let listed = cli.text(&["key", "list", "--account", "ada"]).await;
    for part in ["ID", "my laptop", "full", "active", "7 of 10,000", " UTC", &secrets[0].hint()] {
        assert!(listed.contains(part), "no {part} in {listed}");
    }
    assert!(!listed.contains(secrets[0].expose()));
    assert_eq!(listed.lines().count(), 2, "{listed}");
}

#[tokio::test]
async fn account_without_keys_has_an_empty_list() {
    let cli = CliHarness::start().await;
    cli.text(&["account", "create", "ada"]).await;
    assert_eq!(cli.json(&["key", "list", "--account", "ada"]).await, serde_json::json!({ "keys": [] }));
    assert!(cli.text(&["key", "list", "--account", "ada"]).await.contains("key create"));
}

#[tokio::test]
async fn unknown_account_is_not_created() {
    let cli = CliHarness::start().await;
    for args in ["key create --account bob --name n --scope ip", "key list --account bob"] {
        let error = cli.error(&args.split(' ').collect::<Vec<_>>()).await;
        assert!(error.contains("quota-svc account create bob"), "{error}");
    }
    assert_eq!(cli.json(&["account", "list"]).await, serde_json::json!({ "accounts": [] }));
}

#[tokio::test]
async fn eleventh_key_is_rejected_with_next_step() {
    let cli = CliHarness::start().await;
    cli.create_account_and_key("ada").await;
    for n in 2..=10 {
        cli.create_key("ada", &format!("key {n}")).await;
    }
    let error = cli.error(&["key", "create", "--account", "ada", "--name", "n", "--scope", "ip"]).await;
    assert!(error.contains("key list --account ada") && error.contains("key delete"), "{error}");
    assert_eq!(cli.json(&["key", "list", "--account", "ada"]).await["keys"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn unknown_key_error_names_key_list() {
    let cli = CliHarness::start().await;
    let unknown = "0123456789abcdef0123456789abcdef";
    for command in ["show", "resume", "deactivate", "reactivate", "usage", "events"] {
        let error = cli.error(&["key", command, unknown]).await;
        assert!(error.contains(unknown) && error.contains("key list --account"), "{command}: {error}");
    }
    for args in [["rename", "--name", "n"], ["set-limit", "--daily", "5"]] {
        let error = cli.error(&[&["key"], &args[..], &[unknown]].concat()).await;
        assert!(error.contains(unknown), "{error}");
    }
    assert!(cli.error(&["key", "delete", unknown, "--yes"]).await.contains(unknown));
}

#[tokio::test]
async fn key_passed_as_id_or_login_is_not_repeated() {
    let cli = CliHarness::start().await;
    let (id, secret) = cli.create_account_and_key("ada").await;
    for args in [["key", "show", &secret], ["key", "usage", &secret], ["account", "delete", &secret]] {
        let error =
            cli.error(&[&args[..], if args[0] == "account" { &["--yes"] } else { &[] }].concat()).await;
        assert!(!error.contains(&secret[4..]), "{error}");
    }
    let error = cli.error(&["key", "list", "--account", &secret]).await;
    assert!(!error.contains(&secret[4..]), "{error}");
    // Only complete IDs are accepted: a prefix could match another key.
    assert!(cli.error(&["key", "show", &id[..8]]).await.contains("32 lowercase hexadecimal digits"));
}
