//! `key resume`, `deactivate`, `reactivate`, `rename`, `set-limit`, `delete`, `usage` and `events`.

use quota_api::Outcome;
use serde_json::json;

use super::cli_harness::CliHarness;

#[tokio::test]
async fn paused_key_is_resumed() {
    let cli = CliHarness::start_with(&["--burst-limit", "2"]).await;
    let (id, secret) = cli.create_account_and_key("ada").await;
    assert_eq!(cli.charge(&secret, 3).await, Outcome::BurstExceeded);
    let output = cli.text(&["key", "show", &id]).await;
    assert!(
        output.contains("paused since") && output.contains(&format!("quota-svc key resume {id}")),
        "{output}"
    );
    let error = cli.error(&["key", "reactivate", &id]).await;
    assert!(error.contains(&format!("quota-svc key resume {id}")), "{error}");
    assert_eq!(cli.json(&["key", "resume", &id]).await["state"], "active");
    assert_eq!(cli.charge(&secret, 2).await, Outcome::Allowed);
    assert!(
        cli.text(&["key", "resume", &id]).await.contains("active since"),
        "resuming twice is not an error"
    );
}

#[tokio::test]
async fn deactivated_key_is_reactivated_not_resumed() {
    let cli = CliHarness::start().await;
    let (id, secret) = cli.create_account_and_key("ada").await;
    let output = cli.text(&["key", "deactivate", &id]).await;
    assert!(
        output.contains("inactive since") && output.contains(&format!("key reactivate {id}")),
        "{output}"
    );
    assert_eq!(cli.json(&["key", "deactivate", &id]).await["state"], "inactive");
    assert_eq!(cli.charge(&secret, 1).await, Outcome::Inactive);
    let error = cli.error(&["key", "resume", &id]).await;
    assert!(error.contains(&format!("quota-svc key reactivate {id}")), "{error}");
    assert_eq!(cli.json(&["key", "reactivate", &id]).await["state"], "active");
    assert!(cli.text(&["key", "reactivate", &id]).await.contains("active since"));
    assert_eq!(cli.charge(&secret, 1).await, Outcome::Allowed);
}

#[tokio::test]
async fn name_and_limit_can_be_changed() {
    let cli = CliHarness::start_with(&["--daily-limit", "1234"]).await;
    let (id, _) = cli.create_account_and_key("ada").await;
    assert_eq!(cli.json(&["key", "rename", &id, "--name", "phone"]).await["name"], "phone");
    assert!(cli.text(&["key", "rename", &id, "--name", "tablet"]).await.contains("tablet"));
    assert_eq!(cli.json(&["key", "set-limit", &id, "--daily-limit", "50000"]).await["daily_limit"], 50_000);
    assert!(cli.text(&["key", "set-limit", &id, "--daily-limit", "default"]).await.contains("0 of 1,234"));
    assert_eq!(cli.json(&["key", "show", &id]).await["daily_limit"], 1_234);
    for changed in [true, false] {
        let own_limit = cli.json(&["key", "set-limit", &id, "--daily-limit", "1234"]).await;
        assert_eq!(own_limit["changed"], changed, "the default's number is an own limit");
    }
    let error = cli.error(&["key", "rename", &id, "--name", ""]).await;
    assert!(error.contains("1 to 64 characters"), "{error}");
    let invalid = cli.run(&["key", "set-limit", &id, "--daily-limit", "0"]).await;
    assert_eq!(invalid.status.code(), Some(2));
    assert!(invalid.stderr.contains("`default`"), "{invalid:?}");
}

#[tokio::test]
async fn deleted_key_is_unknown() {
    let cli = CliHarness::start().await;
    let (id, secret) = cli.create_account_and_key("ada").await;
    let (other, _) = cli.create_key("ada", "phone").await;
    let deleted = cli.json(&["key", "delete", &id, "--yes"]).await;
    assert_eq!(deleted, json!({ "deleted": true, "id": id, "account": "ada", "name": "laptop" }));
    assert_eq!(cli.charge(&secret, 1).await, Outcome::UnknownKey);
    assert!(cli.text(&["key", "delete", &other, "-y"]).await.starts_with("Deleted key phone (ipl_"));
    assert_eq!(cli.json(&["key", "list", "--account", "ada"]).await, json!({ "keys": [] }));
}

#[tokio::test]
async fn usage_is_shown_per_day() {
    let cli = CliHarness::start().await;
    let (id, secret) = cli.create_account_and_key("ada").await;
    cli.charge(&secret, 12).await;
    let usage = cli.json(&["key", "usage", &id]).await;
    let days = usage["days"].as_array().unwrap();
    assert_eq!((&usage["id"], &usage["daily_limit"], days.len()), (&id.as_str().into(), &10_000.into(), 31));
    let sum: u64 = days.iter().map(|day| day["requests"].as_u64().unwrap()).sum();
    assert_eq!(sum, 12);
    let text = cli.text(&["key", "usage", &id]).await;
    assert_eq!(text.lines().filter(|line| line.contains('▇')).count(), 1, "{text}");
    assert!(text.contains("REQUESTS") && text.contains("of 10,000"), "{text}");
}

#[tokio::test]
async fn events_have_kind_and_reason_and_name_the_operator() {
    let cli = CliHarness::start().await;
    let (id, _) = cli.create_account_and_key("ada").await;
    cli.json(&["key", "deactivate", &id]).await;
    cli.json(&["key", "set-limit", &id, "--daily-limit", "9"]).await;
    let events = cli.json(&["key", "events", &id]).await;
    let kinds: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["limit_changed", "deactivated", "created"]);
    let text = cli.text(&["key", "events", &id]).await;
    assert!(
        text.contains("limit changed") && text.contains("daily limit set to 9 (by the operator)"),
        "{text}"
    );
    assert!(text.contains("created (by the operator)"), "{text}");
    assert!(text.lines().nth(1).unwrap().contains(" UTC"), "{text}");
}
