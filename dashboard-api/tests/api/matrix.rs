//! F21: every operation of the document, in every way that must be refused; and nothing has changed.

use quota_client::wire::{EventList, ExportPage};
use reqwest::header::{COOKIE, ORIGIN};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::rig::{PASSWORD, Rig, Visitor, read};

/// What anybody may call.
const PUBLIC: [&str; 3] = ["getSettings", "signUp", "signIn"];

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

    fn names_a_key(&self) -> bool {
        self.path.contains("{id}")
    }

    /// The request as it would succeed, for the visitor's session and this key, with a body that is right.
    fn request(&self, visitor: &Visitor, key: &str) -> RequestBuilder {
        let request = visitor.request(self.method.clone(), &self.path.replace("{id}", key));
        match self.body() {
            Some(body) => request.json(&body),
            None => request,
        }
    }

    /// A new operation must be added here before the matrix is whole again.
    fn body(&self) -> Option<Value> {
        match self.id.as_str() {
            "signUp" => Some(json!({"login": "mallory", "password": PASSWORD})),
            "signIn" => Some(json!({"login": "ada", "password": PASSWORD})),
            "changePassword" => {
                Some(json!({"current_password": PASSWORD, "new_password": "another password"}))
            }
            "deleteAccount" => Some(json!({"password": PASSWORD})),
            "createKey" => Some(json!({"name": "stolen", "scope": "full"})),
            "renameKey" => Some(json!({"name": "stolen"})),
            "signOut" | "resumeKey" | "deactivateKey" | "reactivateKey" | "deleteKey" => None,
            id => {
                assert_eq!(self.method, Method::GET, "{id} is a change that this test does not know");
                None
            }
        }
    }
}

async fn operations(rig: &Rig) -> Vec<Operation> {
    let document = e2e::http::client().get(format!("{}/openapi.json", rig.url)).send().await.unwrap();
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
    assert!(found.len() >= 17, "the document has all operations: {found:?}");
    found
}

/// Everything that is stored.
async fn everything(rig: &Rig, key: &str) -> (ExportPage, EventList) {
    let quota = rig.quota.client();
    (quota.export(None, 200).await.unwrap(), quota.events(key, None).await.unwrap())
}

#[tokio::test]
async fn every_operation_is_refused_in_every_wrong_way_and_nothing_changes() {
    let rig = Rig::start().await;
    let (ada, grace) = (rig.sign_up("ada").await, rig.sign_up("grace").await);
    let (key, _) = ada.create_key("hers").await;
    let people = People { rig: &rig, ada: &ada, grace: &grace, key: &key, replayed: &signed_out(&rig).await };
    let before = everything(&rig, &key).await;
    let mut told = Vec::new();
    for operation in operations(&rig).await {
        for (case, request, expected) in cases(&operation, &people) {
            let answer = read(request).await;
            assert_eq!(answer.told(), expected, "{} with {case}: {answer:?}", operation.id);
            assert!(answer.body["message"].is_string() && answer.body["docs"].is_string());
            assert!(answer.headers.get("set-cookie").is_none(), "a refusal gives no session");
            told.push(format!("{} {case}", operation.id));
        }
    }
    assert_eq!(everything(&rig, &key).await, before, "nothing changed");
    assert_eq!(ada.get("/account").await.status, 200, "and nobody was signed out");
    assert_eq!(grace.get("/account").await.status, 200);
    assert!(told.len() > 80, "{told:?}");
}

struct People<'a> {
    rig: &'a Rig,
    ada: &'a Visitor,
    grace: &'a Visitor,
    /// The id of a key of ada's.
    key: &'a str,
    /// A cookie of a session that has ended.
    replayed: &'a str,
}

fn cases(operation: &Operation, people: &People<'_>) -> Vec<(&'static str, RequestBuilder, &'static str)> {
    let People { rig, ada, grace, key, replayed } = *people;
    let plain = |visitor: &Visitor| operation.request(visitor, key);
    let ours = |request: RequestBuilder| request.header(ORIGIN, &rig.url);
    let full = |request: RequestBuilder| ours(request).header("X-CSRF-Token", "1");
    let mut cases = Vec::new();
    if operation.is_change() {
        let foreign = |origin: &str| plain(ada).header("X-CSRF-Token", "1").header(ORIGIN, origin);
        cases.extend([
            ("no CSRF header", ours(plain(ada)), "403 csrf_refused"),
            ("a wrong CSRF header", ours(plain(ada)).header("X-CSRF-Token", "2"), "403 csrf_refused"),
            ("a foreign Origin", foreign("https://evil.example"), "403 csrf_refused"),
            ("the Origin of nowhere", foreign("null"), "403 csrf_refused"),
            ("no Origin", plain(ada).header("X-CSRF-Token", "1"), "403 csrf_refused"),
        ]);
    }
    if !operation.is_public() {
        let with = |cookie: &str| full(plain(&rig.visitor())).header(COOKIE, cookie);
        cases.extend([
            ("no session", full(plain(&rig.visitor())), "401 unauthenticated"),
            ("an empty cookie", with("ipl_session="), "401 unauthenticated"),
            ("a tampered cookie", with(&tampered(ada)), "401 unauthenticated"),
            ("a replayed cookie", with(replayed), "401 unauthenticated"),
        ]);
    }
    if operation.names_a_key() {
        cases.push(("another account's key", full(plain(grace)), "404 key_not_found"));
        let nobodys = full(operation.request(grace, "00000000000000000000000000000000"));
        cases.push(("nobody's key", nobodys, "404 key_not_found"));
    }
    cases
}

/// The cookie with one character changed.
fn tampered(visitor: &Visitor) -> String {
    let mut cookie = visitor.cookie.clone().unwrap();
    let place = cookie.len() / 2;
    let other = if cookie.as_bytes()[place] == b'A' { "B" } else { "A" };
    cookie.replace_range(place..=place, other);
    cookie
}

/// A cookie of ada's that was good until she signed out, kept by somebody else.
async fn signed_out(rig: &Rig) -> String {
    let mut ada = rig.visitor();
    let entered = ada.post("/session", json!({"login": "ada", "password": PASSWORD})).await;
    assert_eq!(entered.status, 200, "{entered:?}");
    ada.take_cookie(&entered);
    assert_eq!(ada.delete("/session").await.status, 204);
    ada.cookie.unwrap()
}
