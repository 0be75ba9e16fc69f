//! Export to a collector, where one is named.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

use crate::{
    process::{Probe, next},
    rig::PATIENCE,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A collector that takes everything: each request's path and body.
async fn collector() -> (String, mpsc::UnboundedReceiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
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
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
        socket.read_exact(&mut body).await.expect("the body");
        let path = head.split(' ').nth(1).expect("a path").to_owned();
        sender.send((path, body)).expect("the test listens");
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("sent");
    }
}

#[tokio::test]
async fn traces_and_metrics_reach_the_collector_and_the_trace_goes_on() {
    let (url, mut received) = collector().await;
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", url)];
    let mut probe = Probe::start(256, "--drain-delay 0", &env).await;
    let mut client = probe.connect().await;
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    client.send(format!("GET /trace?key=secret HTTP/1.1\r\nHost: t\r\ntraceparent: {parent}\r\n\r\n")).await;
    let passed_on = client.answer().await.body;
    assert!(passed_on.starts_with(&format!("00-{TRACE}-")) && passed_on != parent, "{passed_on}");
    probe.signal("TERM");
    next(&mut probe.log, "stopped").await;
    assert_eq!(probe.exit_code().await, Some(0));
    let (mut traces, mut metrics) = (Vec::new(), Vec::new());
    while traces.is_empty() || metrics.is_empty() {
        let (path, body) = timeout(PATIENCE, received.recv()).await.expect("in time").expect("one");
        match path.as_str() {
            "/v1/traces" => traces.extend(body),
            "/v1/metrics" => metrics.extend(body),
            other => panic!("{other}"),
        }
    }
    let id: Vec<u8> =
        (0..16).map(|i| u8::from_str_radix(&TRACE[2 * i..2 * i + 2], 16).expect("hex")).collect();
    assert!(traces.windows(16).any(|window| window == id), "the span is in the caller's trace");
    let text = String::from_utf8_lossy(&traces).into_owned() + &String::from_utf8_lossy(&metrics);
    assert!(text.contains("http_server_request_duration") && text.contains("probe"), "{text}");
    assert!(!text.contains("secret") && !text.contains("127.0.0.1"), "{text}");
}

#[tokio::test]
async fn a_dead_collector_holds_up_neither_requests_nor_the_end() {
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9".to_owned())];
    let mut probe = Probe::start(256, "--drain-delay 0", &env).await;
    assert_eq!(probe.connect().await.get("/").await.body, "hello");
    probe.signal("TERM");
    assert_eq!(probe.exit_code().await, Some(0));
}

#[tokio::test]
async fn without_a_collector_there_is_no_span() {
    let probe = Probe::start(256, "", &[]).await;
    assert_eq!(probe.connect().await.get("/trace").await.body, "none");
}
