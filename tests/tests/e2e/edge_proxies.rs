//! Real HAProxy, nginx, Envoy and Traefik, configured by the chart's edge profiles, pass true connection facts and
//! ignore forged client headers. The same for the HAProxy of Docker Compose.

use std::path::PathBuf;

use e2e::chart::venv_tool;
use e2e::edge_proxy::config::{self, NginxController};
use e2e::edge_proxy::profile::{HeaderRules, Profile};
use e2e::edge_proxy::recorder::Recorder;
use e2e::edge_proxy::{
    CLIENT, EdgeProxy, EdgeResponse, EdgeSetup, FORGED_HEADERS, FORGED_REQUEST_ID, FORGED_TRACE_ID,
    system_tool,
};
use quota_client::wire::Scope;
use serde_json::{Value, json};
use testkit::lookup::{JsonResponse, Stack};
use testkit::tools::{project_root, require_tool};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The connection facts that an edge proxy can pass. All others must be null, even if a client forges them.
#[derive(Clone, Copy)]
struct Capabilities {
    tls: bool,
    protocol: bool,
    rtt: bool,
    /// Whether lookup-svc uses the request ID and sees the trace of a client.
    client_ids: bool,
}

const ALL: Capabilities = Capabilities { tls: true, protocol: true, rtt: true, client_ids: false };
/// For nginx and Envoy profiles without `edge.rttFromController`, which is off by default.
const NO_RTT: Capabilities = Capabilities { rtt: false, ..ALL };
const NONE: Capabilities = Capabilities { tls: false, protocol: false, rtt: false, ..ALL };

/// Arguments of curl, then the expected TLS version, cipher suite and protocol.
const CONNECTIONS: [(&[&str], &str, &str, &str); 4] = [
    (
        &["--http2", "--tlsv1.3", "--tls13-ciphers", "TLS_AES_256_GCM_SHA384"],
        "TLSv1.3",
        "TLS_AES_256_GCM_SHA384",
        "HTTP/2",
    ),
    (
        &["--http1.1", "--tlsv1.3", "--tls13-ciphers", "TLS_AES_128_GCM_SHA256"],
        "TLSv1.3",
        "TLS_AES_128_GCM_SHA256",
        "HTTP/1.1",
    ),
    (
        &["--http2", "--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"],
        "TLSv1.2",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "HTTP/2",
    ),
    (
        &["--http1.1", "--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"],
        "TLSv1.2",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "HTTP/1.1",
    ),
];

/// Starts an edge proxy with the profile and checks every kind of connection, with and without forged headers.
async fn check_profile(
    program: PathBuf,
    profile: &Profile,
    capabilities: Capabilities,
    configure: impl Fn(&EdgeSetup, &HeaderRules) -> Vec<String>,
) {
    let stack = Stack::start(&["--burst-limit", "10000"], &profile.flags()).await;
    let key = stack.key_with_scope(Scope::Full).await.secret;
    let recorder = Recorder::start(stack.lookup.addr());
    let setup = EdgeSetup::new(recorder.addr());
    let arguments = configure(&setup, &profile.headers);
    let edge = EdgeProxy::start(&program, &arguments, setup).await;
    let forged: Vec<_> = FORGED_HEADERS.iter().flat_map(|header| ["--header", header]).collect();
    for extra in [&[], forged.as_slice()] {
        for (connection, version, cipher, protocol) in CONNECTIONS {
            let response = edge.get_ip(&key, true, &[connection, extra].concat());
            let tls = capabilities.tls.then_some((version, cipher));
            check_response(&response, capabilities, CLIENT, tls, protocol);
        }
        check_response(
            &edge.get_ip(&key, false, &[["--http1.1"].as_slice(), extra].concat()),
            capabilities,
            CLIENT,
            None,
            "HTTP/1.1",
        );
        let reached = recorder.received().contains(FORGED_TRACE_ID);
        assert_eq!(reached, capabilities.client_ids && !extra.is_empty(), "{}", recorder.received());
    }
    check_response(
        &edge.get_ip_via_proxy_protocol(&key, "198.51.100.77").await,
        capabilities,
        "198.51.100.77",
        None,
        "HTTP/1.1",
    );
    // The client asks the proxy to remove these headers. The proxy must still send those that it sets itself.
    let connection_header = ["--header", "Connection: X-Edge-Client-IP, X-Forwarded-For, X-Real-IP"];
    let response = edge.get_ip(&key, true, &[connection_header.as_slice(), &forged].concat());
    assert_eq!(response.body["ip"], CLIENT, "{response:?}");
    // Five of each, one with the PROXY protocol, one with the Connection header.
    let received = recorder.received();
    assert!(received.matches("GET /api/v1/ip ").count() >= 12, "all requests are recorded: {received}");
    assert_eq!(received.contains(FORGED_TRACE_ID), capabilities.client_ids, "{received}");
}

fn check_response(
    response: &EdgeResponse,
    capabilities: Capabilities,
    ip: &str,
    tls: Option<(&str, &str)>,
    protocol: &str,
) {
    let uses_forged_id = response.request_id() == FORGED_REQUEST_ID;
    assert!(capabilities.client_ids || !uses_forged_id, "{response:?}");
    let response = &response.body;
    assert_eq!(response["ip"], ip, "{response}");
    assert_eq!(response["tls_version"], json!(tls.map(|(version, _)| version)), "{response}");
    assert_eq!(response["tls_cipher"], json!(tls.map(|(_, cipher)| cipher)), "{response}");
    assert_eq!(response["http_protocol"], json!(capabilities.protocol.then_some(protocol)), "{response}");
    assert_eq!(response["colo"], Value::Null, "{response}");
    match capabilities.rtt {
        // The forged value is 59999: a minute if read as milliseconds, 60 ms if read as microseconds. The real value on
        // loopback is far below both.
        true => assert!(response["rtt"].as_u64().is_some_and(|rtt| rtt < 50), "{response}"),
        false => assert_eq!(response["rtt"], Value::Null, "{response}"),
    }
}

/// Cloud load balancers can't run here, so the test sends the headers that their documentation lists.
#[tokio::test]
async fn cloud_load_balancer_headers_are_parsed() {
    if !tools_available() {
        return;
    }
    let forged =
        ["X-Edge-Colo: XXX", "X-Edge-HTTP-Protocol: HTTP/3", "X-Edge-RTT: 59999", "Host: lookup.example.com"];
    let alb = [
        "X-Forwarded-For: 203.0.113.9, 198.51.100.7:4711",
        "X-Amzn-Tls-Version: TLSv1.2",
        "X-Amzn-Tls-Cipher-Suite: ECDHE-RSA-AES128-GCM-SHA256",
    ];
    let google = [
        "X-Edge-Client-IP: 198.51.100.7",
        "X-Edge-HTTP-Protocol: HTTP/2",
        "X-Edge-TLS-Version: TLSv1.3",
        "X-Edge-TLS-Cipher: 1301",
        "X-Edge-RTT: 12",
    ];
    let cloudflare = [
        "CF-Connecting-IP: 198.51.100.7",
        "X-Forwarded-For: 203.0.113.9, 198.51.100.7",
        "Cf-Ray: 230b030023ae2822-SJC",
        "X-Edge-HTTP-Protocol: HTTP/3",
        "X-Edge-TLS-Version: TLSv1.3",
        "X-Edge-TLS-Cipher: AEAD-AES128-GCM-SHA256",
        "X-Edge-RTT: 0",
        "X-Edge-RTT-Quic: 31",
    ];
    let tls13 = "TLS_AES_128_GCM_SHA256";
    // Expected fields: address, TLS version and cipher suite, protocol, round-trip time, colo.
    let ip = "198.51.100.7";
    let by_alb = json!([ip, "TLSv1.2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", null, null, null]);
    check_cloud_profile("aws-alb", &[alb.as_slice(), &forged].concat(), &by_alb).await;
    // Google and Cloudflare overwrite the protocol and the round-trip time. So, of the forged headers, only the first
    // (the colo) gets through.
    let by_google = json!([ip, "TLSv1.3", tls13, "HTTP/2", 12, null]);
    check_cloud_profile("gcp", &[google.as_slice(), &forged[..1]].concat(), &by_google).await;
    let by_cloudflare = json!([ip, "TLSv1.3", tls13, "HTTP/3", 31, "SJC"]);
    check_cloud_profile("cloudflare", &[cloudflare.as_slice(), &forged[..1]].concat(), &by_cloudflare).await;
}

async fn check_cloud_profile(profile: &str, headers: &[&str], expected: &Value) {
    let rendered = Profile::render(profile, "");
    let stack = Stack::start(&[], &rendered.flags()).await;
    let mut request = stack.lookup.get_ip(&stack.key_with_scope(Scope::Full).await.secret);
    for (header, value) in headers.iter().filter_map(|line| line.split_once(": ")) {
        request = request.header(header, value);
    }
    // The load balancer replaces these headers of a client by values without variables.
    for name in ["X-Request-Id", "traceparent"] {
        let replaced = rendered.headers.set.iter().find(|(header, _)| header == name);
        assert_eq!(replaced.is_some(), profile == "gcp", "{profile} {name}");
        if let Some((_, value)) = replaced {
            request = request.header(name, value);
        }
    }
    let response = JsonResponse::fetch(request).await;
    // A generated ID.
    assert_eq!(response.headers["x-request-id"].len(), 16, "{profile}");
    let response = response.body;
    let fields = ["ip", "tls_version", "tls_cipher", "http_protocol", "rtt", "colo"];
    assert_eq!(&json!(fields.map(|field| &response[field])), expected, "{profile}");
}

fn tools_available() -> bool {
    require_tool("curl") && venv_tool("helm").is_some()
}

#[tokio::test]
async fn haproxy_profiles_ignore_forged_headers() {
    let Some(haproxy) = tools_available().then(|| system_tool("haproxy")).flatten() else { return };
    for name in ["haproxy", "haproxy-ingress"] {
        check_profile(haproxy.clone(), &Profile::render(name, ""), ALL, config::haproxy).await;
    }
}

#[tokio::test]
async fn compose_haproxy_ignores_forged_headers() {
    let Some(haproxy) = tools_available().then(|| system_tool("haproxy")).flatten() else { return };
    let compose = std::fs::read_to_string(project_root().join("docker-compose.yaml")).unwrap();
    let flags = ["--client-ip-from=header:X-Edge-Client-IP", "--edge-rtt-unit=us"].map(str::to_owned);
    for flag in &flags {
        assert!(compose.contains(flag), "{flag} in docker-compose.yaml");
    }
    let profile = Profile { headers: HeaderRules::default(), flags: flags.to_vec() };
    check_profile(haproxy, &profile, ALL, |setup, _| config::compose_haproxy(setup)).await;
}

#[tokio::test]
async fn f5_nginx_profile_ignores_forged_headers() {
    let Some(nginx) = tools_available().then(|| system_tool("nginx")).flatten() else { return };
    let configure =
        |setup: &EdgeSetup, headers: &HeaderRules| config::nginx(setup, headers, NginxController::F5);
    check_profile(nginx.clone(), &Profile::render("nginx", ""), NO_RTT, configure).await;
    // Again with the header that the snippet from NOTES.txt sets. The controller adds that snippet to every location.
    let mut with_rtt = Profile::render("nginx", "edge.rttFromController=true");
    with_rtt.headers.set.push(("X-Edge-RTT".to_owned(), "$tcpinfo_rtt".to_owned()));
    check_profile(nginx, &with_rtt, ALL, configure).await;
}

#[tokio::test]
async fn ingress_nginx_profile_ignores_forged_headers() {
    let Some(nginx) = tools_available().then(|| system_tool("nginx")).flatten() else { return };
    let configure = |setup: &EdgeSetup, headers: &HeaderRules| {
        config::nginx(setup, headers, NginxController::IngressNginx)
    };
    check_profile(
        nginx.clone(),
        &Profile::render("ingress-nginx", "edge.ingressNginxHeaders=true"),
        ALL,
        configure,
    )
    .await;
    // Until its administrator sets the header ConfigMap, the controller passes client headers, and lookup-svc
    // uses none of them except the request ID and the trace, as the chart's README says.
    let mut unconfigured = Profile::render("ingress-nginx", "");
    unconfigured.headers = HeaderRules::default();
    check_profile(nginx, &unconfigured, Capabilities { client_ids: true, ..NONE }, configure).await;
}

#[tokio::test]
async fn envoy_profiles_ignore_forged_headers() {
    let Some(envoy) = tools_available().then(|| venv_tool("envoy")).flatten() else { return };
    for name in ["envoy-gateway", "contour", "istio"] {
        // Envoy's round-trip time on loopback is 0 ms or a few, so null can be checked only without it.
        let profile = Profile::render(name, "edge.rttFromController=false");
        check_profile(envoy.clone(), &profile, NO_RTT, config::envoy).await;
    }
}

#[tokio::test]
async fn traefik_profile_ignores_forged_headers() {
    let Some(traefik) = tools_available().then(|| venv_tool("traefik")).flatten() else { return };
    check_profile(traefik, &Profile::render("traefik", ""), NONE, config::traefik).await;
}

// Two threads: curl blocks one of them while the echo server runs on the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_sends_rtt_in_milliseconds() {
    let Some(envoy) = tools_available().then(|| venv_tool("envoy")).flatten() else { return };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let setup = EdgeSetup::new(listener.local_addr().unwrap());
    let profile = Profile::render("envoy-gateway", "edge.rttFromController=true");
    let arguments = config::envoy(&setup, &profile.headers);
    // The upstream is an echo server that returns the request head as JSON. lookup-svc can't show the value: Envoy
    // sends whole milliseconds, so 0 on loopback, and lookup-svc reports 0 as null.
    let echo = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                    let body = json!({ "head": String::from_utf8_lossy(&bytes[..length]) }).to_string();
                    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    stream.write_all(response.as_bytes()).await.unwrap();
                }
            });
        }
    });
    let edge = EdgeProxy::start(&envoy, &arguments, setup).await;
    let response = edge.get_ip("none", true, &["--header", "X-Edge-RTT: 4321"]);
    let head = response.body["head"].as_str().unwrap();
    echo.abort();
    let rtt: Vec<_> = head.lines().filter_map(|line| line.strip_prefix("x-edge-rtt: ")).collect();
    assert!(matches!(rtt.as_slice(), [one] if one.parse::<u32>().is_ok_and(|ms| ms < 1000)), "{head}");
}
