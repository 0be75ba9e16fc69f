//! Every operation rejects requests without a valid session, CSRF header or Origin, requests for another account's key, and
//! requests of an account that is not an admin's or is suspended. Rejected requests change nothing.

use quota_client::wire::{AccountAction, AccountChange, EventList, ExportPage};
use reqwest::header::{COOKIE, ORIGIN};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::harness::{Browser, Harness, PASSWORD, read};

/// Operations that need no session.
const PUBLIC: [&str; 7] =
    ["getSettings", "getQuota", "signUp", "signIn", "setPasswordWithLink", "verifyMail", "forgotPassword"];

#[derive(Debug, Clone)]
struct Operation {
    id: String,
    method: Method,
    path: String,
}

impl Operation {
    fn is_public(&self) -> bool {
        PUBLIC.contains(&self.id.as_str())
    }

    fn is_change(&self) -> bool {
        self.method != Method::GET
    }

    fn is_for_admins(&self) -> bool {
        self.path.starts_with("/admin/")
    }

    fn names_a_key(&self) -> bool {
        self.path.contains("{id}") && !self.is_for_admins()
    }

    /// A request with the browser's session, this key and a valid body, but without Origin and CSRF header.
    fn request(&self, browser: &Browser, key: &str) -> RequestBuilder {
        let request = browser.request(self.method.clone(), &self.path.replace("{id}", key));
        match self.body() {
            Some(body) => request.json(&body),
            None => request,
        }
    }

    /// A valid body, if the operation needs one. Panics for a change that is not listed here.
    fn body(&self) -> Option<Value> {
        match self.id.as_str() {
            "signUp" => Some(json!({"login": "mallory", "password": PASSWORD})),
            "signIn" => Some(json!({"login": "ada", "password": PASSWORD})),
            "changePassword" => {
                Some(json!({"current_password": PASSWORD, "new_password": "another password"}))
            }
            "setPasswordWithLink" => Some(json!({"token": "x", "password": PASSWORD})),
            "deleteAccount" => Some(json!({"password": PASSWORD})),
            "setWebhook" => Some(json!({"url": "https://hooks.example/", "enabled": true})),
            "setMail" => Some(json!({"address": "ada@example.org", "notices": true, "password": PASSWORD})),
            "verifyMail" => Some(json!({"token": "x"})),
            "forgotPassword" => Some(json!({"login": "ada"})),
            "createKey" => Some(json!({"name": "stolen", "scope": "full"})),
            "changeKey" => Some(json!({"name": "stolen"})),
            "rotateKey" => Some(json!({"overlap": 60})),
            "signOut" | "resumeKey" | "deactivateKey" | "reactivateKey" | "deleteKey" => None,
            "replaceWebhookSecret" | "testWebhook" => None,
            "changeAccount" => Some(json!({"action": "suspend", "reason": "abuse"})),
            "invite" => Some(json!({"login": "mallory"})),
            "deleteAccountOf" => Some(json!({"login": "grace"})),
            "setDailyLimit" => Some(json!({"daily_limit": 7})),
            "createPasswordLink" | "deactivateKeyOf" => None,
            id => {
                assert_eq!(self.method, Method::GET, "add the body of {id} to this test");
                None
            }
        }
    }
}

async fn operations(harness: &Harness) -> Vec<Operation> {
    let document = testkit::http::client().get(format!("{}/openapi.json", harness.url)).send().await.unwrap();
    let document: Value = document.json().await.unwrap();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            found.push(Operation {
                id: operation["operationId"].as_str().unwrap().to_owned(),
                method: method.to_uppercase().parse().unwrap(),
                path: path.strip_prefix("/api/v1").unwrap().to_owned(),
            });
        }
    }
    assert!(found.len() >= 40, "operations are missing: {found:?}");
    found
}

/// All stored accounts and keys, and the events of one key.
async fn stored_data(harness: &Harness, key: &str) -> (ExportPage, EventList) {
    let quota = harness.quota.client();
    (quota.export(None, 200).await.unwrap(), quota.events(key, None).await.unwrap())
}

#[tokio::test]
async fn unauthorized_requests_are_rejected_and_change_nothing() {
    let harness = Harness::start().await;
    let (ada, grace) = (harness.sign_up("ada").await, harness.sign_up("grace").await);
    let (key, _) = ada.create_key("key of ada").await;
    let fixture = Fixture {
        harness: &harness,
        ada: &ada,
        grace: &grace,
        key: &key,
        revoked: &revoked_cookie(&harness).await,
    };
    let before = stored_data(&harness, &key).await;
    let mut checked = Vec::new();
    for operation in operations(&harness).await {
        for (case, request, expected) in cases(&operation, &fixture) {
            let response = read(request).await;
            assert_eq!(response.status_and_code(), expected, "{} with {case}: {response:?}", operation.id);
            assert!(response.body["message"].is_string() && response.body["docs"].is_string());
            assert!(response.headers.get("set-cookie").is_none(), "an error response must not set a cookie");
            checked.push(format!("{} {case}", operation.id));
        }
    }
    assert_eq!(stored_data(&harness, &key).await, before, "stored data must not change");
    assert_eq!(ada.get("/account").await.status, 200, "sessions must stay active");
    assert_eq!(grace.get("/account").await.status, 200);
    assert!(checked.len() > 80, "{checked:?}");
}

struct Fixture<'a> {
    harness: &'a Harness,
    ada: &'a Browser,
    grace: &'a Browser,
    /// ID of a key that belongs to ada.
    key: &'a str,
    /// Cookie of a session that has been signed out.
    revoked: &'a str,
}

fn cases(operation: &Operation, fixture: &Fixture<'_>) -> Vec<(&'static str, RequestBuilder, &'static str)> {
    let Fixture { harness, ada, grace, key, revoked } = *fixture;
    let plain = |browser: &Browser| operation.request(browser, key);
    let with_origin = |request: RequestBuilder| request.header(ORIGIN, &harness.url);
    let with_headers = |request: RequestBuilder| with_origin(request).header("X-CSRF-Token", "1");
    let mut cases = Vec::new();
    if operation.is_change() {
        let from_origin = |origin: &str| plain(ada).header("X-CSRF-Token", "1").header(ORIGIN, origin);
        cases.extend([
            ("no CSRF header", with_origin(plain(ada)), "403 csrf_refused"),
            ("a wrong CSRF header", with_origin(plain(ada)).header("X-CSRF-Token", "2"), "403 csrf_refused"),
            ("another Origin", from_origin("https://evil.example"), "403 csrf_refused"),
            ("Origin null", from_origin("null"), "403 csrf_refused"),
            ("no Origin", plain(ada).header("X-CSRF-Token", "1"), "403 csrf_refused"),
        ]);
    }
    if !operation.is_public() {
        let with_cookie = |cookie: &str| with_headers(plain(&harness.browser())).header(COOKIE, cookie);
        cases.extend([
            ("no session", with_headers(plain(&harness.browser())), "401 unauthenticated"),
            ("an empty cookie", with_cookie("ipl_session="), "401 unauthenticated"),
            ("a tampered cookie", with_cookie(&tampered(ada)), "401 unauthenticated"),
        ]);
        // Signing out of an ended session succeeds, to clear the cookie.
        if operation.id != "signOut" {
            cases.push(("the cookie of a revoked session", with_cookie(revoked), "401 unauthenticated"));
        }
    }
    if operation.is_for_admins() {
        cases.push(("an owner's session", with_headers(plain(ada)), "403 admin_required"));
    }
    if operation.names_a_key() {
        cases.push(("another account's key", with_headers(plain(grace)), "404 key_not_found"));
        let unknown_key = with_headers(operation.request(grace, "00000000000000000000000000000000"));
        cases.push(("an unknown key", unknown_key, "404 key_not_found"));
    }
    cases
}

#[tokio::test]
async fn suspended_owner_can_read_and_sign_out_but_change_nothing() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    let (key, _) = ada.create_key("key of ada").await;
    let quota = harness.quota.client();
    let account = quota.find_account("ada").await.unwrap().unwrap().id;
    for action in [AccountAction::MakeAdmin, AccountAction::Suspend] {
        let reason = (action == AccountAction::Suspend).then(|| "abuse".to_owned());
        quota.change_account(&account, &AccountChange { action, reason }).await.unwrap();
    }
    let before = stored_data(&harness, &key).await;
    for operation in operations(&harness).await {
        if operation.is_public() || operation.id == "signOut" {
            continue;
        }
        let request = operation.request(&ada, &key).header(ORIGIN, &harness.url).header("X-CSRF-Token", "1");
        let response = read(request).await;
        if operation.is_change() || operation.is_for_admins() {
            assert_eq!(response.status_and_code(), "403 account_suspended", "{}", operation.id);
            assert!(response.body["message"].as_str().unwrap().contains("abuse"), "{response:?}");
        } else {
            assert_eq!(response.status, 200, "{}: {response:?}", operation.id);
        }
    }
    assert_eq!(stored_data(&harness, &key).await, before, "stored data must not change");
    assert_eq!(ada.get("/account").await.body["suspension"]["reason"], "abuse");
    assert_eq!(ada.delete("/session").await.status, 204);
}

#[tokio::test]
async fn admin_may_call_every_operation_and_gets_no_secret() {
    let harness = Harness::start().await;
    let (admin, grace) = (harness.sign_up("root").await, harness.sign_up("grace").await);
    let (key, created) = grace.create_key("key of grace").await;
    let secret = created.body["secret"].as_str().unwrap();
    let quota = harness.quota.client();
    let id_of = async |login: &str| quota.find_account(login).await.unwrap().unwrap().id;
    let (root, account) = (id_of("root").await, id_of("grace").await);
    quota.change_account(&root, &AccountChange::new(AccountAction::MakeAdmin)).await.unwrap();
    let stored = quota.credential(&account).await.unwrap().credential.unwrap();
    let mut operations: Vec<_> = operations(&harness).await;
    operations.retain(Operation::is_for_admins);
    // The deletion last.
    operations.sort_by_key(|operation| operation.id == "deleteAccountOf");
    for operation in &operations {
        let is_of_key = operation.path.starts_with("/admin/keys");
        let send = |id: &str| {
            let request = operation.request(&admin, id).header(ORIGIN, &harness.url);
            read(request.header("X-CSRF-Token", "1"))
        };
        if operation.path.contains("{id}") {
            let missing = send("00000000000000000000000000000000").await;
            let code = if is_of_key { "404 key_not_found" } else { "404 account_not_found" };
            assert_eq!(missing.status_and_code(), code, "{}", operation.id);
        }
        if matches!(operation.id.as_str(), "changeAccount" | "deleteAccountOf") {
            assert_eq!(send(&root).await.status_and_code(), "409 own_account", "{}", operation.id);
        }
        let response = send(if is_of_key { &key } else { &account }).await;
        assert!((200..300).contains(&response.status), "{}: {response:?}", operation.id);
        let text = response.body.to_string();
        assert!(!text.contains(secret) && !text.contains(&stored), "{}: {text}", operation.id);
    }
    assert!(quota.find_account("grace").await.unwrap().is_none(), "the last operation has deleted it");
    assert!(operations.len() >= 11, "{operations:?}");
}

/// The cookie with one character changed.
fn tampered(browser: &Browser) -> String {
    let mut cookie = browser.cookie.clone().unwrap();
    let middle = cookie.len() / 2;
    let other = if cookie.as_bytes()[middle] == b'A' { "B" } else { "A" };
    cookie.replace_range(middle..=middle, other);
    cookie
}

/// A cookie of ada that was valid until she signed out.
async fn revoked_cookie(harness: &Harness) -> String {
    let mut ada = harness.browser();
    let signed_in = ada.post("/session", json!({"login": "ada", "password": PASSWORD})).await;
    assert_eq!(signed_in.status, 200, "{signed_in:?}");
    ada.store_cookies(&signed_in);
    assert_eq!(ada.delete("/session").await.status, 204);
    ada.cookie.unwrap()
}
