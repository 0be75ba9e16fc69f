//! `key create`, `key list`, `key show`, and unknown keys.

use api_key::ApiKey;
use quota_api::{Charge, Outcome};
use quota_svc::domain::id::{AccountId, KeyId};

use super::cli_harness::{CliHarness, string};

impl CliHarness {
    /// Charges a key `times` times in one batch; returns the last outcome.
    pub async fn charge(&self, key: &str, times: usize) -> Outcome {
        let digest = ApiKey::parse(key).expect("key is valid").digest();
        let charges = vec![Charge::Key { digest, origin: None }; times];
        let verdicts = self.quota.client().charge(&charges).await.unwrap();
        verdicts.last().unwrap().outcome()
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
async fn created_and_rotated_keys_are_in_the_shard_of_their_account() {
    let cli = CliHarness::start().await;
    for login in ["ada", "bob", "grace"] {
        let (id, _) = cli.create_account_and_key(login).await;
        let rotated = cli.json(&["key", "rotate", &id]).await;
        for id in [&id, rotated["id"].as_str().unwrap()] {
            assert_eq!(KeyId::from_hex(id).unwrap().shard(), AccountId::of(login).shard());
        }
    }
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
        assert!(error.contains(unknown) && error.contains("quota-svc key list"), "{command}: {error}");
    }
    for args in [["rename", "--name", "n"], ["set-limit", "--daily-limit", "5"]] {
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
    assert!(cli.error(&["key", "show", &secret[..20]]).await.contains("not its ID"), "an incomplete key");
    assert!(cli.text(&["key", "show", &id]).await.contains(&id));
}

#[tokio::test]
async fn key_is_found_by_the_start_of_its_id_its_hint_or_its_name() {
    let cli = CliHarness::start().await;
    let (id, secret) = cli.create_account_and_key("ada").await;
    cli.create_account_and_key("bob").await;
    let hint = ApiKey::parse(&secret).unwrap().hint();
    for key in [&id, &id[..8], &hint, &hint.replace('…', "..."), "ada/laptop", "ADA/laptop"] {
        assert!(cli.text(&["key", "show", key]).await.contains(&id), "{key}");
    }
    for key in ["ada/other", "eve/laptop", &id[..3], "ffffffffffffff", "ipl_0000…0000", ""] {
        let error = cli.error(&["key", "show", key]).await;
        assert!(error.contains("key list") || error.contains("account create"), "{key}: {error}");
    }
    cli.text(&["key", "create", "--account", "ada", "--name", "laptop", "--scope", "ip"]).await;
    assert!(cli.error(&["key", "show", "ada/laptop"]).await.contains("several such keys"));
}

#[tokio::test]
async fn expiry_origins_and_rotation_are_set_and_a_change_without_effect_says_so() {
    let cli = CliHarness::start().await;
    let (id, _) = cli.create_account_and_key("ada").await;
    let origins =
        ["key", "set-origins", &id, "--origin", "https://a.example", "--origin", "HTTP://b.example:80/"];
    let changed = cli.text(&origins).await;
    assert!(changed.contains("https://a.example") && changed.contains("http://b.example"), "{changed}");
    assert!(!changed.contains("Nothing has changed"), "{changed}");
    assert!(cli.text(&origins).await.contains("Nothing has changed"));
    assert!(cli.text(&["key", "resume", &id]).await.contains("Nothing has changed"));
    let dated = cli.text(&["key", "set-expiry", &id, "--expires", "2099-12-31"]).await;
    assert!(dated.contains("2099-12-31 00:00:00 UTC"), "{dated}");
    assert!(
        cli.error(&["key", "set-expiry", &id, "--expires", "2020-01-01"]).await.contains("in the future")
    );
    assert!(
        cli.error(&["key", "set-origins", &id, "--origin", "a.example"]).await.contains("at most 10 origins")
    );
    let rotated = cli.text(&["key", "rotate", &id, "--overlap", "1h", "--output", "json"]).await;
    let rotated: serde_json::Value = serde_json::from_str(&rotated).unwrap();
    assert!(
        ApiKey::parse(rotated["key"].as_str().unwrap()).is_ok() && rotated["id"] != id.as_str(),
        "{rotated}"
    );
    assert_eq!(rotated["allowed_origins"][0], "http://b.example");
    assert_eq!(rotated["old_key_expires_at"], cli.json(&["key", "show", &id]).await["expires_at"]);
    let copy = rotated["id"].as_str().unwrap();
    let until = cli.text(&["key", "rotate", copy, "--overlap", "0"]).await;
    assert!(until.contains("The old key works until 20"), "{until}");
    assert!(
        cli.error(&["key", "show", &id]).await.contains("no key with ID"),
        "the older old key is deleted"
    );
    assert!(cli.text(&["key", "show", copy]).await.contains("replaced by"));
    assert!(cli.error(&["key", "rotate", copy]).await.contains("can't be replaced again"));
    assert!(cli.error(&["key", "set-expiry", copy, "--expires", "never"]).await.contains("brought forward"));
    assert!(cli.error(&["key", "rotate", copy, "--overlap", "8d"]).await.contains("7 days"));
    let any = cli.text(&["key", "set-origins", copy, "--origin", "any"]).await;
    assert!(!any.contains("a.example"), "{any}");
    let (id, _) = cli.create_account_and_key("bob").await;
    cli.text(&["key", "set-expiry", &id, "--expires", "2099-12-31"]).await;
    let never = cli.text(&["key", "set-expiry", &id, "--expires", "never"]).await;
    assert!(never.contains("never"), "{never}");
    let list = cli.text(&["key", "list"]).await;
    assert!(list.contains("TODAY"), "{list}");
}

#[tokio::test]
async fn key_is_found_by_its_secret_on_standard_input() {
    let cli = CliHarness::start().await;
    let (id, secret) = cli.create_account_and_key("ada").await;
    let found = cli.run_with_input(&["key", "find"], &format!("{secret}\n")).await.success().stdout;
    assert!(found.contains(&id) && found.contains("ada") && !found.contains(&secret), "{found}");
    let found = cli.run_with_input(&["key", "find", "--output", "json"], &secret).await.success().stdout;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&found).unwrap()["id"], id.as_str());

    let unknown = ApiKey::generate().unwrap();
    let mistyped = secret.replace("ipl_", "ipl_0");
    for (input, part) in [
        (unknown.expose(), "no key with ID"),
        (&mistyped, "no API key"),
        ("", "no API key"),
        ("x", "no API key"),
    ] {
        let error = cli.run_with_input(&["key", "find"], input).await.failure();
        assert!(error.contains(part) && (input.len() < 2 || !error.contains(input)), "{error}");
    }
    let argument = cli.run(&["key", "find", &secret]).await;
    assert_eq!(argument.status.code(), Some(2), "a key as an argument is rejected: {argument:?}");
    let error = cli.error(&["key", "show", &secret]).await;
    assert!(error.contains("quota-svc key find") && !error.contains(&secret), "{error}");
}

#[tokio::test]
async fn keys_of_all_accounts_are_listed() {
    let cli = CliHarness::start().await;
    assert_eq!(cli.json(&["key", "list"]).await, serde_json::json!({ "keys": [] }));
    assert_eq!(cli.text(&["key", "list"]).await, "0 keys\n");
    cli.text(&["account", "create", "nobody"]).await;
    let mut ids = Vec::new();
    for login in ["bob", "ada"] {
        ids.push(cli.create_account_and_key(login).await.0);
        ids.push(cli.create_key(login, "phone").await.0);
    }
    let listed = cli.json(&["key", "list"]).await;
    let listed: Vec<_> = listed["keys"].as_array().unwrap().iter().collect();
    let field = |name: &str| listed.iter().map(|key| string(&key[name])).collect::<Vec<_>>();
    assert_eq!(field("account"), ["ada", "ada", "bob", "bob"]);
    assert_eq!(field("id"), [&ids[2], &ids[3], &ids[0], &ids[1]].map(String::clone));
    let text = cli.text(&["key", "list"]).await;
    assert_eq!((text.lines().count(), text.lines().last()), (6, Some("4 keys")), "{text}");
    assert!(text.lines().nth(1).unwrap().ends_with(" ada      laptop"), "{text}");
}

#[tokio::test]
async fn account_is_shown_with_its_keys() {
    let cli = CliHarness::start().await;
    let (id, _) = cli.create_account_and_key("ada").await;
    let shown = cli.json(&["account", "show", "ADA"]).await;
    assert_eq!((&shown["login"], &shown["keys"][0]["id"]), (&"ada".into(), &id.as_str().into()), "{shown}");
    assert!(!shown.to_string().contains("credential\""), "{shown}");
    let text = cli.text(&["account", "show", "ada"]).await;
    for part in ["login", "ada", &id, "laptop", "no: the account has no password"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let error = cli.error(&["account", "show", "eve"]).await;
    assert!(error.contains("quota-svc account create eve"), "{error}");
}
