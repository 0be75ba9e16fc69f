//! Handlers that panic.

use poem::{Endpoint, EndpointExt, Route, endpoint::make_sync, get};
use service_kit::catch_all;

use crate::harness::{TestServer, args, errors};

fn routes() -> Route {
    let panics = make_sync(|_| -> String { panic!("on purpose") });
    Route::new().at("/", get(make_sync(|_| "hello"))).at("/panic", get(panics))
}

async fn check_panic_gets_500(endpoint: impl Endpoint + 'static) {
    let server = TestServer::start(&args(), endpoint).await;
    let mut client = server.connect().await;
    let response = client.get("/panic").await;
    assert_eq!((response.status, response.json()["error"].as_str()), (500, Some("internal_error")));
    assert!(!response.body.contains("purpose"));
    assert_eq!(client.get("/").await.body, "hello", "the same connection still works");
}

#[tokio::test]
async fn server_turns_panic_into_500() {
    check_panic_gets_500(routes()).await;
}

#[tokio::test]
async fn catch_all_turns_panic_into_500() {
    check_panic_gets_500(routes().with(catch_all(errors()))).await;
}
