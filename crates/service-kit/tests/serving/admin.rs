//! The endpoints of the admin port.

use std::net::SocketAddr;

use poem::EndpointExt;
use service_kit::{Kit, RequestTelemetry};
use tokio::net::TcpStream;

use crate::harness::{Client, RawResponse, TestServer, args, hello};

async fn get(addr: SocketAddr, path: &str) -> RawResponse {
    Client(TcpStream::connect(addr).await.expect("connect to the admin port")).get(path).await
}

async fn kit() -> (Kit, SocketAddr) {
    let kit = Kit::detached(&args());
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let addr = kit.serve_admin(any_port).await.expect("bind");
    (kit, addr)
}

#[tokio::test]
async fn readyz_reflects_conditions_and_shutdown() {
    let (kit, admin) = kit().await;
    assert_eq!(get(admin, "/readyz").await.status, 200);
    let geo = kit.readiness.condition("geo");
    let response = get(admin, "/readyz").await;
    assert_eq!((response.status, response.json()["checks"]["geo"]["ready"].as_bool()), (503, Some(false)));
    geo.set_ready("loaded");
    let response = get(admin, "/readyz").await;
    assert_eq!((response.status, response.json()["checks"]["geo"]["detail"].as_str()), (200, Some("loaded")));
    kit.lifecycle.begin_shutdown();
    let response = get(admin, "/readyz").await;
    assert_eq!((response.status, response.json()["ready"].as_bool()), (503, Some(false)));
    assert_eq!(get(admin, "/livez").await.status, 200, "still alive during shutdown");
}

#[tokio::test]
async fn metrics_count_requests_with_bounded_labels() {
    let (kit, admin) = kit().await;
    let endpoint = hello().with(RequestTelemetry::new(&kit.telemetry, "lookup"));
    let server = TestServer::start(&args(), endpoint).await;
    let mut client = server.connect().await;
    client.get("/?key=secret").await;
    client.get("/nowhere").await;
    let text = get(admin, "/metrics").await.body;
    let ok = r#"http_server_request_duration_seconds_count{operation="other",service="lookup",status_class="2xx"} 1"#;
    assert!(text.contains(ok), "{text}");
    assert!(text.contains(r#"status_class="4xx"} 1"#), "{text}");
    assert!(text.contains("http_server_request_duration_seconds_bucket"), "{text}");
    assert!(!text.contains("secret") && !text.contains("nowhere"), "{text}");
}

/// The blocking socket calls below block the test's only runtime thread.
#[tokio::test]
async fn blocked_worker_does_not_block_the_admin_port() {
    let (_kit, admin) = kit().await;
    let mut socket = std::net::TcpStream::connect(admin).expect("connect");
    std::io::Write::write_all(&mut socket, b"GET /livez HTTP/1.0\r\n\r\n").expect("send");
    let mut response = String::new();
    std::io::Read::read_to_string(&mut socket, &mut response).expect("response");
    assert!(response.starts_with("HTTP/1.0 200"), "{response}");
}

#[tokio::test]
async fn metrics_show_build_and_process() {
    let (_kit, admin) = kit().await;
    let find = |text: &str, name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().expect("a number")
    };
    let text = get(admin, "/metrics").await.body;
    let value = |name: &str| find(&text, name);
    let version = env!("CARGO_PKG_VERSION");
    let commit = service_kit::build_info::COMMIT;
    let build = format!(r#"ip_lookup_build_info{{commit="{commit}",service="test",version="{version}"}}"#);
    assert_eq!(value(&build), 1.0);
    assert!(value("process_cpu_seconds_total") >= 0.0);
    assert!(value("process_resident_memory_bytes") > 500_000.0);
    assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
    assert!(value("process_threads") >= 2.0, "the test's own and the admin port's");
    assert!((3.0..value("process_max_fds")).contains(&value("process_open_fds")), "{text}");
    assert!(value("process_start_time_seconds") > 1_700_000_000.0);
}
