//! Password links: the commands that print them and the operation that uses them.

use std::time::Duration;

use dashboard_api::password_link::LinkToken;
use quota_client::wire::{NewAccount, SessionKind};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::wait::eventually;
use tokio::task::JoinSet;

use crate::harness::{Browser, Harness, JsonResponse, PASSWORD, read};
use crate::set_password::run;

const NEW_PASSWORD: &str = "set with a link";
const HOUR: Duration = Duration::from_secs(3_600);
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// The token of a new link.
async fn create_token(harness: &Harness, login: &str) -> String {
    let quota = harness.quota.client();
    let account = quota.find_account(login).await.unwrap().unwrap();
    let token = LinkToken::generate(&account.id).unwrap();
    token.store(&quota, SessionKind::Link, HOUR).await.unwrap();
    token_of(&token.link("http://keys.example"))
}

fn token_of(link: &str) -> String {
    link.strip_prefix("http://keys.example/#set-password=").unwrap().to_owned()
}

async fn set_password(browser: &Browser, token: &str, password: &str) -> JsonResponse {
    browser.post("/account/password-link", json!({"token": token, "password": password})).await
}

async fn sign_in(harness: &Harness, login: &str, password: &str) -> u16 {
    harness.browser().post("/session", json!({"login": login, "password": password})).await.status
}

/// Runs a command that must succeed, with JSON output.
fn command(harness: &Harness, args: &[&str]) -> Value {
    let flags = ["--public-url", "http://keys.example/", "--output", "json"];
    let output = run(harness, &[args, &flags].concat(), "");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn link_sets_the_password_once_and_ends_all_sessions_and_links() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    let (token, other) = (create_token(&harness, "ada").await, create_token(&harness, "ada").await);
    assert_eq!(sign_in(&harness, "ada", PASSWORD).await, 200, "an unused link changes nothing");

    let set = set_password(&harness.browser(), &token, NEW_PASSWORD).await;
    assert_eq!((set.status, set.headers.get("set-cookie")), (204, None), "{set:?}");
    assert_eq!(ada.get("/account").await.status_and_code(), "401 unauthenticated");
    assert_eq!(sign_in(&harness, "ada", PASSWORD).await, 401);
    assert_eq!(sign_in(&harness, "ada", NEW_PASSWORD).await, 200);
    for token in [token, other] {
        let again = set_password(&harness.browser(), &token, "a third password").await;
        assert_eq!(again.status_and_code(), "403 invalid_link");
    }
    assert_eq!(sign_in(&harness, "ada", NEW_PASSWORD).await, 200);
}

#[tokio::test]
async fn rejected_password_leaves_the_link_and_sessions_valid() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada@example.org").await;
    let token = create_token(&harness, "ada@example.org").await;
    for password in ["short", "Password1", "ADA@example.org", &"x".repeat(1025)] {
        let rejected = set_password(&harness.browser(), &token, password).await;
        assert_eq!(rejected.status_and_code(), "400 invalid_password");
    }
    assert_eq!(ada.get("/account").await.status, 200);
    assert_eq!(set_password(&harness.browser(), &token, NEW_PASSWORD).await.status, 204);
}

#[tokio::test]
async fn malformed_unknown_and_expired_links_get_the_same_403() {
    let harness = Harness::start().await;
    harness.sign_up("ada").await;
    let quota = harness.quota.client();
    let account = quota.find_account("ada").await.unwrap().unwrap().id;
    let expired = LinkToken::generate(&account).unwrap();
    expired.store(&quota, SessionKind::Link, Duration::from_secs(1)).await.unwrap();
    let is_inactive =
        async || quota.session_account(&account, &expired.sha256()).await.unwrap().is_none().then_some(());
    eventually(WAIT_TIMEOUT, "link expires", is_inactive).await;
    let valid = create_token(&harness, "ada").await;
    let wrong = [
        "".to_owned(),
        "not a token".to_owned(),
        valid[4..].to_owned(),
        format!("{valid}AAAA"),
        // Of this account, and of none.
        format!("{}AAAA", &valid[..71]),
        format!("AAAA{}", &valid[4..]),
        token_of(&expired.link("http://keys.example")),
    ];
    let first = set_password(&harness.browser(), &wrong[0], NEW_PASSWORD).await;
    assert_eq!(first.status_and_code(), "403 invalid_link");
    assert_eq!(first.body["message"], "This link is no longer valid. Request a new one.");
    for token in &wrong {
        // The password is not checked before the link.
        for password in [NEW_PASSWORD, "short"] {
            let response = set_password(&harness.browser(), token, password).await;
            assert_eq!((response.status, &response.body), (403, &first.body), "{token}");
        }
    }
    assert_eq!(sign_in(&harness, "ada", PASSWORD).await, 200);
    assert_eq!(set_password(&harness.browser(), &valid, NEW_PASSWORD).await.status, 204);
}

#[tokio::test]
async fn concurrent_uses_of_one_link_set_one_password() {
    let harness = Harness::start().await;
    let quota = harness.quota.client();
    for login in ["ada", "grace", "alan"] {
        quota.create_account(&NewAccount { login: login.to_owned(), credential: None }).await.unwrap();
        let token = create_token(&harness, login).await;
        let mut uses = JoinSet::new();
        for n in 0..8 {
            let (browser, token) = (harness.browser(), token.clone());
            uses.spawn(async move {
                let password = format!("{NEW_PASSWORD} {n}");
                (set_password(&browser, &token, &password).await.status_and_code(), password)
            });
        }
        let (set, rejected): (Vec<_>, Vec<_>) =
            uses.join_all().await.into_iter().partition(|(status, _)| status == "204");
        assert_eq!(set.len(), 1, "{set:?} {rejected:?}");
        assert!(rejected.iter().all(|(status, _)| status == "403 invalid_link"), "{rejected:?}");
        assert_eq!(sign_in(&harness, login, &set[0].1).await, 200);
    }
}

#[tokio::test]
async fn link_ends_with_a_password_change_and_with_its_account() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    let token = create_token(&harness, "ada").await;
    let change = json!({"current_password": PASSWORD, "new_password": "another password"});
    assert_eq!(ada.put("/account/password", change).await.status, 204);
    assert_eq!(
        set_password(&harness.browser(), &token, NEW_PASSWORD).await.status_and_code(),
        "403 invalid_link"
    );

    let token = create_token(&harness, "ada").await;
    assert_eq!(ada.post("/account/delete", json!({"password": "another password"})).await.status, 204);
    let deleted = set_password(&harness.browser(), &token, NEW_PASSWORD).await;
    assert_eq!(deleted.status_and_code(), "403 invalid_link");
    harness.sign_up("ada").await;
    let registered_again = set_password(&harness.browser(), &token, NEW_PASSWORD).await;
    assert_eq!((registered_again.status, registered_again.body), (403, deleted.body));
}

#[tokio::test]
async fn uses_of_links_are_throttled_per_address() {
    let harness = Harness::start_with(&["--trusted-proxies", "127.0.0.0/8"]).await;
    let attempt = async |address: &str| {
        let request = harness.browser().change(Method::POST, "/account/password-link");
        let request = request.header("X-Forwarded-For", address);
        read(request.json(&json!({"token": "x", "password": NEW_PASSWORD}))).await.status_and_code()
    };
    // One more is allowed per second.
    let mut allowed = 0;
    while attempt("192.0.2.1").await == "403 invalid_link" {
        allowed += 1;
        assert!(allowed < 2_000, "not throttled");
    }
    assert!(allowed >= 600, "{allowed}");
    assert_eq!(attempt("192.0.2.2").await, "403 invalid_link");
}

#[tokio::test]
async fn invitation_creates_an_account_whose_owner_sets_the_password() {
    let harness = Harness::start_with(&["--signup", "off"]).await;
    let invitation = command(&harness, &["invite", "Ada"]);
    assert_eq!((&invitation["account"], &invitation["expires_in_seconds"]), (&"ada".into(), &604_800.into()));
    let again = command(&harness, &["invite", "ada"]);
    assert_ne!(again["link"], invitation["link"]);
    let token = token_of(again["link"].as_str().unwrap());
    assert_eq!(set_password(&harness.browser(), &token, NEW_PASSWORD).await.status, 204);
    assert_eq!(sign_in(&harness, "ada", NEW_PASSWORD).await, 200);

    let taken = run(&harness, &["invite", "ada", "--public-url", "http://keys.example"], "");
    let message = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert!(!taken.status.success() && message.contains("reset-password ada --link"), "{message}");

    let reset = command(&harness, &["reset-password", "ada", "--link"]);
    assert_eq!(reset["expires_in_seconds"], 1_800);
    assert_eq!(sign_in(&harness, "ada", NEW_PASSWORD).await, 200, "the old password is valid until then");
    let token = token_of(reset["link"].as_str().unwrap());
    assert_eq!(set_password(&harness.browser(), &token, "forgotten before").await.status, 204);
    assert_eq!(sign_in(&harness, "ada", "forgotten before").await, 200);
    assert!(!harness.service.logs().contains(&token), "{}", harness.service.logs());
}

#[tokio::test]
async fn link_without_a_public_url_is_an_error_and_creates_nothing() {
    let harness = Harness::start().await;
    for args in [&["invite", "ada"][..], &["reset-password", "ada", "--link"]] {
        let output = run(&harness, args, "");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains("--public-url"), "{message}");
    }
    assert!(harness.quota.client().find_account("ada").await.unwrap().is_none());
}
