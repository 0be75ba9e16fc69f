//! Handlers that panic.

use poem::{Endpoint, EndpointExt, Route, endpoint::make_sync, get};
use service_kit::{CatchPanic, catch_all};

use crate::rig::{DOCS, Rig, args};

fn panics() -> Route {
    let fails = make_sync(|_| -> String { panic!("on purpose") });
    Route::new().at("/", get(make_sync(|_| "hello"))).at("/panic", get(fails))
}

async fn one_request_fails_and_the_next_does_not(endpoint: impl Endpoint + 'static) {
    let rig = Rig::start(&args(), endpoint).await;
    let mut client = rig.connect().await;
    let answer = client.get("/panic").await;
    assert_eq!((answer.status, answer.json()["error"].as_str()), (500, Some("internal_error")));
    assert!(!answer.body.contains("purpose"));
    assert_eq!(client.get("/").await.body, "hello", "on the same connection");
}

#[tokio::test]
async fn the_server_turns_a_panic_into_a_500() {
    one_request_fails_and_the_next_does_not(panics().with(catch_all(DOCS))).await;
}

#[tokio::test]
async fn the_middleware_does_so_inside_other_middleware() {
    let endpoint = panics().with(CatchPanic::new(DOCS)).with(catch_all(DOCS));
    one_request_fails_and_the_next_does_not(endpoint).await;
}
