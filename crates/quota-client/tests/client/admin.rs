//! Tests the calls for accounts, keys, export and import: their requests, parsed responses and errors.

use std::error::Error;
use std::time::Duration;

use quota_client::wire::{
    Actor, ImportRequest, NewAccount, NewKey, NewSession, Scope, SessionKind, SetCredential, SetDailyLimit,
    SettingsChange, StateChange,
};
use quota_client::{ClientError, QuotaClient};
use serde_json::Value;

use crate::fake::{Exchange, Fake};

const KEY: &str = r#"{"id":"k1","account":"a1","name":"n","hint":"h","scope":"geo","state":"active","state_since":1,"created_at":2,"daily_limit":3,"burst_limit":4,"used_today":5,"burst_used":0}"#;
const ACCOUNT: &str = r#"{"id":"a1","login":"me","created_at":1,"credential_version":0,"role":"owner"}"#;

const COMMAND: &str = "POST /internal/v1/commands";

/// Makes a call, checks its request line and JSON body against the expected ones, sends a response and returns the call's result.
macro_rules! exchange {
    ($fake:ident, |$client:ident| $call:expr, $line:expr, $expected_body:expr, $status:expr, $response:expr) => {{
        let $client = $fake.client();
        let (result, ()) = tokio::join!($call, async {
            let exchange = $fake.next().await;
            check(&exchange, $line, $expected_body);
            exchange.json($status, &$response);
        });
        result
    }};
}

fn check(exchange: &Exchange, line: &str, expected_body: &str) {
    assert_eq!(exchange.line(), line);
    let json = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap_or(Value::Null);
    assert_eq!(json(&exchange.body), json(expected_body.as_bytes()));
    assert_eq!(exchange.head.contains("content-type: application/json"), !expected_body.is_empty());
}

#[tokio::test]
async fn account_calls_use_documented_requests() {
    let mut fake = Fake::start().await;
    let new = NewAccount { login: "me".into(), credential: None };
    let expected_body =
        r#"{"actor":"operator","command":{"create_account":{"login":"me","credential":null}}}"#;
    let created = exchange!(fake, |c| c.create_account(&new), COMMAND, expected_body, 200, ACCOUNT);
    assert_eq!(created.unwrap().id, "a1");
    let page = format!(r#"{{"accounts":[{ACCOUNT}],"total":7,"next":"c2"}}"#);
    let line = "GET /internal/v1/accounts?login=a%26b%3D%3F%40x";
    let found = exchange!(fake, |c| c.find_account("a&b=?@x"), line, "", 200, page);
    assert_eq!(found.unwrap().unwrap().login, "me");
    let none = r#"{"accounts":[],"total":7}"#;
    let found = exchange!(fake, |c| c.find_account("x"), "GET /internal/v1/accounts?login=x", "", 200, none);
    assert_eq!(found.unwrap(), None);
    let line = "GET /internal/v1/accounts?limit=50&cursor=c%2F1";
    let listed = exchange!(fake, |c| c.list_accounts(Some("c/1"), 50), line, "", 200, page);
    assert_eq!(listed.unwrap().next.as_deref(), Some("c2"));
    let (line, details) = (
        "GET /internal/v1/accounts/a1",
        format!(r#"{{"account":{ACCOUNT},"contact":{{"contact":{{}},"last_deliveries":{{}}}},"events":[]}}"#),
    );
    assert_eq!(exchange!(fake, |c| c.account("a1"), line, "", 200, details).unwrap().login, "me");
    assert!(exchange!(fake, |c| c.contact("a1"), line, "", 200, details).unwrap().contact.is_empty());
    assert!(exchange!(fake, |c| c.account_events("a1"), line, "", 200, details).unwrap().events.is_empty());
    let expected_body =
        r#"{"actor":"operator","command":{"delete_account":{"account":"a1","expected_credential":"h"}}}"#;
    exchange!(fake, |c| c.delete_account("a1", Some("h")), COMMAND, expected_body, 200, "null").unwrap();

    let stored = r#"{"credential":"h","version":3}"#;
    let line = "GET /internal/v1/accounts/a1/credential";
    assert_eq!(exchange!(fake, |c| c.credential("a1"), line, "", 200, stored).unwrap().version, 3);
    let change = SetCredential { credential: "h".into(), expected_version: 2, ..Default::default() };
    let expected_body = r#"{"actor":"operator","command":{"set_credential":
        {"account":"a1","change":{"credential":"h","expected_version":2,
        "expected_credential":null,"keep_session":null,"keep_all_sessions":null}}}}"#;
    exchange!(fake, |c| c.set_credential("a1", &change), COMMAND, expected_body, 200, stored).unwrap();

    let session = NewSession {
        kind: SessionKind::Link,
        id_sha256: "ff".into(),
        ttl_seconds: 60,
        expected_credential: Some("h".into()),
    };
    let expected_body = r#"{"actor":"operator","command":{"add_session":
        {"account":"a1","session":{"kind":"link","id_sha256":"ff","ttl_seconds":60,"expected_credential":"h"}}}}"#;
    exchange!(fake, |c| c.create_session("a1", &session), COMMAND, expected_body, 200, "true").unwrap();
    let line = "GET /internal/v1/accounts/a1/sessions/ff";
    assert!(exchange!(fake, |c| c.session_account("a1", "ff"), line, "", 200, ACCOUNT).unwrap().is_some());
    let not_found = r#"{"error":"session_not_found","message":"m","docs":"d"}"#;
    assert!(exchange!(fake, |c| c.session_account("a1", "ff"), line, "", 404, not_found).unwrap().is_none());
    let expected_body =
        r#"{"actor":"operator","command":{"revoke_session":{"account":"a1","session":"ff"}}}"#;
    exchange!(fake, |c| c.delete_session("a1", "ff"), COMMAND, expected_body, 200, "null").unwrap();
}

#[tokio::test]
async fn key_calls_use_documented_requests() {
    let mut fake = Fake::start().await;
    let list = format!(r#"{{"keys":[{KEY}]}}"#);
    let listed = exchange!(fake, |c| c.keys("a1"), "GET /internal/v1/accounts/a1/keys", "", 200, list);
    assert_eq!(listed.unwrap().keys.len(), 1);
    let new = NewKey::new("n", Scope::Geo);
    let expected_body = r#"{"actor":"operator","command":{"create_key":
        {"account":"a1","key":{"name":"n","scope":"geo","daily_limit":null}}}}"#;
    let created = format!(r#"{{"secret":"s","key":{KEY}}}"#);
    let secret =
        exchange!(fake, |c| c.create_key("a1", &new), COMMAND, expected_body, 200, created).unwrap().secret;
    assert_eq!(secret, "s");

    exchange!(fake, |c| c.key("k1", None), "GET /internal/v1/keys/k1", "", 200, KEY).unwrap();
    let account = Some("a1");
    exchange!(fake, |c| c.key("k1", account), "GET /internal/v1/keys/k1?account=a1", "", 200, KEY).unwrap();
    let change = |account: &str, change: &str| {
        format!(
            r#"{{"actor":"operator","command":{{"change_key":{{"id":"k1","account":{account},"change":{change}}}}}}}"#
        )
    };
    let (renamed, name) = (
        change(r#""a1""#, r#"{"settings":{"name":"m","allowed_origins":null}}"#),
        SettingsChange::rename("m"),
    );
    exchange!(fake, |c| c.change_key("k1", account, &name), COMMAND, &renamed, 200, KEY).unwrap();
    for state in [StateChange::Resume, StateChange::Deactivate, StateChange::Reactivate] {
        let changed = change("null", &format!(r#"{{"state":"{}"}}"#, state.as_str()));
        exchange!(fake, |c| c.change_state("k1", None, state), COMMAND, &changed, 200, KEY).unwrap();
    }
    let limit = SetDailyLimit { daily_limit: Some(9) };
    let limited = change("null", r#"{"daily_limit":9}"#);
    exchange!(fake, |c| c.set_daily_limit("k1", &limit), COMMAND, &limited, 200, KEY).unwrap();
    let by_owner = change("null", r#"{"state":"resume"}"#).replace("operator", "owner");
    exchange!(
        fake,
        |c| async { c.acting_as(Actor::Owner).change_state("k1", None, StateChange::Resume).await },
        COMMAND,
        &by_owner,
        200,
        KEY
    )
    .unwrap();
    let deleted = r#"{"actor":"operator","command":{"delete_key":{"id":"k1","account":"a1"}}}"#;
    exchange!(fake, |c| c.delete_key("k1", account), COMMAND, deleted, 200, "null").unwrap();
    let (line, days) =
        ("GET /internal/v1/keys/k1/usage?account=a1", r#"{"days":[{"day":"2024-02-29","requests":1}]}"#);
    assert_eq!(exchange!(fake, |c| c.usage("k1", account), line, "", 200, days).unwrap().days[0].requests, 1);
    let (line, events) =
        ("GET /internal/v1/keys/k1/events", r#"{"events":[{"at":1,"kind":"limit_changed","reason":"r"}]}"#);
    assert_eq!(
        exchange!(fake, |c| c.events("k1", None), line, "", 200, events).unwrap().events[0].reason,
        "r"
    );
}

#[tokio::test]
async fn transfer_calls_use_documented_requests() {
    let mut fake = Fake::start().await;
    let page = r#"{"accounts":[{"login":"me","created_at":1,"keys":[]}],"total":1,"left_out":[]}"#;
    let exported =
        exchange!(fake, |c| c.export(None, 100), "GET /internal/v1/export?limit=100", "", 200, page).unwrap();
    assert_eq!((exported.total, exported.next), (1, None));
    let expected_body = r#"{"actor":"operator","command":{"import":
        {"accounts":[{"login":"me","created_at":1,"credential_version":0,"keys":[]}]}}}"#;
    let report =
        r#"{"accounts_created":1,"accounts_kept":0,"keys_created":0,"keys_kept":0,"keys_refused":0}"#;
    let request = ImportRequest { accounts: exported.accounts };
    let imported = exchange!(fake, |c| c.import(&request), COMMAND, expected_body, 200, report);
    assert_eq!(imported.unwrap().accounts_created, 1);
}

#[tokio::test]
async fn error_body_becomes_api_error_and_invalid_body_becomes_protocol_error() {
    let mut fake = Fake::start().await;
    let sent = r#"{"actor":"operator","command":{"change_key":
        {"id":"k1","account":null,"change":{"state":"resume"}}}}"#;
    let body = r#"{"error":"key_inactive","message":"reactivate it first"}"#;
    let error =
        exchange!(fake, |c| c.change_state("k1", None, StateChange::Resume), COMMAND, sent, 409, body)
            .unwrap_err();
    assert_eq!((error.code(), error.status()), (Some("key_inactive"), Some(409)));
    assert_eq!(error.to_string(), "quota-svc responded with 409 key_inactive: reactivate it first");
    let html =
        exchange!(fake, |c| c.change_state("k1", None, StateChange::Resume), COMMAND, sent, 502, "<html>")
            .unwrap_err();
    assert!(matches!(html, ClientError::Protocol(_)) && html.code().is_none());
    // `key` must be an object; the message of serde_json would quote the string.
    let malformed = r#"{"secret":"s","key":"ipl_secret"}"#;
    let new = NewKey { daily_limit: Some(1), ..NewKey::new("n", Scope::Ip) };
    let sent = r#"{"actor":"operator","command":{"create_key":
        {"account":"a1","key":{"name":"n","scope":"ip","daily_limit":1}}}}"#;
    let invalid = exchange!(fake, |c| c.create_key("a1", &new), COMMAND, sent, 200, malformed).unwrap_err();
    assert!(matches!(invalid, ClientError::Protocol(_)));
    assert!(!format!("{invalid} {invalid:?}").contains("ipl_"), "the error must not quote the key");
}

#[tokio::test]
async fn id_with_other_characters_gets_404_without_request() {
    let mut fake = Fake::start().await;
    let client = fake.client();
    for id in ["", ".", "..", "a/b", "a?b", "a%2fb", "ä"] {
        assert_eq!(client.account(id).await.unwrap_err().status(), Some(404));
        assert_eq!(client.key(id, None).await.unwrap_err().status(), Some(404));
    }
    assert!(!fake.has_more());
}

#[tokio::test]
async fn timeout_and_unreachable_errors_omit_the_login() {
    let fake = Fake::start().await;
    let client = QuotaClient::new(&format!("http://{}/", fake.address), Duration::from_millis(100)).unwrap();
    assert!(matches!(client.find_account("mallory").await, Err(ClientError::TimedOut)));
    let closed = tokio::net::TcpListener::bind("127.0.0.3:0").await.unwrap().local_addr().unwrap();
    let client = QuotaClient::new(&format!("http://{closed}"), Duration::from_secs(10)).unwrap();
    let error = client.find_account("mallory").await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable(_)) && error.source().is_some());
    assert!(!format!("{error} {error:?}").contains("mallory"));
}

#[tokio::test]
async fn base_url_with_127_0_0_2_connects_to_127_0_0_2() {
    let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    let mut fake = Fake::on(listener);
    exchange!(fake, |c| c.key("k1", None), "GET /internal/v1/keys/k1", "", 200, KEY).unwrap();
}

#[test]
fn base_url_must_be_plain_http() {
    let create = |url| QuotaClient::new(url, Duration::from_secs(1)).map(drop);
    create("http://127.0.0.1:8082").unwrap();
    create("http://[::1]:8082/").unwrap();
    for url in ["127.0.0.1:8082", "https://127.0.0.1", "unix:/x", "http://h/?a=b", "http://h/#f", ""] {
        assert!(matches!(create(url), Err(ClientError::BaseUrl(_))), "{url}");
    }
}
