//! Request IDs in the responses and logs of real services.

use std::net::IpAddr;

use serde_json::Value;
use testkit::http;
use testkit::lookup::{JsonResponse, Stack, WAIT_TIMEOUT, unknown_key};
use testkit::otlp::{Collector, Span};
use testkit::process::Service;
use testkit::quota::Quota;
use testkit::redis::Redis;
use testkit::wait::eventually_ok;

const HEADER: &str = "x-request-id";
/// A peer that no service trusts as a proxy.
const UNTRUSTED: [u8; 4] = [127, 77, 31, 9];

/// Waits for a line with this message and the ID of a request.
async fn wait_for_line(service: &Service, message: &str, id: &str) {
    let line = eventually_ok(WAIT_TIMEOUT, message, async || {
        let logs = service.logs();
        let mut lines = logs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = lines.any(|line| line["message"] == message && line["request_id"] == id);
        if found { Ok(()) } else { Err(logs) }
    });
    line.await;
}

fn is_sign_in(span: &Span, service: &str) -> bool {
    span.service == service && span.attribute("request_id") == "sign-in-1"
}

#[tokio::test]
async fn failed_lookup_has_the_id_of_its_log_line() {
    let mut stack = Stack::start(&[], &[]).await;
    stack.quota.service.kill();
    let response = JsonResponse::fetch(stack.lookup.get_ip(&unknown_key())).await;
    assert_eq!(response.status, 500);
    let id = response.header(HEADER);
    assert_eq!(id.len(), 16);
    wait_for_line(&stack.lookup.service, "requests fail with 500: no verdict from quota-svc", id).await;
}

#[tokio::test]
async fn lookup_uses_the_id_of_a_trusted_proxy_and_shows_it_to_browsers() {
    let stack = Stack::start(&[], &[]).await;
    let id = "of-the.proxy_1";
    let paths = ["/", "/docs", "/api/v1/ip", "/api/v1/ip/demo", "/nowhere"];
    for path in paths {
        let response = stack.lookup.get(path).header(HEADER, id).send().await.unwrap();
        assert_eq!(response.headers()[HEADER], id, "{path}");
        let exposed = response.headers()["access-control-expose-headers"].to_str().unwrap();
        assert!(exposed.split(", ").any(|name| name.eq_ignore_ascii_case(HEADER)), "{path}: {exposed}");
    }
    let untrusted = http::builder().local_address(IpAddr::from(UNTRUSTED)).build().unwrap();
    for path in paths {
        let request = untrusted.get(stack.lookup.url() + path).header(HEADER, id);
        assert_eq!(request.send().await.unwrap().headers()[HEADER].len(), 16, "{path}");
    }
    assert!(!stack.lookup.service.logs().contains(id));
}

#[tokio::test]
async fn dashboard_request_has_one_id_and_one_trace_in_both_services() {
    let (mut redis, collector) = (Redis::start().await, Collector::start().await);
    let export =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()), ("OTEL_BSP_SCHEDULE_DELAY", "100".into())];
    let export = export.each_ref().map(|(name, value)| (*name, value.as_str()));
    let variables = export.map(|(name, value)| format!("{name}={value}"));
    let wrapper = ["env", &variables[0], &variables[1]];
    let quota = Quota::start_under(&wrapper, &redis, &[]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("session.key");
    std::fs::write(&key, [7; 32]).unwrap();
    let ports =
        ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--trusted-proxies", "127.0.0.1"];
    let flags = [&ports[..], &["--session-key-file", key.to_str().unwrap(), "--quota-url", quota.url()]];
    let mut dashboard = Service::spawn("dashboard-api", &flags.concat(), &export);
    let url = format!("http://{}", dashboard.listen_addr("dashboard").await);
    redis.stop();
    let session = http::client()
        .post(format!("{url}/api/v1/session"))
        .header("origin", &url)
        .header("x-csrf-token", "1")
        .header("content-type", "application/json")
        .header(HEADER, "sign-in-1")
        .body(r#"{"login": "someone", "password": "correct horse"}"#);
    let response = JsonResponse::fetch(session).await;
    assert_eq!((response.status, response.header(HEADER)), (503, "sign-in-1"), "{response:?}");
    wait_for_line(&dashboard, "quota-svc or its store is unavailable", "sign-in-1").await;
    wait_for_line(&quota.service, "operation failed", "sign-in-1").await;
    eventually_ok(WAIT_TIMEOUT, "the trace continues in quota-svc", async || {
        let spans = collector.spans();
        let of = |service: &str| spans.iter().find(|span| is_sign_in(span, service));
        match of("dashboard-api").zip(of("quota-svc")) {
            Some((request, call)) if call.parent == request.id => Ok(()),
            _ => Err(format!("{spans:#?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn every_port_of_ip_lookup_sends_ids() {
    let data = tempfile::tempdir().unwrap();
    let (data, any) = (data.path().to_str().unwrap(), "127.0.0.1:0");
    let ports = ["--listen", any, "--dashboard-listen", any, "--quota-listen", any, "--admin-listen", any];
    let flags = [&["--data-dir", data, "--log-level", "info"], &ports[..]].concat();
    let mut service = Service::spawn("ip-lookup", &flags, &[]);
    for server in ["lookup", "dashboard", "quota", "admin"] {
        let addr = service.listen_addr(server).await;
        let response = http::client().get(format!("http://{addr}/nowhere")).send().await.unwrap();
        assert_eq!(response.headers()[HEADER].len(), 16, "{server}");
    }
}
