//! Clients that take their time.

use std::{sync::Arc, time::Duration};

use poem::{Endpoint, endpoint::make};
use service_kit::ServeArgs;
use tokio::{io::AsyncWriteExt, sync::Notify, time::timeout};

use crate::rig::{Rig, args, hello};

const SHORT: Duration = Duration::from_millis(300);

fn impatient() -> ServeArgs {
    ServeArgs { header_timeout: SHORT, ..args() }
}

#[tokio::test]
async fn a_connection_that_never_sends_a_byte_is_closed() {
    let rig = Rig::start(&impatient(), hello()).await;
    let took = rig.connect().await.closed().await;
    assert!((SHORT / 2..SHORT * 6).contains(&took), "{took:?}");
}

#[tokio::test]
async fn headers_that_are_never_finished_are_closed() {
    let rig = Rig::start(&impatient(), hello()).await;
    let mut client = rig.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: te").await;
    let took = client.closed().await;
    assert!((SHORT / 2..SHORT * 6).contains(&took), "{took:?}");
}

#[tokio::test]
async fn dripping_headers_gains_no_time_on_a_used_connection_either() {
    let rig = Rig::start(&impatient(), hello()).await;
    let mut client = rig.connect().await;
    assert_eq!(client.get("/").await.status, 200);
    let (mut read, mut write) = client.0.into_split();
    let drip = async {
        let mut tick = tokio::time::interval(SHORT / 6);
        while write.write_all(b"G").await.is_ok() {
            tick.tick().await;
        }
    };
    let closed = async { tokio::io::copy(&mut read, &mut tokio::io::sink()).await };
    let end = timeout(SHORT * 6, async {
        tokio::select! { _ = drip => {}, _ = closed => {} }
    })
    .await;
    assert!(end.is_ok(), "the connection is still open");
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_idle_limit_not_the_header_limit() {
    let args = ServeArgs { idle_timeout: SHORT, ..args() };
    let rig = Rig::start(&args, hello()).await;
    let mut client = rig.connect().await;
    assert_eq!(client.get("/").await.body, "hello");
    let took = client.closed().await;
    assert!((SHORT / 2..SHORT * 6).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_request_may_take_longer_than_every_limit() {
    let release = Arc::new(Notify::new());
    let limits = ServeArgs { idle_timeout: SHORT / 6, header_timeout: SHORT / 6, ..args() };
    let rig = Rig::start(&limits, waits_for(release.clone())).await;
    let mut client = rig.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    assert!(timeout(SHORT, client.0.readable()).await.is_err(), "neither answered nor closed");
    release.notify_one();
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn a_client_that_closed_its_side_after_asking_is_answered() {
    let release = Arc::new(Notify::new());
    let rig = Rig::start(&args(), waits_for(release.clone())).await;
    let mut client = rig.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    client.0.shutdown().await.expect("our side can be closed");
    release.notify_one();
    assert_eq!(client.answer().await.body, "done");
    client.closed().await;
}

fn waits_for(release: Arc<Notify>) -> impl Endpoint {
    make(move |_| {
        let release = release.clone();
        async move {
            release.notified().await;
            Ok::<_, poem::Error>("done")
        }
    })
}
