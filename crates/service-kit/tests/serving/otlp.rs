//! Export to an OpenTelemetry collector.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

use crate::{
    harness::TIMEOUT,
    process::{Probe, next_line},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Starts a collector that accepts everything. Returns its URL and a channel with the path and body of each request.
async fn collector() -> (String, mpsc::UnboundedReceiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("local address"));
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(collect(socket, sender.clone()));
        }
    });
    (url, receiver)
}

async fn collect(mut socket: TcpStream, sender: mpsc::UnboundedSender<(String, Vec<u8>)>) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = socket.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("numeric length"))];
        socket.read_exact(&mut body).await.expect("body");
        let path = head.split(' ').nth(1).expect("path").to_owned();
        sender.send((path, body)).expect("receiver is open");
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("send");
    }
}

#[tokio::test]
async fn traces_and_metrics_are_exported_and_trace_is_propagated() {
    let (url, mut received) = collector().await;
    let name = "service.name=configured-name".to_owned();
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", url), ("OTEL_RESOURCE_ATTRIBUTES", name)];
    let mut probe = Probe::start(256, "--drain-delay 0 --trust-traces", &env).await;
    let mut client = probe.connect().await;
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    client.send(format!("GET /trace?key=secret HTTP/1.1\r\nHost: t\r\ntraceparent: {parent}\r\n\r\n")).await;
    let propagated = client.read_response().await.body;
    assert!(propagated.starts_with(&format!("00-{TRACE}-")) && propagated != parent, "{propagated}");
    probe.signal("TERM");
    next_line(&mut probe.log, "stopped").await;
    assert_eq!(probe.exit_code().await, Some(0));
    let (mut traces, mut metrics) = (Vec::new(), Vec::new());
    while traces.is_empty() || metrics.is_empty() {
        let (path, body) = timeout(TIMEOUT, received.recv()).await.expect("export in time").expect("export");
        match path.as_str() {
            "/v1/traces" => traces.extend(body),
            "/v1/metrics" => metrics.extend(body),
            other => panic!("unexpected path {other}"),
        }
    }
    let id: Vec<u8> =
        (0..16).map(|i| u8::from_str_radix(&TRACE[2 * i..2 * i + 2], 16).expect("hex")).collect();
    assert!(traces.windows(16).any(|window| window == id), "the span belongs to the caller's trace");
    let text = String::from_utf8_lossy(&traces).into_owned() + &String::from_utf8_lossy(&metrics);
    assert!(text.contains("http_server_request_duration") && text.contains("probe"), "{text}");
    assert!(text.contains("configured-name"), "{text}");
    assert!(!text.contains("secret") && !text.contains("127.0.0.1"), "{text}");
}

#[tokio::test]
async fn traceparent_of_untrusted_peer_starts_a_new_trace() {
    let (url, _received) = collector().await;
    // Without the header, nothing is sampled.
    let env =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", url), ("OTEL_TRACES_SAMPLER", "parentbased_always_off".to_owned())];
    for (flags, forced) in [("", false), ("--trust-traces", true)] {
        let probe = Probe::start(256, flags, &env).await;
        let mut client = probe.connect().await;
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        client.send(format!("GET /trace HTTP/1.1\r\nHost: t\r\ntraceparent: {parent}\r\n\r\n")).await;
        let propagated = client.read_response().await.body;
        assert_eq!(propagated.contains(TRACE), forced, "{propagated}");
        assert_eq!(propagated.ends_with("-01"), forced, "{propagated}");
    }
}

#[tokio::test]
async fn traceparent_from_a_balancer_without_a_client_starts_a_new_trace() {
    let (url, _received) = collector().await;
    let env =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", url), ("OTEL_TRACES_SAMPLER", "parentbased_always_off".to_owned())];
    let probe = Probe::start(256, "--trust-traces --proxy-protocol", &env).await;
    for (header, continued) in [("TCP4 192.0.2.1 127.0.0.1 1000 443", true), ("UNKNOWN", false)] {
        let mut client = probe.connect().await;
        let parent = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01");
        client.send(format!("PROXY {header}\r\nGET /trace HTTP/1.1\r\nHost: t\r\n{parent}\r\n\r\n")).await;
        let propagated = client.read_response().await.body;
        assert_eq!(propagated.contains(TRACE), continued, "{header}: {propagated}");
    }
}

#[tokio::test]
async fn unreachable_collector_delays_neither_requests_nor_exit() {
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9".to_owned())];
    let mut probe = Probe::start(256, "--drain-delay 0", &env).await;
    assert_eq!(probe.connect().await.get("/").await.body, "hello");
    probe.signal("TERM");
    assert_eq!(probe.exit_code().await, Some(0));
}

#[tokio::test]
async fn request_without_collector_has_no_span() {
    let probe = Probe::start(256, "", &[]).await;
    assert_eq!(probe.connect().await.get("/trace").await.body, "none");
}
