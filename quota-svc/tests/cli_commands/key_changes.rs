//! The changes of a key's life, its usage and its events.

use quota_client::wire::Outcome;
use serde_json::json;

use crate::desk::Desk;

#[tokio::test]
async fn a_paused_key_is_resumed() {
    let desk = Desk::open_with(&["--burst-limit", "2"]).await;
    let (id, secret) = desk.key("ada").await;
    assert_eq!(desk.charge(&secret, 3).await, Outcome::BurstExceeded);
    let said = desk.text(&["key", "show", &id]).await;
    assert!(said.contains("paused since") && said.contains(&format!("quota-svc key resume {id}")), "{said}");
    let said = desk.error(&["key", "reactivate", &id]).await;
    assert!(said.contains(&format!("quota-svc key resume {id}")), "{said}");
    assert_eq!(desk.json(&["key", "resume", &id]).await["state"], "active");
    assert_eq!(desk.charge(&secret, 2).await, Outcome::Allowed);
    assert!(desk.text(&["key", "resume", &id]).await.contains("active since"), "again is fine");
}

#[tokio::test]
async fn a_deactivated_key_is_reactivated_not_resumed() {
    let desk = Desk::open().await;
    let (id, secret) = desk.key("ada").await;
    let said = desk.text(&["key", "deactivate", &id]).await;
    assert!(said.contains("inactive since") && said.contains(&format!("key reactivate {id}")), "{said}");
    assert_eq!(desk.json(&["key", "deactivate", &id]).await["state"], "inactive");
    assert_eq!(desk.charge(&secret, 1).await, Outcome::Inactive);
    let said = desk.error(&["key", "resume", &id]).await;
    assert!(said.contains(&format!("quota-svc key reactivate {id}")), "{said}");
    assert_eq!(desk.json(&["key", "reactivate", &id]).await["state"], "active");
    assert!(desk.text(&["key", "reactivate", &id]).await.contains("active since"));
    assert_eq!(desk.charge(&secret, 1).await, Outcome::Allowed);
}

#[tokio::test]
async fn names_and_limits_change() {
    let desk = Desk::open_with(&["--daily-limit", "1234"]).await;
    let (id, _) = desk.key("ada").await;
    assert_eq!(desk.json(&["key", "rename", &id, "--name", "phone"]).await["name"], "phone");
    assert!(desk.text(&["key", "rename", &id, "--name", "tablet"]).await.contains("tablet"));
    assert_eq!(desk.json(&["key", "set-limit", &id, "--daily", "50000"]).await["daily_limit"], 50_000);
    assert!(desk.text(&["key", "set-limit", &id, "--daily", "default"]).await.contains("0 of 1,234"));
    assert_eq!(desk.json(&["key", "show", &id]).await["daily_limit"], 1_234);
    let said = desk.error(&["key", "rename", &id, "--name", ""]).await;
    assert!(said.contains("1 to 64 characters"), "{said}");
    let wrong = desk.run(&["key", "set-limit", &id, "--daily", "0"]).await;
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stderr.contains("`default`"), "{wrong:?}");
}

#[tokio::test]
async fn a_deleted_key_is_gone() {
    let desk = Desk::open().await;
    let (id, secret) = desk.key("ada").await;
    let (other, _) = desk.another_key("ada", "phone").await;
    let deleted = desk.json(&["key", "delete", &id, "--yes"]).await;
    assert_eq!(deleted, json!({ "deleted": true, "id": id, "account": "ada", "name": "laptop" }));
    assert_eq!(desk.charge(&secret, 1).await, Outcome::UnknownKey);
    assert!(desk.text(&["key", "delete", &other, "-y"]).await.starts_with("Deleted the key phone (ipl_"));
    assert_eq!(desk.json(&["key", "list", "--account", "ada"]).await, json!({ "keys": [] }));
}

#[tokio::test]
async fn usage_is_shown_by_day() {
    let desk = Desk::open().await;
    let (id, secret) = desk.key("ada").await;
    desk.charge(&secret, 12).await;
    let usage = desk.json(&["key", "usage", &id]).await;
    let days = usage["days"].as_array().unwrap();
    assert_eq!((&usage["id"], &usage["daily_limit"], days.len()), (&id.as_str().into(), &10_000.into(), 31));
    let sum: u64 = days.iter().map(|day| day["requests"].as_u64().unwrap()).sum();
    assert_eq!(sum, 12);
    let text = desk.text(&["key", "usage", &id]).await;
    assert_eq!(text.lines().filter(|line| line.contains('▇')).count(), 1, "{text}");
    assert!(text.contains("REQUESTS") && text.contains("of 10,000"), "{text}");
}

#[tokio::test]
async fn events_say_what_happened_and_why() {
    let desk = Desk::open().await;
    let (id, _) = desk.key("ada").await;
    desk.json(&["key", "deactivate", &id]).await;
    desk.json(&["key", "set-limit", &id, "--daily", "9"]).await;
    let events = desk.json(&["key", "events", &id]).await;
    let kinds: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["limit_changed", "deactivated", "created"]);
    let text = desk.text(&["key", "events", &id]).await;
    assert!(text.contains("limit changed") && text.contains("daily limit set to 9"), "{text}");
    assert!(text.lines().nth(1).unwrap().contains(" UTC"), "{text}");
}
