//! The public API with a real quota-svc: what its verdicts make of a response. `lookup-svc/tests/api` tests the rest.

use std::time::Duration;

use quota_client::wire::{Scope, StateChange};
use testkit::lookup::{JsonResponse, Stack};
use testkit::mmdb::sample;
use testkit::wait::eventually;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Checks the status, body and headers of an error other than 429.
fn check_error(response: &JsonResponse, status: u16, code: &str) {
    assert_eq!((response.status, response.error_code()), (status, code), "{response:?}");
    assert!(response.header("content-type").starts_with("application/json"), "{response:?}");
    assert_eq!(response.header("access-control-allow-origin"), "*", "{response:?}");
    assert_eq!(response.header("cache-control"), "no-store", "{response:?}");
    assert_eq!(response.body["docs"], format!("http://localhost:8080/docs#{code}"));
    assert!(response.body["message"].as_str().is_some_and(|message| message.ends_with('.')), "{response:?}");
    assert_eq!(response.fields(), ["docs", "error", "message"], "no enterprise or signup field");
    assert_eq!(response.header("x-ratelimit-limit"), "", "no rate-limit headers: {response:?}");
}

#[tokio::test]
async fn success_has_location_connection_and_rate_limit() {
    let sample = sample::file();
    let stack = Stack::start(&[], &["--geo-db", sample.path().to_str().unwrap()]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    let request = stack.lookup.get_ip(&key.secret).header("x-forwarded-for", "81.2.69.9");
    let request = request.header("x-edge-http-protocol", "HTTP/2.0").header("x-edge-tls-version", "TLSv1.3");
    let response = JsonResponse::fetch(request.header("x-edge-rtt", "12").header("x-edge-colo", "FRA")).await;
    let body = &response.body;
    assert_eq!((response.status, &body["status"]), (200, &"success".into()), "{response:?}");
    for (field, value) in
        [("ip", "81.2.69.9"), ("city", "Berlin"), ("country", "DE"), ("region_code", "DE-BE")]
    {
        assert_eq!(body[field], value);
    }
    for (field, value) in
        [("as", "AS64496 Example Network One"), ("currency", "EUR"), ("http_protocol", "HTTP/2")]
    {
        assert_eq!(body[field], value);
    }
    assert_eq!((&body["tls_version"], &body["colo"]), (&"TLSv1.3".into(), &"FRA".into()));
    assert_eq!((&body["rtt"], &body["asn"], &body["is_eu"]), (&12.into(), &64_496.into(), &true.into()));
    assert!(
        body["ipv6"].is_null() && body["tls_cipher"].is_null(),
        "fields without data are null, not absent"
    );
    assert_eq!(
        (response.header_number("x-ratelimit-limit"), response.header_number("x-ratelimit-remaining")),
        (10_000, 9_999)
    );
    let reset = response.header_number("x-ratelimit-reset");
    assert_eq!(reset % 86_400, 0, "midnight UTC");
    assert_eq!(response.header("access-control-allow-origin"), "*");
    let exposed = response.header("access-control-expose-headers").to_ascii_lowercase();
    assert!(exposed.contains("x-ratelimit-remaining") && exposed.contains("retry-after"));
}

#[tokio::test]
async fn inactive_key_gets_403_and_deleted_key_401() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    let (client, id) = (stack.quota.client(), &key.key.id);
    client.change_state(id, None, StateChange::Deactivate).await.unwrap();
    check_error(&JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await, 403, "inactive_api_key");
    client.change_state(id, None, StateChange::Reactivate).await.unwrap();
    assert_eq!(JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await.status, 200);
    client.delete_key(id, None).await.unwrap();
    check_error(&JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await, 401, "invalid_api_key");
}

#[tokio::test]
async fn openapi_json_and_yaml_are_equal() {
    if e2e::chart::venv_tool("python").is_none() {
        return;
    }
    let stack = Stack::start(&[], &[]).await;
    // Until lookup-svc has read the limits, the document has none.
    let json = eventually(WAIT_TIMEOUT, "the document has the limits", async || {
        let json = JsonResponse::fetch(stack.lookup.get("/openapi.json")).await.body;
        json.to_string().contains("Limits of this service").then_some(json)
    })
    .await;
    let yaml = stack.lookup.get("/openapi.yaml").send().await.unwrap().text().await.unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&e2e::chart::yaml_to_json(&yaml)).unwrap();
    assert_eq!(parsed, serde_json::json!([json]));
}
