//! Stopping without losing a request.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use poem::{Endpoint, endpoint::make};
use service_kit::ServeArgs;
use tokio::{net::TcpStream, sync::Semaphore, time::timeout};

use crate::rig::{PATIENCE, Rig, args, hello};

/// Requests wait at the gate until it is opened, for good.
pub struct Gate {
    entered: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    /// Waits until a request stands before the gate.
    pub async fn entered(&self) {
        let entered = timeout(PATIENCE, self.entered.acquire()).await;
        entered.expect("a request comes").expect("never closed").forget();
    }

    pub fn open(&self) {
        self.open.close();
    }
}

pub fn gated() -> (impl Endpoint, Gate) {
    let gate = Gate { entered: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) };
    let (entered, open) = (gate.entered.clone(), gate.open.clone());
    let endpoint = make(move |_| {
        let (entered, open) = (entered.clone(), open.clone());
        async move {
            entered.add_permits(1);
            let _ = open.acquire().await;
            Ok::<_, poem::Error>("done")
        }
    });
    (endpoint, gate)
}

#[tokio::test]
async fn what_is_under_way_is_finished_and_keep_alives_are_closed() {
    let (endpoint, gate) = gated();
    let rig = Rig::start(&args(), endpoint).await;
    let (mut idle, mut busy) = (rig.connect().await, rig.connect().await);
    busy.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    gate.entered().await;
    rig.lifecycle.begin_stop();
    idle.closed().await;
    gate.open();
    let answer = busy.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    busy.closed().await;
    let addr = rig.addr;
    rig.ended().await;
    assert!(TcpStream::connect(addr).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_request_sent_just_before_the_stop_is_answered() {
    let rig = Rig::start(&args(), hello()).await;
    let mut client = rig.connect().await;
    assert_eq!(client.get("/").await.status, 200);
    rig.lifecycle.begin_stop();
    let answer = client.get("/").await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    rig.ended().await;
}

#[tokio::test]
async fn half_a_request_does_not_hold_up_the_end() {
    let args = ServeArgs { grace: Duration::from_secs(60), ..args() };
    let rig = Rig::start(&args, hello()).await;
    let mut client = rig.connect().await;
    assert_eq!(client.get("/").await.status, 200);
    client.send("GET / HTTP/1.1\r\nX: ").await;
    rig.lifecycle.begin_stop();
    let took = client.closed().await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    rig.ended().await;
}

#[tokio::test]
async fn while_draining_it_still_accepts_and_sends_clients_away_gently() {
    let args = ServeArgs { drain_delay: Duration::from_secs(60), ..args() };
    let rig = Rig::start(&args, hello()).await;
    rig.lifecycle.begin_stop();
    let mut client = rig.connect().await;
    let answer = client.get("/").await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    client.closed().await;
    assert!(!rig.served.is_finished());
}

#[tokio::test]
async fn when_the_grace_is_over_nothing_is_waited_for() {
    let args = ServeArgs { grace: Duration::from_millis(400), ..args() };
    let (endpoint, gate) = gated();
    let rig = Rig::start(&args, endpoint).await;
    let mut stuck = rig.connect().await;
    stuck.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    gate.entered().await;
    let began = Instant::now();
    rig.lifecycle.begin_stop();
    rig.ended().await;
    let took = began.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_secs(3)).contains(&took), "{took:?}");
    stuck.closed().await;
}
