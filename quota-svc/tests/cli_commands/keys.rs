//! `key create`, `key list`, `key show`, and keys that are not there.

use api_key::ApiKey;
use quota_client::wire::{Charge, ChargeRequest, Outcome};

use crate::desk::{Desk, string};

impl Desk {
    /// Charges a key `times` times and gives the last outcome.
    pub async fn charge(&self, key: &str, times: usize) -> Outcome {
        let key_sha256 = Some(ApiKey::parse(key).expect("a well-formed key").digest().to_hex());
        let charges = vec![Charge { key_sha256, demo: None }; times];
        let answer = self.quota.client().charge(&ChargeRequest { charges }).await.unwrap();
        answer.verdicts.last().unwrap().outcome
    }
}

#[tokio::test]
async fn a_created_key_works_and_its_json_has_what_scripts_need() {
    let desk = Desk::open().await;
    let account = desk.json(&["account", "create", "ada"]).await;
    let args = "key create --account ada --name laptop --scope geo --daily-limit 2";
    let key = desk.json(&args.split(' ').collect::<Vec<_>>()).await;
    assert_eq!((&key["account"], &key["account_id"]), (&"ada".into(), &account["id"]));
    assert_eq!((&key["scope"], &key["name"]), (&"geo".into(), &"laptop".into()));
    assert_eq!((&key["state"], &key["daily_limit"]), (&"active".into(), &2.into()));
    let secret = string(&key["key"]);
    let hint = string(&key["hint"]);
    assert!(hint.starts_with(&secret[..8]) && hint.ends_with(&secret[secret.len() - 4..]), "{hint}");
    assert_eq!(desk.charge(&secret, 2).await, Outcome::Allowed);
    assert_eq!(desk.charge(&secret, 1).await, Outcome::DailyExceeded);
    let shown = desk.json(&["key", "show", key["id"].as_str().unwrap()]).await;
    assert_eq!((&shown["account"], &shown["used_today"]), (&"ada".into(), &2.into()));
    assert!(shown.get("key").is_none());
}

#[tokio::test]
async fn people_see_the_key_once_and_are_told_so() {
    let desk = Desk::open().await;
    desk.text(&["account", "create", "ada"]).await;
    let said =
        desk.text(&["key", "create", "--account", "ada", "--name", "my laptop", "--scope", "full"]).await;
    let secrets: Vec<_> = said.split_whitespace().filter_map(|word| ApiKey::parse(word).ok()).collect();
    assert_eq!(secrets.len(), 1, "{said}");
    assert!(said.contains("only time"), "{said}");
    assert!(!said.contains('\u{1b}'), "no colours off a terminal: {said:?}");
    assert_eq!(desk.charge(secrets[0].expose(), 7).await, Outcome::Allowed);
    let listed = desk.text(&["key", "list", "--account", "ada"]).await;
    for part in ["ID", "my laptop", "full", "active", "7 of 10,000", " UTC", &secrets[0].hint()] {
        assert!(listed.contains(part), "{part} in {listed}");
    }
    assert!(!listed.contains(secrets[0].expose()));
    assert_eq!(listed.lines().count(), 2, "{listed}");
}

#[tokio::test]
async fn an_account_without_keys_has_an_empty_list() {
    let desk = Desk::open().await;
    desk.text(&["account", "create", "ada"]).await;
    assert_eq!(desk.json(&["key", "list", "--account", "ada"]).await, serde_json::json!({ "keys": [] }));
    assert!(desk.text(&["key", "list", "--account", "ada"]).await.contains("key create"));
}

#[tokio::test]
async fn an_unknown_account_is_not_created_by_the_way() {
    let desk = Desk::open().await;
    for args in ["key create --account bob --name n --scope ip", "key list --account bob"] {
        let said = desk.error(&args.split(' ').collect::<Vec<_>>()).await;
        assert!(said.contains("quota-svc account create bob"), "{said}");
    }
    assert_eq!(desk.json(&["account", "list"]).await, serde_json::json!({ "accounts": [] }));
}

#[tokio::test]
async fn the_eleventh_key_is_refused_with_a_way_out() {
    let desk = Desk::open().await;
    desk.key("ada").await;
    for n in 2..=10 {
        desk.another_key("ada", &format!("key {n}")).await;
    }
    let said = desk.error(&["key", "create", "--account", "ada", "--name", "n", "--scope", "ip"]).await;
    assert!(said.contains("key list --account ada") && said.contains("key delete"), "{said}");
    assert_eq!(desk.json(&["key", "list", "--account", "ada"]).await["keys"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn a_key_that_is_not_there_says_where_to_look() {
    let desk = Desk::open().await;
    let unknown = "0123456789abcdef0123456789abcdef";
    for command in ["show", "resume", "deactivate", "reactivate", "usage", "events"] {
        let said = desk.error(&["key", command, unknown]).await;
        assert!(said.contains(unknown) && said.contains("key list --account"), "{command}: {said}");
    }
    for args in [["rename", "--name", "n"], ["set-limit", "--daily", "5"]] {
        let said = desk.error(&[&["key"], &args[..], &[unknown]].concat()).await;
        assert!(said.contains(unknown), "{said}");
    }
    assert!(desk.error(&["key", "delete", unknown, "--yes"]).await.contains(unknown));
}

#[tokio::test]
async fn a_key_given_in_place_of_an_id_or_a_login_is_not_repeated() {
    let desk = Desk::open().await;
    let (id, secret) = desk.key("ada").await;
    for args in [["key", "show", &secret], ["key", "usage", &secret], ["account", "delete", &secret]] {
        let said =
            desk.error(&[&args[..], if args[0] == "account" { &["--yes"] } else { &[] }].concat()).await;
        assert!(!said.contains(&secret[4..]), "{said}");
    }
    let said = desk.error(&["key", "list", "--account", &secret]).await;
    assert!(!said.contains(&secret[4..]), "{said}");
    // Exact ids only: a part of one could be meant for another key.
    assert!(desk.error(&["key", "show", &id[..8]]).await.contains("32 lower-case hexadecimal digits"));
}
