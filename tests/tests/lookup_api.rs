//! The public API as a client sees it: fields by scope, credentials, methods, and CORS on everything.

use e2e::lookup::{Answer, Stack, unknown_key};
use quota_client::wire::Scope;

const IP: [&str; 3] = ["ip", "ipv6", "status"];
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
const FULL: [&str; 7] = ["colo", "hosting", "http_protocol", "proxy", "rtt", "tls_cipher", "tls_version"];
const DEMO: [&str; 4] = ["colo", "http_protocol", "rtt", "tls_version"];

/// SPEC, section 2.1: what each scope has.
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

/// SPEC, section 2.2: what every error has, and CORS as on every answer.
fn check_error(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.error()), (status, code), "{answer:?}");
    assert!(answer.header("content-type").starts_with("application/json"), "{answer:?}");
    assert_eq!(answer.header("access-control-allow-origin"), "*", "{answer:?}");
    assert_eq!(answer.header("cache-control"), "no-store", "{answer:?}");
    assert_eq!(answer.body["docs"], format!("http://localhost:8080/docs#{code}"));
    assert!(answer.body["message"].as_str().is_some_and(|message| message.ends_with('.')), "{answer:?}");
    assert_eq!(answer.fields(), ["docs", "error", "message"], "neither enterprise nor signup");
    assert_eq!(answer.header("x-ratelimit-limit"), "", "no rate-limit headers: {answer:?}");
}

#[tokio::test]
async fn each_scope_has_exactly_its_fields_and_narrowing_never_widens() {
    let stack = Stack::start(&[], &[]).await;
    let named = [("ip", Scope::Ip), ("geo", Scope::Geo), ("full", Scope::Full)];
    for (_, own) in named {
        let key = stack.key(own).await;
        let plain = Answer::of(stack.lookup.ask(&key.secret)).await;
        assert_eq!((plain.status, plain.fields()), (200, fields_of(own)));
        for (name, wanted) in named {
            let path = format!("/api/v1/ip?scope={name}");
            let answer = Answer::of(stack.lookup.get(&path).bearer_auth(&key.secret)).await;
            assert_eq!(
                (answer.status, answer.fields()),
                (200, fields_of(own.min(wanted))),
                "{own:?} asked for {name}"
            );
        }
        assert_eq!(key.now(&stack.quota.client()).await.used_today, 4, "each was charged once");
    }
}

#[tokio::test]
async fn a_200_has_the_place_the_connection_and_the_numbers_of_the_day() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key(Scope::Full).await;
    let request = stack.lookup.ask(&key.secret).header("x-forwarded-for", "192.0.2.9");
    let request = request.header("x-edge-http-protocol", "HTTP/2.0").header("x-edge-tls-version", "TLSv1.3");
    let answer = Answer::of(request.header("x-edge-rtt", "12").header("x-edge-colo", "FRA")).await;
    let body = &answer.body;
    assert_eq!((answer.status, &body["status"]), (200, &"success".into()), "{answer:?}");
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
    assert!(body["ipv6"].is_null() && body["tls_cipher"].is_null(), "no data is null, not absent");
    assert_eq!((answer.number("x-ratelimit-limit"), answer.number("x-ratelimit-remaining")), (10_000, 9_999));
    let reset = answer.number("x-ratelimit-reset");
    assert_eq!(reset % 86_400, 0, "midnight UTC");
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    let exposed = answer.header("access-control-expose-headers").to_ascii_lowercase();
    assert!(exposed.contains("x-ratelimit-remaining") && exposed.contains("retry-after"));
}

#[tokio::test]
async fn the_demo_needs_no_key_and_has_its_fixed_fields() {
    let stack = Stack::start(&[], &[]).await;
    let request = stack.lookup.get("/api/v1/ip/demo?scope=ip&key=x").header("x-forwarded-for", "2001:db8::7");
    let answer = Answer::of(request).await;
    assert_eq!(
        (answer.status, answer.fields()),
        (200, sorted(&[&IP, &GEO, &DEMO])),
        "parameters mean nothing to it"
    );
    assert_eq!((&answer.body["ipv6"], &answer.body["city"]), (&"2001:db8::7".into(), &"Paris".into()));
    assert!(answer.body["ip"].is_null());
    assert_eq!((answer.number("x-ratelimit-limit"), answer.number("x-ratelimit-remaining")), (1_000, 999));
}

#[tokio::test]
async fn the_header_wins_over_the_query_and_the_query_is_the_fallback() {
    let stack = Stack::start(&[], &[]).await;
    let (geo, ip) = (stack.key(Scope::Geo).await, stack.key(Scope::Ip).await);
    let with_key = format!("/api/v1/ip?key={}", ip.secret);
    let both = Answer::of(stack.lookup.get(&with_key).bearer_auth(&geo.secret)).await;
    assert_eq!((both.status, both.fields()), (200, fields_of(Scope::Geo)));
    for request in
        [stack.lookup.get(&with_key), stack.lookup.get(&with_key).header("authorization", "Basic eDp5")]
    {
        let answer = Answer::of(request).await;
        assert_eq!((answer.status, answer.fields()), (200, fields_of(Scope::Ip)));
    }
    let broken = Answer::of(stack.lookup.get(&with_key).bearer_auth("no-key")).await;
    check_error(&broken, 401, "invalid_api_key");
}

#[tokio::test]
async fn errors_before_a_verdict_have_their_code_and_charge_nothing() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key(Scope::Full).await;
    let lookup = &stack.lookup;
    for query in ["", "?key=", "?scope=nonsense", "?other=1"] {
        let answer = Answer::of(lookup.get(&format!("/api/v1/ip{query}"))).await;
        check_error(&answer, 401, "missing_api_key");
        assert_eq!(answer.header("www-authenticate"), "Bearer");
        let message = answer.body["message"].as_str().unwrap();
        assert!(
            message.contains("Authorization: Bearer") && message.contains("key="),
            "both ways: {message}"
        );
    }
    let unknown = unknown_key();
    for credential in [unknown.as_str(), "ipl_short", "ü", &key.secret[..41]] {
        let answer = Answer::of(lookup.get(&format!("/api/v1/ip?key={credential}"))).await;
        check_error(&answer, 401, "invalid_api_key");
    }
    for scope in ["nonsense", "FULL", "ip,geo", "full%00"] {
        let answer =
            Answer::of(lookup.get(&format!("/api/v1/ip?scope={scope}")).bearer_auth(&key.secret)).await;
        check_error(&answer, 400, "invalid_scope");
    }
    assert_eq!(key.now(&stack.quota.client()).await.used_today, 0);
}

#[tokio::test]
async fn a_deactivated_key_is_403_a_reactivated_one_works_and_a_deleted_one_is_unknown() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key(Scope::Full).await;
    let (client, id) = (stack.quota.client(), &key.key.id);
    client.deactivate_key(id, None).await.unwrap();
    check_error(&Answer::of(stack.lookup.ask(&key.secret)).await, 403, "inactive_api_key");
    client.reactivate_key(id, None).await.unwrap();
    assert_eq!(Answer::of(stack.lookup.ask(&key.secret)).await.status, 200);
    client.delete_key(id, None).await.unwrap();
    check_error(&Answer::of(stack.lookup.ask(&key.secret)).await, 401, "invalid_api_key");
}

#[tokio::test]
async fn a_preflight_is_204_without_a_body_a_key_or_a_charge() {
    let stack = Stack::start(&["--demo-limit", "1"], &[]).await;
    for path in ["/api/v1/ip", "/api/v1/ip/demo"] {
        let request = stack.lookup.request("OPTIONS", path).header("origin", "https://web.example");
        let answer = Answer::of(request.header("access-control-request-headers", "authorization")).await;
        assert_eq!((answer.status, answer.body.is_null()), (204, true));
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert_eq!(answer.header("access-control-allow-methods"), "GET, OPTIONS");
        assert_eq!(answer.header("access-control-allow-headers"), "Authorization");
        assert_eq!(answer.header("access-control-max-age"), "86400");
    }
    assert_eq!(
        Answer::of(stack.lookup.get("/api/v1/ip/demo")).await.status,
        200,
        "the demo's one place is still free"
    );
}

#[tokio::test]
async fn other_methods_are_405_with_allow_and_charge_nothing() {
    let stack = Stack::start(&["--demo-limit", "1"], &[]).await;
    let key = stack.key(Scope::Full).await;
    for path in ["/api/v1/ip", "/api/v1/ip/demo"] {
        for method in ["POST", "PUT", "PATCH", "DELETE", "PROPFIND", "TRACE"] {
            let answer = Answer::of(stack.lookup.request(method, path).bearer_auth(&key.secret)).await;
            check_error(&answer, 405, "method_not_allowed");
            assert_eq!(answer.header("allow"), "GET, OPTIONS", "{method} {path}");
        }
        let head = stack.lookup.request("HEAD", path).bearer_auth(&key.secret).send().await.unwrap();
        assert_eq!(
            (head.status().as_u16(), head.headers()["allow"].to_str().unwrap()),
            (405, "GET, OPTIONS")
        );
        assert_eq!(head.headers()["access-control-allow-origin"], "*");
    }
    assert_eq!(key.now(&stack.quota.client()).await.used_today, 0);
    assert_eq!(
        Answer::of(stack.lookup.get("/api/v1/ip/demo")).await.status,
        200,
        "the demo's one place is still free"
    );
}

#[tokio::test]
async fn an_unknown_path_is_404_like_every_error() {
    let stack = Stack::start(&[], &[]).await;
    for path in ["/nothing", "/api/v1/ip/", "/api/v1/ip/8.8.8.8", "/api/v2/ip", "/api/", "/livez", "/metrics"]
    {
        check_error(&Answer::of(stack.lookup.get(path)).await, 404, "not_found");
    }
}

#[tokio::test]
async fn pages_and_documents_are_open_to_every_origin_too() {
    let stack = Stack::start(&[], &[]).await;
    for path in ["/docs", "/swagger", "/openapi.json", "/openapi.yaml"] {
        let answer = stack.lookup.get(path).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["access-control-allow-origin"]),
            (200, &"*".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn the_document_is_the_same_in_json_and_in_yaml() {
    if e2e::chart::venv_tool("python").is_none() {
        return;
    }
    let stack = Stack::start(&[], &[]).await;
    let json = Answer::of(stack.lookup.get("/openapi.json")).await.body;
    let yaml = stack.lookup.get("/openapi.yaml").send().await.unwrap().text().await.unwrap();
    let read: serde_json::Value = serde_json::from_str(&e2e::chart::yaml_to_json(&yaml)).unwrap();
    assert_eq!(read, serde_json::json!([json]));
}

#[tokio::test]
async fn what_was_asked_is_counted_by_operation_outcome_and_time() {
    let stack = Stack::start(&[], &[]).await;
    let key = stack.key(Scope::Full).await;
    for (request, status) in [
        (stack.lookup.ask(&key.secret), 200),
        (stack.lookup.get("/api/v1/ip"), 401),
        (stack.lookup.get("/api/v1/ip/demo"), 200),
    ] {
        assert_eq!(Answer::of(request).await.status, status);
    }
    let metrics = stack.lookup.metrics().await;
    // One line has the name and all of these labels, and ends with the number.
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
        assert!(found, "{name} {labels:?} {number} in\n{metrics}");
    }
}
