//! The port that redirects plain HTTP to https.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use http_server::{ListenerArgs, RedirectTarget};
use poem::EndpointExt;
use service_kit::{Kit, PortArgs, PortService, PublicPort, responder};
use tokio::task::JoinSet;

use crate::harness::{RawResponse, TestServer, args, hello};

fn target(url: &str, docs_url: &str) -> RedirectTarget {
    let headers: HeaderMap = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
        (header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=1")),
    ]
    .into_iter()
    .collect();
    RedirectTarget::new("--base-url", url, responder(docs_url, &headers)).expect("an https URL")
}

/// Redirects to `https://ip.example`, and for another host to `https://keys.example:8443`.
async fn start() -> (TestServer, Kit) {
    start_with(ListenerArgs::default()).await
}

async fn start_with(listener: ListenerArgs) -> (TestServer, Kit) {
    let kit = Kit::detached(&args());
    let default = target("https://ip.example", "https://ip.example/docs");
    let service = PortService {
        endpoint: hello().map_to_response().boxed(),
        errors: default.errors.clone(),
        trusted: Arc::new(|peer| peer.is_loopback()),
        redirects: vec![default, target("https://keys.example:8443", "https://keys.example/docs")],
        tasks: JoinSet::new(),
    };
    let any = ([127, 0, 0, 1], 0).into();
    let (tls, certificates) = (None, None);
    let args = PortArgs {
        name: "test",
        flag: "--listen",
        listen: any,
        redirect_listen: Some(any),
        tls,
        certificates,
        listener: &listener,
    };
    let port = PublicPort::bind(&kit, args).await.expect("bind");
    let addr = port.redirect_addr().expect("a redirect port");
    let lifecycle = kit.lifecycle.clone();
    let task = tokio::spawn(port.serve("test", service));
    (TestServer { addr, lifecycle, task }, kit)
}

async fn send(server: &TestServer, request: impl AsRef<[u8]>) -> RawResponse {
    let mut client = server.connect().await;
    client.send(request).await;
    client.read_response().await
}

#[tokio::test]
async fn redirect_has_location_cors_header_and_error_body() {
    let (server, kit) = start().await;
    let mut client = server.connect().await;
    let response = client.get("/api/v1/ip?scope=geo").await;
    assert_eq!(response.status, 308);
    assert_eq!(response.header("location"), Some("https://ip.example/api/v1/ip?scope=geo"));
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("strict-transport-security"), None, "only https responses may have it");
    assert_eq!(response.json()["error"], "https_required");
    assert_eq!(response.json()["docs"], "https://ip.example/docs#https_required");
    assert!(response.body.contains("consider it compromised"), "{}", response.body);
    assert_eq!(response.header("connection"), Some("close"));
    client.wait_closed().await;
    let metrics = kit.telemetry.prometheus_text();
    assert!(metrics.contains("operation=\"redirect\""), "{metrics}");
}

#[tokio::test]
async fn host_selects_a_configured_url_and_is_never_part_of_the_target() {
    let (server, _) = start().await;
    for (host, want) in [
        ("ip.example", "https://ip.example/x"),
        ("keys.example", "https://keys.example:8443/x"),
        ("KEYS.example.:80", "https://keys.example:8443/x"),
        ("evil.example", "https://ip.example/x"),
        ("keys.example.evil.example", "https://ip.example/x"),
        ("", "https://ip.example/x"),
    ] {
        let response = send(&server, format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!((response.status, response.header("location")), (308, Some(want)), "{host}");
        assert!(!response.head.contains("evil") && !response.body.contains("evil"), "{response:?}");
    }
    for (request, want) in [
        ("GET http://evil.example/x HTTP/1.1\r\nHost: evil.example", "https://ip.example/x"),
        ("GET http://keys.example/x HTTP/1.1\r\nHost: keys.example", "https://keys.example:8443/x"),
        ("GET //evil.example HTTP/1.1\r\nHost: ip.example", "https://ip.example//evil.example"),
        ("OPTIONS * HTTP/1.1\r\nHost: ip.example", "https://ip.example/"),
        ("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443", "https://ip.example/"),
        ("GET /x HTTP/1.0", "https://ip.example/x"),
        ("GET /x HTTP/1.1\r\nHost: ip.example\r\nX-Forwarded-Host: evil.example", "https://ip.example/x"),
    ] {
        let response = send(&server, format!("{request}\r\n\r\n")).await;
        assert_eq!((response.status, response.header("location")), (308, Some(want)), "{request}");
    }
}

#[tokio::test]
async fn every_method_is_redirected_and_errors_have_the_cors_header() {
    let (server, _) = start().await;
    for method in ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"] {
        let mut client = server.connect().await;
        client.send(format!("{method} / HTTP/1.1\r\nHost: ip.example\r\nContent-Length: 0\r\n\r\n")).await;
        let head = client.read_head().await;
        assert!(head.starts_with("HTTP/1.1 308 "), "{head}");
    }
    let post = "POST /login HTTP/1.1\r\nHost: ip.example\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(send(&server, post).await.header("location"), Some("https://ip.example/login"));
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("\x16\x03\x01\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", 413),
    ] {
        let response = send(&server, request).await;
        let cors = response.header("access-control-allow-origin");
        assert_eq!((response.status, cors), (status, Some("*")), "{request:?}");
        assert!(
            response.json()["docs"].as_str().is_some_and(|docs| docs.starts_with("https://ip.example/docs#"))
        );
    }
}

/// A load balancer sends the header on all of its ports.
#[tokio::test]
async fn proxy_protocol_header_is_read_before_the_request() {
    let (server, _) = start_with(ListenerArgs { proxy_protocol: true }).await;
    let request = "GET /x HTTP/1.1\r\nHost: keys.example\r\n\r\n";
    let header = "PROXY TCP4 192.0.2.1 192.0.2.2 50000 80\r\n";
    let response = send(&server, format!("{header}{request}")).await;
    assert_eq!((response.status, response.header("location")), (308, Some("https://keys.example:8443/x")));
    let mut client = server.connect().await;
    client.send(request).await;
    client.wait_closed().await;
}

#[tokio::test]
async fn shutdown_closes_the_port() {
    let (server, _) = start().await;
    let mut idle = server.connect().await;
    server.lifecycle.begin_shutdown();
    idle.wait_closed().await;
    server.wait_stopped().await;
}
