//! The admin port, and what it says about the others.

use std::net::SocketAddr;

use poem::EndpointExt;
use service_kit::{Kit, RequestTelemetry};
use tokio::net::TcpStream;

use crate::rig::{Answer, Client, Rig, args, hello};

async fn get(addr: SocketAddr, path: &str) -> Answer {
    Client(TcpStream::connect(addr).await.expect("the admin port is open")).get(path).await
}

async fn kit() -> (Kit, SocketAddr) {
    let kit = Kit::for_tests(&args());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let addr = kit.serve_admin(any).await.expect("a free port");
    (kit, addr)
}

#[tokio::test]
async fn readiness_follows_its_conditions_and_the_lifecycle() {
    let (kit, admin) = kit().await;
    assert_eq!(get(admin, "/readyz").await.status, 200);
    let geo = kit.readiness.condition("geo");
    let answer = get(admin, "/readyz").await;
    assert_eq!((answer.status, answer.json()["checks"]["geo"]["ready"].as_bool()), (503, Some(false)));
    geo.set_ready("loaded");
    let answer = get(admin, "/readyz").await;
    assert_eq!((answer.status, answer.json()["checks"]["geo"]["detail"].as_str()), (200, Some("loaded")));
    kit.lifecycle.begin_stop();
    let answer = get(admin, "/readyz").await;
    assert_eq!((answer.status, answer.json()["ready"].as_bool()), (503, Some(false)));
    assert_eq!(get(admin, "/livez").await.status, 200, "alive while it stops");
}

#[tokio::test]
async fn metrics_count_requests_with_bounded_labels() {
    let (kit, admin) = kit().await;
    let endpoint = hello().with(RequestTelemetry::new(&kit.telemetry, "lookup"));
    let rig = Rig::start(&args(), endpoint).await;
    let mut client = rig.connect().await;
    client.get("/?key=secret").await;
    client.get("/nowhere").await;
    let text = get(admin, "/metrics").await.body;
    let ok = r#"http_server_request_duration_seconds_count{operation="other",service="lookup",status_class="2xx"} 1"#;
    assert!(text.contains(ok), "{text}");
    assert!(text.contains(r#"status_class="4xx"} 1"#), "{text}");
    assert!(text.contains("http_server_request_duration_seconds_bucket"), "{text}");
    assert!(!text.contains("secret") && !text.contains("nowhere"), "{text}");
}

/// The workers' one thread is blocked, and the probe is answered all the same.
#[tokio::test]
async fn a_blocked_worker_does_not_starve_the_admin_port() {
    let (_kit, admin) = kit().await;
    let mut socket = std::net::TcpStream::connect(admin).expect("open");
    std::io::Write::write_all(&mut socket, b"GET /livez HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut socket, &mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
}
