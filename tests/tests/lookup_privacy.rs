//! Nothing that a client sends stays anywhere (F20), and yet a request can be traced through both services.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use e2e::http;
use e2e::lookup::{Answer, Lookup, PATIENCE, unknown_key};
use e2e::otlp::{Collector, Span};
use e2e::quota::{Quota, StoreChoice, TestKey};
use e2e::redis::Redis;
use quota_client::wire::Scope;
use rustix::process::Signal;
use serde_json::Value;

const V4: &str = "203.0.113.77";
const V6: &str = "2001:db8:beef:cafe::77";
const PEER: [u8; 4] = [127, 77, 31, 9];
const OTHER: &str = "198.51.100.233";
const MALFORMED: &str = "ipl_MalformedMarkerMalformedMarker";
const PASSWORD: &str = "hunter2-swordfish";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// Both services with debug logs, sending their telemetry to one collector.
struct World {
    lookup: Lookup,
    quota: Quota,
    redis: Redis,
    collector: Collector,
}

impl World {
    async fn start() -> Self {
        let (redis, collector) = (Redis::start().await, Collector::start().await);
        let endpoint = collector.url();
        let export =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_METRIC_EXPORT_INTERVAL", "200")];
        let debug = ["--log-level", "debug", "--drain-delay", "0s"];
        let given: Vec<String> = export.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let wrapper = ["env", &given[0], &given[1]];
        let flags =
            [debug.as_slice(), &["--store-timeout", "10s", "--burst-limit", "3", "--demo-limit", "2"]]
                .concat();
        let quota = Quota::start_under(&wrapper, StoreChoice::from(&redis), &flags).await;
        quota.wait_ready(PATIENCE).await;
        let flags = [debug.as_slice(), &["--quota-deadline", "10s", "--request-timeout", "12s"]].concat();
        let lookup = Lookup::start_under(&[], quota.url(), &flags, &export).await;
        Self { lookup, quota, redis, collector }
    }

    /// Ends both, which sends what has gathered, and gives all that they wrote anywhere but in the store.
    async fn end(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut written = vec![
            ("/metrics of lookup-svc".to_owned(), self.lookup.metrics().await.into_bytes()),
            ("/metrics of quota-svc".to_owned(), self.quota.metrics().await.into_bytes()),
        ];
        for (name, service) in
            [("lookup-svc", &mut self.lookup.service), ("quota-svc", &mut self.quota.service)]
        {
            service.signal(Signal::TERM);
            assert!(service.wait_exit(PATIENCE).await.success(), "{name}");
            let logs = service.logs();
            assert!(logs.contains(r#""level":"DEBUG""#), "{name} logs at debug:\n{logs}");
            written.extend([(format!("log of {name}"), (logs + &service.stdout()).into_bytes())]);
        }
        for path in ["/v1/traces", "/v1/metrics"] {
            let bodies = self.collector.bodies(path);
            assert!(!bodies.is_empty(), "{path} was sent");
            written.extend(bodies.into_iter().map(|body| (path.to_owned(), body)));
        }
        written
    }

    /// All that Redis holds, as its own file format has it, uncompressed.
    async fn stored(&self) -> Vec<u8> {
        self.redis.cli(&["CONFIG", "SET", "rdbcompression", "no"]).await;
        self.redis.cli(&["SAVE"]).await;
        std::fs::read(self.redis.dir().join("dump.rdb")).unwrap()
    }
}

/// The trace of a caller who has one.
fn parent() -> String {
    format!("00-{TRACE}-{CALLER}-01")
}

/// Requests of every kind, each with something in it that must not be seen again; gives the first answer, whose place
/// and network must not be seen either.
async fn send_marked(world: &World, keys: [&TestKey; 2], unknown: &str) -> Value {
    let lookup = &world.lookup;
    let marked = |request: reqwest::RequestBuilder, ip: &str| {
        let request = request.header("x-forwarded-for", ip).header("cookie", format!("session={PASSWORD}"));
        let request =
            request.header("user-agent", PASSWORD).header("referer", format!("https://{PASSWORD}.example/"));
        let request = request.header("x-real-ip", OTHER).header("forwarded", format!("for={OTHER}"));
        let request = request.header("traceparent", parent()).header("tracestate", format!("a={PASSWORD}"));
        request.header("x-api-key", PASSWORD).header("baggage", format!("ip={OTHER},password={PASSWORD}"))
    };
    let by_query = |key: &str| lookup.get(&format!("/api/v1/ip?key={key}"));
    // Four of a key that may three: it is paused, and asked for once more.
    let mut answered = Vec::new();
    for status in [200, 200, 200, 429, 429] {
        let answer = Answer::of(marked(lookup.ask(&keys[0].secret), V4)).await;
        assert_eq!(answer.status, status);
        answered.push(answer.body);
    }
    for (request, ip, status) in [
        (by_query(&keys[1].secret), V6, 200),
        (lookup.ask(unknown), V4, 401),
        (by_query(unknown), V6, 401),
        (lookup.ask(MALFORMED), V4, 401),
        (by_query(MALFORMED), V4, 401),
        (lookup.get("/api/v1/ip").basic_auth("someone", Some(PASSWORD)), V4, 401),
        (lookup.get(&format!("/api/v1/ip?scope={PASSWORD}&key={}", keys[1].secret)), V4, 400),
        (lookup.get(&format!("/api/v1/ip/{PASSWORD}?ip={V4}&key={}", keys[1].secret)), V4, 404),
        (lookup.get(&format!("/{}?password={PASSWORD}", keys[1].secret)), V4, 404),
        (lookup.request("POST", "/api/v1/ip").body(format!("{{\"password\":\"{PASSWORD}\"}}")), V4, 405),
        (lookup.ask(&keys[1].secret).body(format!("{PASSWORD} {V4}")), V4, 200),
        (
            lookup.request("OPTIONS", "/api/v1/ip").header("origin", format!("https://{PASSWORD}.example")),
            V4,
            204,
        ),
        (lookup.get("/api/v1/ip/demo"), V4, 200),
        (lookup.get("/api/v1/ip/demo"), V6, 200),
        (lookup.get("/api/v1/ip/demo"), V4, 429),
    ] {
        assert_eq!(Answer::of(marked(request, ip)).await.status, status);
    }
    // A client that is not behind the proxy: its own address is the marked one.
    let direct = http::builder().local_address(std::net::IpAddr::from(PEER)).build().unwrap();
    let answer = Answer::of(direct.get(lookup.url() + "/api/v1/ip").bearer_auth(&keys[1].secret)).await;
    assert_eq!(answer.body["ip"], "127.77.31.9");
    answered.swap_remove(0)
}

/// What must be nowhere: (what it is, its bytes).
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
        // Without what the hint shows of it: the first four and the last four.
        secrets.push(("a key".to_owned(), key.secret[8..38].into()));
    }
    secrets
}

/// The half of each key's SHA-256 that is not its public id; the store alone may know it.
fn digests(keys: [&TestKey; 2]) -> Vec<(String, Vec<u8>)> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let halves = keys.into_iter().map(|key| &key.sha256[16..]);
    let forms = halves.flat_map(|half| [half.to_vec(), hex(half).into_bytes()]);
    forms.map(|bytes| ("a key's digest".to_owned(), bytes)).collect()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

fn search(places: &[(String, Vec<u8>)], needles: &[(String, Vec<u8>)]) {
    for (place, bytes) in places {
        for (what, needle) in needles {
            let line = bytes
                .split(|byte| *byte == b'\n')
                .find(|line| contains(line, needle))
                .map(String::from_utf8_lossy);
            assert!(!contains(bytes, needle), "{what} is in {place}: {line:?}");
        }
    }
}

#[tokio::test]
async fn no_key_no_address_and_no_password_is_in_any_log_span_metric_or_stored_byte() {
    let mut world = World::start().await;
    let (first, second) = (world.quota.key_of(Scope::Full).await, world.quota.key_of(Scope::Geo).await);
    let (keys, unknown) = ([&first, &second], unknown_key());
    let answer = send_marked(&world, keys, &unknown).await;
    let told = ["city", "region", "postal_code", "org"].map(|field| answer[field].as_str().unwrap());
    let told = told.map(|text| (format!("{text:?} of an answer"), text.as_bytes().to_vec()));
    let written = world.end().await;
    let everything: Vec<u8> = written.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    assert!(contains(&everything, b"get_demo"), "the search would find what is there");
    search(&written, &secrets(keys, &unknown));
    search(&written, &digests(keys));
    search(&written, &told);
    let stored = world.stored().await;
    assert!(contains(&stored, first.key.id.as_bytes()), "the search would find what is stored");
    search(&[("the store".to_owned(), stored)], &[secrets(keys, &unknown), told.to_vec()].concat());
}

/// The one span like this; by what it says rather than by its name, which is for people.
fn one<'a>(spans: &'a [Span], what: &str, is: impl Fn(&Span) -> bool) -> &'a Span {
    let found: Vec<_> = spans.iter().filter(|span| is(span)).collect();
    assert_eq!(found.len(), 1, "{what} in {spans:#?}");
    found[0]
}

/// What was exported has a value for each thing that lookup-svc counts.
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
        assert!(contains(&exported, name.as_bytes()), "{name} is exported");
    }
}

#[tokio::test]
async fn a_request_is_one_trace_from_its_caller_through_lookup_svc_to_quota_svc() {
    let mut world = World::start().await;
    let key = world.quota.key_of(Scope::Full).await;
    let narrowed = world.lookup.get("/api/v1/ip?scope=geo").bearer_auth(&key.secret);
    assert_eq!(Answer::of(narrowed.header("traceparent", parent())).await.status, 200);
    assert_eq!(Answer::of(world.lookup.ask(&unknown_key())).await.status, 401);
    assert_eq!(Answer::of(world.lookup.get("/api/v1/ip/demo")).await.status, 200);
    world.end().await;
    let spans = world.collector.spans();
    check_metrics(&world.collector);

    let of_lookup = |span: &Span| span.service == "lookup-svc";

    let request = one(&spans, "the request", |span| {
        of_lookup(span) && span.attribute("outcome") == "success" && span.trace == TRACE
    });
    assert_eq!(request.parent, CALLER, "the caller's trace goes on");
    let told =
        ["operation", "scope", "outcome", "http.response.status_code"].map(|name| request.attribute(name));
    assert_eq!(told, ["get_ip", "geo", "success", "200"]);
    let call = one(&spans, "the quota call", |span| {
        of_lookup(span) && span.name == "quota.charge" && span.trace == TRACE
    });
    assert_eq!(call.parent, request.id, "the call of quota-svc is a child of the request");
    let judged = one(&spans, "quota-svc's part", |span| span.service == "quota-svc" && span.trace == TRACE);
    assert_eq!(judged.parent, call.id);

    let refused =
        one(&spans, "the refusal", |span| of_lookup(span) && span.attribute("outcome") == "unknown_key");
    assert_eq!((refused.attribute("scope"), refused.parent.as_str()), ("none", ""), "a trace of its own");
    assert_ne!(refused.trace, TRACE);
    let demo = one(&spans, "the demo", |span| of_lookup(span) && span.attribute("operation") == "get_demo");
    assert_eq!((demo.attribute("scope"), demo.attribute("outcome")), ("demo", "success"));
}

#[tokio::test]
async fn a_collector_that_is_away_disturbs_no_request() {
    let gone = e2e::ports::ReservedPort::new();
    let endpoint = format!("http://{}", gone.addr());
    let redis = Redis::start().await;
    let quota = Quota::start_with(&redis, &["--store-timeout", "10s"]).await;
    quota.wait_ready(PATIENCE).await;
    let flags = ["--drain-delay", "0s", "--quota-deadline", "10s", "--request-timeout", "12s"];
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())];
    let mut lookup = Lookup::start_under(&[], quota.url(), &flags, &env).await;
    let key = quota.new_key().await;
    for _ in 0..50 {
        assert_eq!(Answer::of(lookup.ask(&key.secret)).await.status, 200);
    }
    lookup.service.term();
    assert!(lookup.service.wait_exit(Duration::from_secs(10)).await.success(), "nor the end");
}
