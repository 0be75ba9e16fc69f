//! More connections than there is room for.

use std::time::Duration;

use service_kit::ServeArgs;

use crate::rig::{Rig, args, hello};

#[tokio::test]
async fn whoever_holds_all_places_open_locks_nobody_out() {
    let args = ServeArgs { max_connections: 8, ..args() };
    let rig = Rig::start(&args, hello()).await;
    let mut crowd = Vec::new();
    for _ in 0..40 {
        let mut client = rig.connect().await;
        client.send("GET / HTTP/1.1\r\nX: ").await;
        crowd.push(client);
    }
    let mut live = rig.connect().await;
    assert_eq!(live.get("/").await.body, "hello");
    // The oldest were asked to go, long before their ten seconds were over.
    assert!(crowd[0].closed().await < Duration::from_secs(5));
}

#[tokio::test]
async fn a_connection_with_a_request_under_way_is_never_asked_to_go() {
    let args = ServeArgs { max_connections: 1, ..args() };
    let (endpoint, gate) = crate::stop::gated();
    let rig = Rig::start(&args, endpoint).await;
    let mut busy = rig.connect().await;
    busy.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    gate.entered().await;
    let mut waiting = rig.connect().await;
    waiting.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    gate.open();
    assert_eq!(busy.answer().await.status, 200);
    assert_eq!(waiting.answer().await.status, 200, "served after the first went idle");
}
