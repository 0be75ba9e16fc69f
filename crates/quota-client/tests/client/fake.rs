//! A fake quota-svc: passes each request to the test and sends the response that the test returns.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use api_key::KeyDigest;
use quota_client::wire::{Charge, RateLimit, Verdict, decode_charges, encode_verdicts};
use quota_client::{BatchConfig, CallReport, ChargeError, ChargeObserver, Charger, QuotaClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

pub struct Fake {
    pub address: SocketAddr,
    exchanges: mpsc::UnboundedReceiver<Exchange>,
    closed: mpsc::UnboundedReceiver<()>,
}

/// A request that waits for a response from the test. Dropping it closes the connection.
pub struct Exchange {
    pub head: String,
    pub body: Vec<u8>,
    response: oneshot::Sender<FakeResponse>,
}

enum FakeResponse {
    Whole(Vec<u8>),
    ByteByByte(Vec<u8>),
    ThenClose(Vec<u8>),
}

impl Fake {
    pub async fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let (sender, exchanges) = mpsc::unbounded_channel();
        let (closed_sender, closed) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, closed) = (sender.clone(), closed_sender.clone());
                tokio::spawn(async move {
                    serve(stream, sender).await;
                    closed.send(()).ok();
                });
            }
        });
        Self { address, exchanges, closed }
    }

    pub async fn next(&mut self) -> Exchange {
        self.exchanges.recv().await.unwrap()
    }

    /// Waits until a connection is closed.
    pub async fn connection_closed(&mut self) {
        self.closed.recv().await.unwrap();
    }

    /// Whether another request has arrived; discards it.
    pub fn has_more(&mut self) -> bool {
        self.exchanges.try_recv().is_ok()
    }

    pub fn client(&self) -> QuotaClient {
        QuotaClient::new(&format!("http://{}", self.address), Duration::from_secs(10)).unwrap()
    }

    pub fn charger(&self, config: BatchConfig) -> Charger {
        Charger::new(self.client().charge_service(), config, Arc::new(()))
    }
}

async fn serve(mut stream: TcpStream, sender: mpsc::UnboundedSender<Exchange>) {
    while let Some((head, body)) = read_request(&mut stream).await {
        let (response, receiver) = oneshot::channel();
        sender.send(Exchange { head, body, response }).ok();
        let Ok(response) = receiver.await else { return };
        match response {
            FakeResponse::Whole(bytes) => stream.write_all(&bytes).await.unwrap_or(()),
            FakeResponse::ThenClose(bytes) => return stream.write_all(&bytes).await.unwrap_or(()),
            FakeResponse::ByteByByte(bytes) => {
                stream.set_nodelay(true).unwrap();
                for byte in bytes {
                    stream.write_all(&[byte]).await.unwrap_or(());
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut received = Vec::new();
    loop {
        if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(received[..end].to_vec()).unwrap();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let whole = end + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap());
            if received.len() >= whole {
                return Some((head, received[end + 4..whole].to_vec()));
            }
        }
        if stream.read_buf(&mut received).await.ok()? == 0 {
            return None;
        }
    }
}

impl Exchange {
    /// Method and path with its query.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap().strip_suffix(" HTTP/1.1").unwrap()
    }

    pub fn charges(&self) -> Vec<Charge> {
        assert_eq!(self.line(), "POST /internal/v1/charges");
        decode_charges(&self.body).unwrap()
    }

    /// The numbers of the charged keys. See [`charge`].
    pub fn numbers(&self) -> Vec<u32> {
        self.charges().iter().map(number_of).collect()
    }

    pub fn json(self, status: u16, body: &str) {
        let length = body.len();
        self.raw(format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
    }

    pub fn verdicts(self, verdicts: &[Verdict]) {
        self.raw(response_with(verdicts));
    }

    pub fn raw(self, response: impl Into<Vec<u8>>) {
        self.response.send(FakeResponse::Whole(response.into())).ok();
    }

    pub fn raw_then_close(self, response: impl Into<Vec<u8>>) {
        self.response.send(FakeResponse::ThenClose(response.into())).ok();
    }

    /// Allows each charge. The limit in the verdict is the number of the key.
    pub fn allow(self) {
        let verdicts = self.allowed();
        self.verdicts(&verdicts);
    }

    pub fn allow_byte_by_byte(self) {
        let response = self.allowing_response();
        self.response.send(FakeResponse::ByteByByte(response)).ok();
    }

    /// Closes the connection without announcing it.
    pub fn allow_then_close(self) {
        let response = self.allowing_response();
        self.raw_then_close(response);
    }

    /// Sends the response twice: the second one was not requested.
    pub fn allow_twice(self) {
        let response = self.allowing_response();
        self.raw(response.repeat(2));
    }

    fn allowed(&self) -> Vec<Verdict> {
        self.numbers().into_iter().map(verdict).collect()
    }

    fn allowing_response(&self) -> Vec<u8> {
        response_with(&self.allowed())
    }
}

/// The response of a charge call.
pub fn response_with(verdicts: &[Verdict]) -> Vec<u8> {
    let body = encode_verdicts(verdicts);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

pub fn verdict(number: u32) -> Verdict {
    Verdict::Allowed { scope: None, rate_limit: RateLimit { limit: number, remaining: 1, reset: 1 } }
}

/// A charge of a key whose digest ends with `number`.
pub fn charge(number: u32) -> Charge {
    let mut digest = [0; 32];
    digest[28..].copy_from_slice(&number.to_be_bytes());
    Charge::Key { digest: KeyDigest(digest), origin: None }
}

fn number_of(charge: &Charge) -> u32 {
    let Charge::Key { digest, .. } = charge else { panic!("the demo has no number") };
    u32::from_be_bytes(*digest.0.last_chunk().unwrap())
}

pub type ChargeFuture = Pin<Box<dyn Future<Output = Result<Verdict, ChargeError>> + Send>>;

/// Starts a charge. It is in the queue when this returns.
pub fn begin(charger: &Charger, number: u32) -> ChargeFuture {
    let charger = charger.clone();
    let mut future: ChargeFuture = Box::pin(async move { charger.charge(charge(number)).await });
    let poll = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(poll, Poll::Pending);
    future
}

/// Records calls and failed charges.
#[derive(Default)]
pub struct Log {
    pub calls: Mutex<Vec<CallReport>>,
    pub errors: Mutex<Vec<ChargeError>>,
}

impl ChargeObserver for Log {
    fn on_call(&self, call: &CallReport) {
        self.calls.lock().unwrap().push(*call);
    }

    fn on_charge_error(&self, error: ChargeError) {
        self.errors.lock().unwrap().push(error);
    }
}
