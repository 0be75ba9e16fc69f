//! Handlers that panic.

use http_server::ServeArgs;
use poem::{EndpointExt, Route, endpoint::make_sync, get};
use service_kit::catch_all;

use crate::harness::{TestServer, args, errors};

fn routes() -> Route {
    let panics = make_sync(|_| -> String { panic!("on purpose") });
    Route::new().at("/", get(make_sync(|_| "hello"))).at("/panic", get(panics))
}

#[tokio::test]
async fn catch_all_turns_panic_into_500() {
    let server = TestServer::start(&args(), routes().with(catch_all(errors()))).await;
    let mut client = server.connect().await;
    let response = client.get("/panic").await;
    assert_eq!((response.status, response.json()["error"].as_str()), (500, Some("internal_error")));
    assert!(!response.body.contains("purpose"));
    assert_eq!(client.get("/").await.body, "hello", "the same connection still works");
}

#[tokio::test]
async fn panic_outside_catch_all_closes_only_its_connection() {
    let server = TestServer::start(&ServeArgs { max_connections: 8, ..args() }, routes()).await;
    let mut other = server.connect().await;
    assert_eq!(other.get("/").await.body, "hello");
    for _ in 0..3 {
        let mut client = server.connect().await;
        client.send("GET /panic HTTP/1.1\r\nHost: test\r\n\r\n").await;
        client.wait_closed().await;
    }
    assert_eq!(other.get("/").await.body, "hello");
}
