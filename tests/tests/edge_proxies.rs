//! Real HAProxy, nginx, Envoy and Traefik, configured as the chart's profiles say, pass what is true and nothing a
//! client says about itself.

use std::path::PathBuf;

use e2e::chart::venv_tool;
use e2e::edge_proxy::config::{self, Nginx};
use e2e::edge_proxy::profile::{Headers, Profile};
use e2e::edge_proxy::{CLIENT, Edge, LIES, Site, system_tool};
use e2e::lookup::{Answer, Stack};
use e2e::tools::require_tool;
use quota_client::wire::Scope;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// What an edge can pass; the rest must be null whatever a client says.
#[derive(Clone, Copy)]
struct Can {
    tls: bool,
    protocol: bool,
    rtt: bool,
}

const ALL: Can = Can { tls: true, protocol: true, rtt: true };
/// Envoy sends whole milliseconds, and loopback takes none.
const NO_RTT: Can = Can { rtt: false, ..ALL };
const NOTHING: Can = Can { tls: false, protocol: false, rtt: false };

/// curl's arguments and what must be in the answer: TLS version, cipher suite, protocol.
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

/// Starts an edge by the profile and tries every connection, honest and lying.
async fn prove(
    program: PathBuf,
    profile: &Profile,
    can: Can,
    configure: impl Fn(&Site, &Headers) -> Vec<String>,
) {
    let stack = Stack::start(&["--burst-limit", "10000"], &profile.flags()).await;
    let key = stack.key(Scope::Full).await.secret;
    let site = Site::new(stack.lookup.addr());
    let arguments = configure(&site, &profile.headers);
    let edge = Edge::start(&program, &arguments, site).await;
    let lies: Vec<_> = LIES.iter().flat_map(|lie| ["--header", lie]).collect();
    for lies in [&[], lies.as_slice()] {
        for (connection, version, cipher, protocol) in CONNECTIONS {
            let answer = edge.ask(&key, true, &[connection, lies].concat());
            let tls = can.tls.then_some((version, cipher));
            judge(&answer, can, CLIENT, tls, protocol);
        }
        judge(
            &edge.ask(&key, false, &[["--http1.1"].as_slice(), lies].concat()),
            can,
            CLIENT,
            None,
            "HTTP/1.1",
        );
    }
    judge(&edge.ask_for(&key, "198.51.100.77").await, can, "198.51.100.77", None, "HTTP/1.1");
    let stripped = ["--header", "Connection: X-Edge-Client-IP, X-Forwarded-For, X-Real-IP"];
    let answer = edge.ask(&key, true, &[stripped.as_slice(), &lies].concat());
    assert_eq!(answer["ip"], CLIENT, "{answer}");
}

fn judge(answer: &Value, can: Can, ip: &str, tls: Option<(&str, &str)>, protocol: &str) {
    assert_eq!(answer["ip"], ip, "{answer}");
    assert_eq!(answer["tls_version"], json!(tls.map(|(version, _)| version)), "{answer}");
    assert_eq!(answer["tls_cipher"], json!(tls.map(|(_, cipher)| cipher)), "{answer}");
    assert_eq!(answer["http_protocol"], json!(can.protocol.then_some(protocol)), "{answer}");
    assert_eq!(answer["colo"], Value::Null, "{answer}");
    match can.rtt {
        // The lie is a minute in milliseconds and 60 ms in microseconds; loopback takes far less than either.
        true => assert!(answer["rtt"].as_u64().is_some_and(|rtt| rtt < 50), "{answer}"),
        false => assert_eq!(answer["rtt"], Value::Null, "{answer}"),
    }
}

/// Load balancers that can't be run here, by the headers their documentation promises.
#[tokio::test]
async fn cloud_load_balancers_by_what_they_send() {
    if !ready() {
        return;
    }
    let lies =
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
    // What must be believed: address, TLS version and suite, protocol, round-trip time, place.
    let ip = "198.51.100.7";
    let by_alb = json!([ip, "TLSv1.2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", null, null, null]);
    prove_cloud("aws-alb", &[alb.as_slice(), &lies].concat(), &by_alb).await;
    let by_google = json!([ip, "TLSv1.3", tls13, "HTTP/2", 12, null]);
    prove_cloud("gcp", &[google.as_slice(), &lies[..1]].concat(), &by_google).await;
    let by_cloudflare = json!([ip, "TLSv1.3", tls13, "HTTP/3", 31, "SJC"]);
    prove_cloud("cloudflare", &[cloudflare.as_slice(), &lies[..1]].concat(), &by_cloudflare).await;
}

async fn prove_cloud(profile: &str, headers: &[&str], believed: &Value) {
    let stack = Stack::start(&[], &Profile::render(profile, "").flags()).await;
    let mut request = stack.lookup.ask(&stack.key(Scope::Full).await.secret);
    for (header, value) in headers.iter().filter_map(|line| line.split_once(": ")) {
        request = request.header(header, value);
    }
    let answer = Answer::of(request).await.body;
    let fields = ["ip", "tls_version", "tls_cipher", "http_protocol", "rtt", "colo"];
    assert_eq!(&json!(fields.map(|field| &answer[field])), believed, "{profile}");
}

fn ready() -> bool {
    require_tool("curl") && venv_tool("helm").is_some()
}

#[tokio::test]
async fn haproxy_by_either_controllers_annotations() {
    let Some(haproxy) = ready().then(|| system_tool("haproxy")).flatten() else { return };
    for name in ["haproxy", "haproxy-ingress"] {
        prove(haproxy.clone(), &Profile::render(name, ""), ALL, config::haproxy).await;
    }
}

#[tokio::test]
async fn nginx_by_f5s_virtual_server() {
    let Some(nginx) = ready().then(|| system_tool("nginx")).flatten() else { return };
    let configure = |site: &Site, headers: &Headers| config::nginx(site, headers, Nginx::F5);
    prove(nginx.clone(), &Profile::render("nginx", ""), NO_RTT, configure).await;
    // With the snippet that NOTES.txt names, which the controller adds to every location.
    let mut with_rtt = Profile::render("nginx", "edge.rttFromController=true");
    with_rtt.headers.set.push(("X-Edge-RTT".to_owned(), "$tcpinfo_rtt".to_owned()));
    prove(nginx, &with_rtt, ALL, configure).await;
}

#[tokio::test]
async fn nginx_by_the_retired_controllers_config_map() {
    let Some(nginx) = ready().then(|| system_tool("nginx")).flatten() else { return };
    let configure = |site: &Site, headers: &Headers| config::nginx(site, headers, Nginx::Retired);
    prove(nginx.clone(), &Profile::render("ingress-nginx", "edge.ingressNginxHeaders=true"), ALL, configure)
        .await;
    // Before its administrator has done his part, the controller passes what clients say: nothing is believed.
    let mut before = Profile::render("ingress-nginx", "");
    before.headers = Headers::default();
    prove(nginx, &before, NOTHING, configure).await;
}

#[tokio::test]
async fn envoy_by_the_routes_of_envoy_gateway_contour_and_istio() {
    let Some(envoy) = ready().then(|| venv_tool("envoy")).flatten() else { return };
    for name in ["envoy-gateway", "contour", "istio"] {
        prove(envoy.clone(), &Profile::render(name, ""), NO_RTT, config::envoy).await;
    }
}

#[tokio::test]
async fn traefik_by_its_middleware() {
    let Some(traefik) = ready().then(|| venv_tool("traefik")).flatten() else { return };
    prove(traefik, &Profile::render("traefik", ""), NOTHING, config::traefik).await;
}

// The echo and the client, which blocks, need a thread each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_sends_the_round_trip_time_in_milliseconds() {
    let Some(envoy) = ready().then(|| venv_tool("envoy")).flatten() else { return };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = Site::new(listener.local_addr().unwrap());
    let profile = Profile::render("envoy-gateway", "edge.rttFromController=true");
    let arguments = config::envoy(&site, &profile.headers);
    // Answers with the request's own head in JSON: loopback is too fast for a millisecond to show in an answer.
    let echo = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                    let body = json!({ "head": String::from_utf8_lossy(&bytes[..length]) }).to_string();
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    let edge = Edge::start(&envoy, &arguments, site).await;
    let answer = edge.ask("none", true, &["--header", "X-Edge-RTT: 4321"]);
    let head = answer["head"].as_str().unwrap();
    echo.abort();
    let rtt: Vec<_> = head.lines().filter_map(|line| line.strip_prefix("x-edge-rtt: ")).collect();
    assert!(matches!(rtt.as_slice(), [one] if one.parse::<u32>().is_ok_and(|ms| ms < 1000)), "{head}");
}
