//! The public API as seen by a client: fields by scope, API keys, methods, errors and CORS.

use quota_client::wire::Scope;
use testkit::lookup::{JsonResponse, Stack, unknown_key};

/// The fields of scope `ip`.
const IP: [&str; 3] = ["ip", "ipv6", "status"];
/// The fields that scope `geo` adds to `ip`.
const GEO: [&str; 16] = [
    "as",
    "asn",
    "city",
    "continent",
    "country",
    "country_name",
    "currency",
    "is_eu",
    "latitude",
    "longitude",
    "org",
    "postal_code",
    "region",
    "region_code",
    "timezone",
    "timezone_offset",
];
/// The fields that scope `full` adds to `geo`.
const FULL: [&str; 7] = ["colo", "hosting", "http_protocol", "proxy", "rtt", "tls_cipher", "tls_version"];
/// The fields that the demo adds to `geo`.
const DEMO: [&str; 4] = ["colo", "http_protocol", "rtt", "tls_version"];

/// The response fields of a scope.
fn fields_of(scope: Scope) -> Vec<&'static str> {
    let geo: &[&str] = if scope == Scope::Ip { &[] } else { &GEO };
    let full: &[&str] = if scope == Scope::Full { &FULL } else { &[] };
    sorted(&[&IP, geo, full])
}

fn sorted(groups: &[&[&'static str]]) -> Vec<&'static str> {
    let mut all = groups.concat();
    all.sort_unstable();
    all
}

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
async fn scope_selects_fields_and_is_never_widened() {
    let stack = Stack::start(&[], &[]).await;
    let scopes = [("ip", Scope::Ip), ("geo", Scope::Geo), ("full", Scope::Full)];
    for (_, own) in scopes {
        let key = stack.key_with_scope(own).await;
        let plain = JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await;
        assert_eq!((plain.status, plain.fields()), (200, fields_of(own)));
        for (name, requested) in scopes {
            let path = format!("/api/v1/ip?scope={name}");
            let response = JsonResponse::fetch(stack.lookup.get(&path).bearer_auth(&key.secret)).await;
            assert_eq!(
                (response.status, response.fields()),
                (200, fields_of(own.min(requested))),
                "key with {own:?}, request with {name}"
            );
        }
        assert_eq!(key.fetch(&stack.quota.client()).await.used_today, 4, "each request was charged once");
    }
}

#[tokio::test]
async fn success_has_location_connection_and_rate_limit() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    let request = stack.lookup.get_ip(&key.secret).header("x-forwarded-for", "192.0.2.9");
    let request = request.header("x-edge-http-protocol", "HTTP/2.0").header("x-edge-tls-version", "TLSv1.3");
    let response = JsonResponse::fetch(request.header("x-edge-rtt", "12").header("x-edge-colo", "FRA")).await;
    let body = &response.body;
    assert_eq!((response.status, &body["status"]), (200, &"success".into()), "{response:?}");
    for (field, value) in
        [("ip", "192.0.2.9"), ("city", "Berlin"), ("country", "DE"), ("region_code", "DE-BE")]
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
async fn demo_without_key_returns_fixed_fields() {
    let stack = Stack::start(&[], &[]).await;
    let request = stack.lookup.get("/api/v1/ip/demo?scope=ip&key=x").header("x-forwarded-for", "2001:db8::7");
    let response = JsonResponse::fetch(request).await;
    assert_eq!(
        (response.status, response.fields()),
        (200, sorted(&[&IP, &GEO, &DEMO])),
        "query parameters are ignored"
    );
    assert_eq!((&response.body["ipv6"], &response.body["city"]), (&"2001:db8::7".into(), &"Paris".into()));
    assert!(response.body["ip"].is_null());
    assert_eq!(
        (response.header_number("x-ratelimit-limit"), response.header_number("x-ratelimit-remaining")),
        (1_000, 999)
    );
}

#[tokio::test]
async fn key_in_header_wins_over_key_in_query() {
    let stack = Stack::start(&[], &[]).await;
    let (geo, ip) = (stack.key_with_scope(Scope::Geo).await, stack.key_with_scope(Scope::Ip).await);
    let with_key = format!("/api/v1/ip?key={}", ip.secret);
    let both = JsonResponse::fetch(stack.lookup.get(&with_key).bearer_auth(&geo.secret)).await;
    assert_eq!((both.status, both.fields()), (200, fields_of(Scope::Geo)));
    for request in
        [stack.lookup.get(&with_key), stack.lookup.get(&with_key).header("authorization", "Basic eDp5")]
    {
        let response = JsonResponse::fetch(request).await;
        assert_eq!((response.status, response.fields()), (200, fields_of(Scope::Ip)));
    }
    let malformed = JsonResponse::fetch(stack.lookup.get(&with_key).bearer_auth("no-key")).await;
    check_error(&malformed, 401, "invalid_api_key");
}

#[tokio::test]
async fn rejected_requests_are_not_charged() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    let lookup = &stack.lookup;
    for query in ["", "?key=", "?scope=nonsense", "?other=1"] {
        let response = JsonResponse::fetch(lookup.get(&format!("/api/v1/ip{query}"))).await;
        check_error(&response, 401, "missing_api_key");
        assert_eq!(response.header("www-authenticate"), "Bearer");
        let message = response.body["message"].as_str().unwrap();
        assert!(
            message.contains("Authorization: Bearer") && message.contains("key="),
            "the message names both ways to send a key: {message}"
        );
    }
    let unknown = unknown_key();
    for key in [unknown.as_str(), "ipl_short", "ü", &key.secret[..41]] {
        let response = JsonResponse::fetch(lookup.get(&format!("/api/v1/ip?key={key}"))).await;
        check_error(&response, 401, "invalid_api_key");
    }
    for scope in ["nonsense", "FULL", "ip,geo", "full%00"] {
        let response =
            JsonResponse::fetch(lookup.get(&format!("/api/v1/ip?scope={scope}")).bearer_auth(&key.secret))
                .await;
        check_error(&response, 400, "invalid_scope");
    }
    assert_eq!(key.fetch(&stack.quota.client()).await.used_today, 0);
}

#[tokio::test]
async fn inactive_key_gets_403_and_deleted_key_401() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    let (client, id) = (stack.quota.client(), &key.key.id);
    client.deactivate_key(id, None).await.unwrap();
    check_error(&JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await, 403, "inactive_api_key");
    client.reactivate_key(id, None).await.unwrap();
    assert_eq!(JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await.status, 200);
    client.delete_key(id, None).await.unwrap();
    check_error(&JsonResponse::fetch(stack.lookup.get_ip(&key.secret)).await, 401, "invalid_api_key");
}

#[tokio::test]
async fn preflight_gets_204_without_key_or_charge() {
    let stack = Stack::start(&["--demo-limit", "1"], &[]).await;
    for path in ["/api/v1/ip", "/api/v1/ip/demo"] {
        let request = stack.lookup.request("OPTIONS", path).header("origin", "https://web.example");
        let response =
            JsonResponse::fetch(request.header("access-control-request-headers", "authorization")).await;
        assert_eq!((response.status, response.body.is_null()), (204, true));
        assert_eq!(response.header("access-control-allow-origin"), "*");
        assert_eq!(response.header("access-control-allow-methods"), "GET, OPTIONS");
        assert_eq!(response.header("access-control-allow-headers"), "Authorization");
        assert_eq!(response.header("access-control-max-age"), "86400");
    }
    assert_eq!(
        JsonResponse::fetch(stack.lookup.get("/api/v1/ip/demo")).await.status,
        200,
        "the single demo request is still available"
    );
}

#[tokio::test]
async fn other_methods_get_405_and_are_not_charged() {
    let stack = Stack::start(&["--demo-limit", "1"], &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    for path in ["/api/v1/ip", "/api/v1/ip/demo"] {
        for method in ["POST", "PUT", "PATCH", "DELETE", "PROPFIND", "TRACE"] {
            let response =
                JsonResponse::fetch(stack.lookup.request(method, path).bearer_auth(&key.secret)).await;
            check_error(&response, 405, "method_not_allowed");
            assert_eq!(response.header("allow"), "GET, OPTIONS", "{method} {path}");
        }
        let head = stack.lookup.request("HEAD", path).bearer_auth(&key.secret).send().await.unwrap();
        assert_eq!(
            (head.status().as_u16(), head.headers()["allow"].to_str().unwrap()),
            (405, "GET, OPTIONS")
        );
        assert_eq!(head.headers()["access-control-allow-origin"], "*");
    }
    assert_eq!(key.fetch(&stack.quota.client()).await.used_today, 0);
    assert_eq!(
        JsonResponse::fetch(stack.lookup.get("/api/v1/ip/demo")).await.status,
        200,
        "the single demo request is still available"
    );
}

#[tokio::test]
async fn unknown_path_gets_404() {
    let stack = Stack::start(&[], &[]).await;
    for path in ["/nothing", "/api/v1/ip/", "/api/v1/ip/8.8.8.8", "/api/v2/ip", "/api/", "/livez", "/metrics"]
    {
        check_error(&JsonResponse::fetch(stack.lookup.get(path)).await, 404, "not_found");
    }
}

#[tokio::test]
async fn pages_and_documents_allow_every_origin() {
    let stack = Stack::start(&[], &[]).await;
    for path in ["/docs", "/swagger", "/openapi.json", "/openapi.yaml"] {
        let response = stack.lookup.get(path).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["access-control-allow-origin"]),
            (200, &"*".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn openapi_json_and_yaml_are_equal() {
    if e2e::chart::venv_tool("python").is_none() {
        return;
    }
    let stack = Stack::start(&[], &[]).await;
    let json = JsonResponse::fetch(stack.lookup.get("/openapi.json")).await.body;
    let yaml = stack.lookup.get("/openapi.yaml").send().await.unwrap().text().await.unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&e2e::chart::yaml_to_json(&yaml)).unwrap();
    assert_eq!(parsed, serde_json::json!([json]));
}

#[tokio::test]
async fn metrics_count_operation_outcome_and_duration() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    for (request, status) in [
        (stack.lookup.get_ip(&key.secret), 200),
        (stack.lookup.get("/api/v1/ip"), 401),
        (stack.lookup.get("/api/v1/ip/demo"), 200),
    ] {
        assert_eq!(JsonResponse::fetch(request).await.status, status);
    }
    let metrics = stack.lookup.metrics().await;
    // One line must start with the name, contain both labels and end with the number.
    for (name, labels, number) in [
        ("lookup_requests_total", ["operation=\"get_ip\"", "outcome=\"success\""], "1"),
        ("lookup_requests_total", ["operation=\"get_ip\"", "outcome=\"missing_api_key\""], "1"),
        (
            "http_server_request_duration_seconds_count",
            ["operation=\"get_demo\"", "status_class=\"2xx\""],
            "1",
        ),
        ("lookup_quota_call_duration_seconds_count", ["", ""], "2"),
        ("lookup_quota_batch_size_count", ["", ""], "2"),
    ] {
        let found = metrics.lines().any(|line| {
            line.starts_with(name)
                && labels.iter().all(|label| line.contains(label))
                && line.ends_with(&format!(" {number}"))
        });
        assert!(found, "no line with {name}, {labels:?} and {number} in\n{metrics}");
    }
}
