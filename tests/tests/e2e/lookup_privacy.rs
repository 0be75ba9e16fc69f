//! No client data is logged, exported or stored, yet a request can be traced through lookup-svc and quota-svc.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use quota_client::wire::Scope;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::NamedTempFile;
use testkit::http;
use testkit::lookup::{JsonResponse, Lookup, WAIT_TIMEOUT, unknown_key};
use testkit::mmdb::sample;
use testkit::otlp::{Collector, Span};
use testkit::quota::{Quota, StoreChoice, TestKey};
use testkit::redis::Redis;
use testkit::wait::eventually_ok;

// Marker values in requests. None of them may be logged, exported or stored.
const V4: &str = "89.160.20.77";
const V6: &str = "2a02:cf40:beef:cafe::77";
const PEER: [u8; 4] = [127, 77, 31, 9];
const OTHER: &str = "216.160.83.233";
const MALFORMED: &str = "ipl_MalformedMarkerMalformedMarker";
const PASSWORD: &str = "hunter2-swordfish";
// The trace context of the client.
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_SPAN: &str = "00f067aa0ba902b7";

/// lookup-svc and quota-svc with debug logs and telemetry to one collector.
struct TracedStack {
    lookup: Lookup,
    quota: Quota,
    redis: Redis,
    collector: Collector,
    /// Geo data with a city for the addresses, so that responses have something to hide.
    _sample: NamedTempFile,
}

impl TracedStack {
    async fn start() -> Self {
        let (redis, collector) = (Redis::start().await, Collector::start().await);
        let endpoint = collector.url();
        let export =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_METRIC_EXPORT_INTERVAL", "200")];
        let debug = ["--log-level", "debug", "--drain-delay", "0s"];
        let variables: Vec<String> = export.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let wrapper = ["env", &variables[0], &variables[1]];
        let flags =
            [debug.as_slice(), &["--store-timeout", "10s", "--burst-limit", "3", "--demo-limit", "2"]]
                .concat();
        let quota = Quota::start_under(&wrapper, StoreChoice::from(&redis), &flags).await;
        quota.wait_ready(WAIT_TIMEOUT).await;
        let sample = sample::file();
        let geo = ["--geo-db", sample.path().to_str().unwrap()];
        let flags =
            [debug.as_slice(), &geo, &["--quota-deadline", "10s", "--request-timeout", "12s"]].concat();
        let lookup = Lookup::start_under(&[], quota.url(), &flags, &export).await;
        Self { lookup, quota, redis, collector, _sample: sample }
    }

    /// Stops both services, which flushes their telemetry. Returns everything that they logged and exported.
    async fn stop_and_collect(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut outputs = vec![
            ("/metrics of lookup-svc".to_owned(), self.lookup.metrics().await.into_bytes()),
            ("/metrics of quota-svc".to_owned(), self.quota.metrics().await.into_bytes()),
        ];
        for (name, service) in
            [("lookup-svc", &mut self.lookup.service), ("quota-svc", &mut self.quota.service)]
        {
            service.signal(Signal::TERM);
            assert!(service.wait_exit(WAIT_TIMEOUT).await.success(), "{name}");
            let logs = service.logs();
            assert!(logs.contains(r#""level":"DEBUG""#), "{name} must log at debug level:\n{logs}");
            outputs.extend([(format!("log of {name}"), (logs + &service.stdout()).into_bytes())]);
        }
        for path in ["/v1/traces", "/v1/metrics"] {
            let bodies = self.collector.bodies(path);
            assert!(!bodies.is_empty(), "nothing was exported to {path}");
            outputs.extend(bodies.into_iter().map(|body| (path.to_owned(), body)));
        }
        outputs
    }

    /// The content of Redis: an uncompressed RDB file.
    async fn stored_bytes(&self) -> Vec<u8> {
        self.redis.cli(&["CONFIG", "SET", "rdbcompression", "no"]).await;
        self.redis.cli(&["SAVE"]).await;
        std::fs::read(self.redis.dir().join("dump.rdb")).unwrap()
    }
}

/// The `traceparent` header of the client.
fn traceparent() -> String {
    format!("00-{TRACE_ID}-{PARENT_SPAN}-01")
}

/// Sends requests of every kind, each with marker values that must not be logged or stored. Returns the body of the first
/// response: its location and network must not be logged or stored either.
async fn send_marked(stack: &TracedStack, keys: [&TestKey; 2], unknown: &str) -> Value {
    let lookup = &stack.lookup;
    let marked = |request: reqwest::RequestBuilder, ip: &str| {
        let request = request.header("x-forwarded-for", ip).header("cookie", format!("session={PASSWORD}"));
        let request =
            request.header("user-agent", PASSWORD).header("referer", format!("https://{PASSWORD}.example/"));
        let request = request.header("x-real-ip", OTHER).header("forwarded", format!("for={OTHER}"));
        let request =
            request.header("traceparent", traceparent()).header("tracestate", format!("a={PASSWORD}"));
        request.header("x-api-key", PASSWORD).header("baggage", format!("ip={OTHER},password={PASSWORD}"))
    };
    let by_query = |key: &str| lookup.get(&format!("/api/v1/ip?key={key}"));
    // The burst limit is 3: the fourth request pauses the key, the fifth finds it paused.
    let mut bodies = Vec::new();
    for status in [200, 200, 200, 429, 429] {
        let response = JsonResponse::fetch(marked(lookup.get_ip(&keys[0].secret), V4)).await;
        assert_eq!(response.status, status);
        bodies.push(response.body);
    }
    for (request, ip, status) in [
        (by_query(&keys[1].secret), V6, 200),
        (lookup.get_ip(unknown), V4, 401),
        (by_query(unknown), V6, 401),
        (lookup.get_ip(MALFORMED), V4, 401),
        (by_query(MALFORMED), V4, 401),
        (lookup.get("/api/v1/ip").basic_auth("someone", Some(PASSWORD)), V4, 401),
        (lookup.get(&format!("/api/v1/ip?scope={PASSWORD}&key={}", keys[1].secret)), V4, 400),
        (lookup.get(&format!("/api/v1/ip/{PASSWORD}?ip={V4}&key={}", keys[1].secret)), V4, 404),
        (lookup.get(&format!("/{}?password={PASSWORD}", keys[1].secret)), V4, 404),
        (lookup.request("POST", "/api/v1/ip").body(format!("{{\"password\":\"{PASSWORD}\"}}")), V4, 405),
        (lookup.get_ip(&keys[1].secret).body(format!("{PASSWORD} {V4}")), V4, 200),
        (
            lookup.request("OPTIONS", "/api/v1/ip").header("origin", format!("https://{PASSWORD}.example")),
            V4,
            204,
        ),
        (lookup.get("/api/v1/ip/demo"), V4, 200),
        (lookup.get("/api/v1/ip/demo"), V6, 200),
        (lookup.get("/api/v1/ip/demo"), V4, 429),
    ] {
        assert_eq!(JsonResponse::fetch(marked(request, ip)).await.status, status);
    }
    let page = marked(lookup.get("/"), V4).send().await.unwrap().text().await.unwrap();
    assert!(page.contains(V4), "{page}");
    // A direct client: the peer address itself is a marker.
    let direct = http::builder().local_address(std::net::IpAddr::from(PEER)).build().unwrap();
    let response =
        JsonResponse::fetch(direct.get(lookup.url() + "/api/v1/ip").bearer_auth(&keys[1].secret)).await;
    assert_eq!(response.body["ip"], "127.77.31.9");
    bodies.swap_remove(0)
}

/// Values that must not appear anywhere: (description, bytes).
fn secrets(keys: [&TestKey; 2], unknown: &str) -> Vec<(String, Vec<u8>)> {
    let ips = [V4, OTHER].map(|ip| (ip, ip.parse::<std::net::Ipv4Addr>().unwrap()));
    let mut secrets: Vec<(String, Vec<u8>)> = Vec::new();
    for text in [V4, V6, OTHER, "127.77.31.9", PASSWORD, &MALFORMED[4..], &unknown[4..36]] {
        secrets.push((text.to_owned(), text.into()));
    }
    for (text, ip) in ips {
        secrets.push((format!("{text} in bytes"), ip.octets().into()));
        secrets.push((format!("{text} as a number"), ip.to_bits().to_string().into()));
    }
    secrets.push((format!("{V6} in bytes"), V6.parse::<std::net::Ipv6Addr>().unwrap().octets().into()));
    for key in keys {
        // Without the parts that the hint shows: `ipl_`, the next four and the last four characters.
        secrets.push(("a key".to_owned(), key.secret[8..38].into()));
    }
    secrets
}

/// The half of each SHA-256 digest that is not the key ID. Only the store may contain it.
fn digests(keys: [&TestKey; 2]) -> Vec<(String, Vec<u8>)> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let halves = keys.into_iter().map(|key| &key.digest.0[16..]);
    let forms = halves.flat_map(|half| [half.to_vec(), hex(half).into_bytes()]);
    forms.map(|bytes| ("a key's digest".to_owned(), bytes)).collect()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

fn check_absent(haystacks: &[(String, Vec<u8>)], needles: &[(String, Vec<u8>)]) {
    for (location, bytes) in haystacks {
        for (what, needle) in needles {
            let line = bytes
                .split(|byte| *byte == b'\n')
                .find(|line| contains(line, needle))
                .map(String::from_utf8_lossy);
            assert!(!contains(bytes, needle), "{what} is in {location}: {line:?}");
        }
    }
}

#[tokio::test]
async fn keys_addresses_and_passwords_are_never_logged_or_stored() {
    let mut stack = TracedStack::start().await;
    let (first, second) =
        (stack.quota.key_with_scope(Scope::Full).await, stack.quota.key_with_scope(Scope::Geo).await);
    let (keys, unknown) = ([&first, &second], unknown_key());
    let response = send_marked(&stack, keys, &unknown).await;
    let location = ["city", "region", "postal_code", "org"].map(|field| response[field].as_str().unwrap());
    let location = location.map(|text| (format!("{text:?} of a response"), text.as_bytes().to_vec()));
    let outputs = stack.stop_and_collect().await;
    let everything: Vec<u8> = outputs.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    assert!(contains(&everything, b"get_demo"), "the search finds existing values");
    check_absent(&outputs, &secrets(keys, &unknown));
    check_absent(&outputs, &digests(keys));
    check_absent(&outputs, &location);
    let stored = stack.stored_bytes().await;
    assert!(contains(&stored, first.key.id.as_bytes()), "the search finds stored values");
    check_absent(&[("the store".to_owned(), stored)], &[secrets(keys, &unknown), location.to_vec()].concat());
}

/// The only span for which `matches` is true. `matches` should use attributes if possible: span names are for display.
fn find_span<'a>(spans: &'a [Span], what: &str, matches: impl Fn(&Span) -> bool) -> &'a Span {
    let found: Vec<_> = spans.iter().filter(|span| matches(span)).collect();
    assert_eq!(found.len(), 1, "{what} in {spans:#?}");
    found[0]
}

/// Checks that the metrics of lookup-svc are exported.
fn check_metrics(collector: &Collector) {
    let exported = collector.bodies("/v1/metrics").concat();
    for name in [
        "http_server_request_duration",
        "lookup_requests",
        "lookup_quota_call_duration",
        "lookup_quota_batch_size",
        "lookup_client_ip_decisions",
        "geo_database_age",
    ] {
        assert!(contains(&exported, name.as_bytes()), "{name} is missing");
    }
}

#[tokio::test]
async fn request_is_one_trace_through_both_services() {
    let mut stack = TracedStack::start().await;
    let key = stack.quota.key_with_scope(Scope::Full).await;
    let narrowed = stack.lookup.get("/api/v1/ip?scope=geo").bearer_auth(&key.secret);
    assert_eq!(JsonResponse::fetch(narrowed.header("traceparent", traceparent())).await.status, 200);
    assert_eq!(JsonResponse::fetch(stack.lookup.get_ip(&unknown_key())).await.status, 401);
    assert_eq!(JsonResponse::fetch(stack.lookup.get("/api/v1/ip/demo")).await.status, 200);
    // Only 127.0.0.1 is a trusted proxy.
    let untrusted = http::builder().local_address(std::net::IpAddr::from(PEER)).build().unwrap();
    let untrusted = untrusted.get(stack.lookup.url() + "/api/v1/ip").bearer_auth(&key.secret);
    assert_eq!(JsonResponse::fetch(untrusted.header("traceparent", traceparent())).await.status, 200);
    stack.stop_and_collect().await;
    let spans = stack.collector.spans();
    check_metrics(&stack.collector);

    let is_lookup = |span: &Span| span.service == "lookup-svc";

    let request = find_span(&spans, "the request", |span| {
        is_lookup(span) && span.attribute("outcome") == "success" && span.trace == TRACE_ID
    });
    assert_eq!(request.parent, PARENT_SPAN, "the trace of the client continues");
    let attributes = ["operation", "scope", "outcome"].map(|name| request.attribute(name));
    assert_eq!(attributes, ["get_ip", "geo", "success"]);
    assert_eq!(request.number("http.response.status_code"), Some(200), "a number, not a string: {request:?}");
    assert!(spans.iter().all(|span| span.version == env!("CARGO_PKG_VERSION")), "{spans:#?}");
    let call = find_span(&spans, "the quota call", |span| {
        is_lookup(span) && span.name == "quota.charge" && span.trace == TRACE_ID
    });
    assert_eq!(call.parent, request.id, "the quota call is a child of the request");
    let charge = find_span(&spans, "the charge in quota-svc", |span| {
        span.service == "quota-svc" && span.trace == TRACE_ID
    });
    assert_eq!(charge.parent, call.id);

    assert_eq!(spans.iter().filter(|span| span.trace == TRACE_ID).count(), 3, "not the untrusted client's");
    let unknown = find_span(&spans, "the request with an unknown key", |span| {
        is_lookup(span) && span.attribute("outcome") == "unknown_key"
    });
    assert_eq!((unknown.attribute("scope"), unknown.parent.as_str()), ("none", ""), "a new trace");
    assert_ne!(unknown.trace, TRACE_ID);
    let demo =
        find_span(&spans, "the demo", |span| is_lookup(span) && span.attribute("operation") == "get_demo");
    assert_eq!((demo.attribute("scope"), demo.attribute("outcome")), ("demo", "success"));
}

/// A batch has one span in quota-svc, which can be the child of only one of its requests.
#[tokio::test]
async fn each_concurrent_request_has_a_quota_span_by_parent_or_link() {
    const REQUESTS: usize = 40;
    let mut stack = TracedStack::start().await;
    let mut keys = Vec::new();
    for _ in 0..REQUESTS {
        keys.push(stack.quota.key_with_scope(Scope::Ip).await);
    }
    // While quota-svc is stopped, charges queue up behind the calls in flight.
    let idle_files = stack.lookup.service.open_files();
    stack.quota.service.signal(Signal::STOP);
    let requests: Vec<_> = keys
        .iter()
        .map(|key| {
            let client = http::client();
            let request = client.get(stack.lookup.url() + "/api/v1/ip").bearer_auth(&key.secret);
            tokio::spawn(JsonResponse::fetch(request))
        })
        .collect();
    eventually_ok(WAIT_TIMEOUT, "all connections are open", async || {
        let files = stack.lookup.service.open_files();
        if files >= idle_files + REQUESTS { Ok(()) } else { Err(format!("{files} open files")) }
    })
    .await;
    stack.quota.service.signal(Signal::CONT);
    for request in requests {
        assert_eq!(request.await.unwrap().status, 200);
    }
    stack.stop_and_collect().await;
    let spans = stack.collector.spans();
    let quota: Vec<_> = spans
        .iter()
        .filter(|span| span.service == "quota-svc" && span.attribute("operation") == "chargeBatch")
        .collect();
    assert!(quota.iter().any(|span| !span.links.is_empty()), "no batch of several requests: {quota:#?}");
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "quota.charge").collect();
    assert_eq!(calls.len(), REQUESTS);
    for call in calls {
        let is_linked = |span: &&&Span| span.links.contains(&(call.trace.clone(), call.id.clone()));
        let reached: Vec<_> = quota.iter().filter(|span| span.parent == call.id || is_linked(span)).collect();
        assert_eq!(reached.len(), 1, "{call:?} in {quota:#?}");
    }
}
