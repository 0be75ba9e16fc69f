//! The header `X-Request-Id` of responses, and the ID in log lines.

use std::collections::HashSet;

use http_server::RequestOrigin;
use poem::{Request, Response, endpoint::make_sync};

use crate::{
    harness::{RawResponse, TRUSTED_PEER, TestServer, args, hello},
    process::{Probe, next_line},
};

fn id(response: &RawResponse) -> &str {
    response.header("x-request-id").unwrap_or_else(|| panic!("no ID: {response:?}"))
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n{headers}\r\n")
}

#[tokio::test]
async fn each_response_has_a_new_id_even_if_the_server_rejects_the_request() {
    let server = TestServer::start(&args(), hello()).await;
    let mut ids = HashSet::new();
    for request in [
        get("/", ""),
        get("/", ""),
        get("/nowhere", ""),
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n".to_owned(),
        get("/", "Host: other\r\n"),
        get("/", &format!("X-Long: {}\r\n", "x".repeat(17 * 1024))),
        // The HTTP library rejects these.
        get("/", &format!("X-Long: {}\r\n", "x".repeat(200 * 1024))),
        "nonsense\r\n\r\n".to_owned(),
    ] {
        let mut client = server.connect().await;
        client.send(&request).await;
        let response = client.read_response().await;
        assert_eq!(id(&response).len(), 16, "{response:?}");
        assert!(ids.insert(id(&response).to_owned()), "{response:?}");
    }
}

#[tokio::test]
async fn panic_response_has_the_id_that_its_log_line_has() {
    let mut probe = Probe::start(256, "", &[]).await;
    let response = probe.connect().await.get("/panic").await;
    assert_eq!(response.status, 500);
    let line = next_line(&mut probe.log, "panic").await;
    assert_eq!(line["request_id"], id(&response), "{line}");
    probe.signal("TERM");
    assert!(next_line(&mut probe.log, "stopped").await["request_id"].is_null(), "of no request");
}

#[tokio::test]
async fn only_valid_ids_of_trusted_peers_are_used() {
    let server = TestServer::start(&args(), hello()).await;
    let longest = "x".repeat(64);
    for valid in ["a", "0af7651916cd43dd-8448.eb_2", &longest] {
        let header = format!("X-Request-Id: {valid}\r\n");
        let mut trusted = server.connect_from(TRUSTED_PEER).await;
        trusted.send(get("/", &header)).await;
        assert_eq!(id(&trusted.read_response().await), valid);
        trusted.send(get("/nowhere", &header)).await;
        assert_eq!(id(&trusted.read_response().await), valid);
        let mut untrusted = server.connect().await;
        untrusted.send(get("/", &header)).await;
        assert_ne!(id(&untrusted.read_response().await), valid);
    }
    let too_long = format!("X-Request-Id: {longest}x\r\n");
    for headers in [
        "X-Request-Id:\r\n",
        "X-Request-Id: a b\r\n",
        "X-Request-Id: a\"\r\n",
        "X-Request-Id: caf\u{e9}\r\n",
        "X-Request-Id: a\r\nX-Request-Id: a\r\n",
        &too_long,
    ] {
        let mut trusted = server.connect_from(TRUSTED_PEER).await;
        trusted.send(get("/", headers)).await;
        let response = trusted.read_response().await;
        assert_eq!((response.status, id(&response).len()), (200, 16), "{headers:?}");
        assert_eq!(response.head.matches("x-request-id").count(), 1, "{headers:?}");
    }
}

#[tokio::test]
async fn endpoint_sees_the_id_of_the_response() {
    let show = make_sync(|request: Request| {
        let id = &RequestOrigin::of(&request).expect("served").id;
        Response::builder().header("x-request-id", "of the endpoint").body(id.to_string())
    });
    let server = TestServer::start(&args(), show).await;
    let response = server.connect().await.get("/").await;
    assert_eq!(response.body, id(&response));
}
