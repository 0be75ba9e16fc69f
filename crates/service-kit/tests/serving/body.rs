//! Bodies that are too large, too slow or malformed.

use std::time::Duration;

use http::HeaderValue;
use poem::{
    Endpoint, EndpointExt, IntoResponse, Request, Route,
    endpoint::{make, make_sync},
    post,
};
use service_kit::{BodyLimit, catch_all, method_not_allowed};

use crate::harness::{TestServer, args, errors};

fn echo(limit: BodyLimit) -> impl Endpoint {
    let echo = make(|mut request: Request| async move {
        Ok::<_, poem::Error>(request.take_body().into_bytes().await?.into_response())
    });
    let other = make_sync(|_| Err::<(), _>(method_not_allowed(HeaderValue::from_static("POST"))));
    Route::new().at("/", post(echo).get(other)).with(limit).with(catch_all(errors()))
}

#[tokio::test]
async fn large_content_length_gets_413_before_the_body_is_sent() {
    let server = TestServer::start(&args(), echo(BodyLimit::default())).await;
    let mut client = server.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 209715200\r\n\r\n").await;
    let response = client.read_response().await;
    assert_eq!(response.status, 413);
    assert_eq!(response.json()["error"], "payload_too_large");
}

#[tokio::test]
async fn chunked_body_over_the_limit_gets_413() {
    let server = TestServer::start(&args(), echo(BodyLimit::new(10))).await;
    let mut client = server.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.send("8\r\n12345678\r\n8\r\n12345678\r\n").await;
    assert_eq!(client.read_response().await.status, 413);
}

#[tokio::test]
async fn body_within_the_limit_is_accepted() {
    let server = TestServer::start(&args(), echo(BodyLimit::new(10))).await;
    let mut client = server.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n1234567890").await;
    assert_eq!(client.read_response().await.body, "1234567890");
}

#[tokio::test]
async fn malformed_chunk_gets_400_with_our_message() {
    let server = TestServer::start(&args(), echo(BodyLimit::default())).await;
    let mut client = server.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n").await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.json()["error"].as_str()), (400, Some("bad_request")));
    let message = response.json()["message"].as_str().expect("message").to_owned();
    assert!(message.starts_with("The request body could not be read"), "{message}");
}

#[tokio::test]
async fn unfinished_body_gets_408() {
    let limit = BodyLimit { bytes: 10, timeout: Duration::from_millis(100) };
    let server = TestServer::start(&args(), echo(limit)).await;
    let mut client = server.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n1").await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.json()["error"].as_str()), (408, Some("request_timeout")));
}

#[tokio::test]
async fn unknown_path_and_method_get_error_body() {
    let server = TestServer::start(&args(), echo(BodyLimit::default())).await;
    let mut client = server.connect().await;
    let missing = client.get("/missing").await;
    assert_eq!((missing.status, missing.json()["error"].as_str()), (404, Some("not_found")));
    let wrong = client.get("/").await;
    assert_eq!((wrong.status, wrong.json()["error"].as_str()), (405, Some("method_not_allowed")));
    assert_eq!(wrong.header("allow"), Some("POST"));
}
