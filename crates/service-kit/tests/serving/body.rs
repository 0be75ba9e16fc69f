//! Bodies that are too large or too slow.

use std::time::Duration;

use poem::{Endpoint, EndpointExt, IntoResponse, Request, Route, endpoint::make, post};
use service_kit::{BodyLimit, catch_all};

use crate::rig::{DOCS, Rig, args};

fn echo(limit: BodyLimit) -> impl Endpoint {
    let echo = make(|mut request: Request| async move {
        Ok::<_, poem::Error>(request.take_body().into_bytes().await?.into_response())
    });
    Route::new().at("/", post(echo)).with(limit).with(catch_all(DOCS).allow("POST"))
}

#[tokio::test]
async fn an_announced_body_is_refused_before_it_is_sent() {
    let rig = Rig::start(&args(), echo(BodyLimit::default())).await;
    let mut client = rig.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 209715200\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 413);
    assert_eq!(answer.json()["error"], "payload_too_large");
}

#[tokio::test]
async fn a_body_of_unknown_length_is_refused_at_the_limit() {
    let rig = Rig::start(&args(), echo(BodyLimit::new(10))).await;
    let mut client = rig.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.send("8\r\n12345678\r\n8\r\n12345678\r\n").await;
    assert_eq!(client.answer().await.status, 413);
}

#[tokio::test]
async fn a_body_within_the_limit_arrives() {
    let rig = Rig::start(&args(), echo(BodyLimit::new(10))).await;
    let mut client = rig.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n1234567890").await;
    assert_eq!(client.answer().await.body, "1234567890");
}

#[tokio::test]
async fn a_body_that_is_broken_is_answered_400_in_our_words() {
    let rig = Rig::start(&args(), echo(BodyLimit::default())).await;
    let mut client = rig.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some("bad_request")));
    assert!(
        answer.json()["message"].as_str().is_some_and(|words| words.starts_with("The body could not be"))
    );
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_408() {
    let limit = BodyLimit::new(10).deadline(Duration::from_millis(100));
    let rig = Rig::start(&args(), echo(limit)).await;
    let mut client = rig.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n1").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.json()["error"].as_str()), (408, Some("request_timeout")));
}

#[tokio::test]
async fn other_paths_and_methods_are_answered_with_our_body() {
    let rig = Rig::start(&args(), echo(BodyLimit::default())).await;
    let mut client = rig.connect().await;
    let missing = client.get("/missing").await;
    assert_eq!((missing.status, missing.json()["error"].as_str()), (404, Some("not_found")));
    let wrong = client.get("/").await;
    assert_eq!((wrong.status, wrong.json()["error"].as_str()), (405, Some("method_not_allowed")));
    assert_eq!(wrong.header("allow"), Some("POST"));
}
