//! Tests deadlines, broken connections and invalid responses. Each charge must end in time, get no other charge's
//! verdict and never be sent twice.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quota_client::wire::{Verdict, encode_charges};
use quota_client::{BatchConfig, CallOutcome, CallReport, ChargeError, ChargeObserver, Charger, QuotaClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::fake::{Fake, Log, begin, charge, response_with, verdict};

/// Only a bug reaches this deadline.
const LONG: Duration = Duration::from_secs(10);

fn long_deadline() -> BatchConfig {
    BatchConfig { in_flight: 1, deadline: LONG, ..BatchConfig::default() }
}

fn outcomes(log: &Log) -> Vec<CallOutcome> {
    log.calls.lock().unwrap().iter().map(|call| call.outcome).collect()
}

#[tokio::test]
async fn charge_times_out_and_late_response_is_ignored() {
    let mut fake = Fake::start().await;
    let deadline = Duration::from_millis(150);
    let charger = fake.charger(BatchConfig { deadline, ..long_deadline() });
    let started = Instant::now();
    assert_eq!(charger.charge(charge(1)).await, Err(ChargeError::TimedOut));
    let waited = started.elapsed();
    assert!(waited >= deadline && waited < LONG / 2, "{waited:?}");
    let late = fake.next().await;

    let next = tokio::spawn(begin(&charger, 2));
    let exchange = fake.next().await;
    late.allow();
    exchange.allow();
    assert_eq!(next.await.unwrap(), Ok(verdict(2)));
}

#[tokio::test]
async fn deadline_includes_time_in_queue() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(BatchConfig { deadline: Duration::from_millis(100), ..long_deadline() });
    let first = begin(&charger, 1);
    let _no_response = fake.next().await;
    assert_eq!(charger.charge(charge(2)).await, Err(ChargeError::TimedOut));
    assert_eq!(first.await, Err(ChargeError::TimedOut));
}

#[tokio::test]
async fn unreachable_server_is_retried_once_then_unreachable() {
    let closed = tokio::net::TcpListener::bind("127.0.0.3:0").await.unwrap().local_addr().unwrap();
    let log = Arc::new(Log::default());
    let client = QuotaClient::new(&format!("http://{closed}"), LONG).unwrap();
    let charger = Charger::new(client.charge_service(), long_deadline(), log.clone());
    let started = Instant::now();
    assert_eq!(charger.charge(charge(1)).await, Err(ChargeError::Unreachable));
    assert!(started.elapsed() < LONG / 5);
    assert_eq!(outcomes(&log), [CallOutcome::Unreachable, CallOutcome::Unreachable]);
    assert_eq!(*log.errors.lock().unwrap(), [ChargeError::Unreachable]);
}

/// Opens the server's port when the first attempt has failed.
struct StartServer(SocketAddr, mpsc::UnboundedSender<std::net::TcpListener>);

impl ChargeObserver for StartServer {
    fn on_call(&self, call: &CallReport) {
        if call.outcome == CallOutcome::Unreachable {
            self.1.send(std::net::TcpListener::bind(self.0).unwrap()).unwrap();
        }
    }
}

#[tokio::test]
async fn unsent_charge_is_retried_when_server_is_back() {
    // No other test uses this address, so none can take the port in the meantime.
    let address = std::net::TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let (sender, mut listeners) = mpsc::unbounded_channel();
    let client = QuotaClient::new(&format!("http://{address}"), LONG).unwrap();
    let charger =
        Charger::new(client.charge_service(), long_deadline(), Arc::new(StartServer(address, sender)));
    let charge = tokio::spawn(begin(&charger, 1));
    let listener = listeners.recv().await.unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut fake = Fake::on(tokio::net::TcpListener::from_std(listener).unwrap());
    let exchange = fake.next().await;
    assert_eq!(exchange.numbers(), [1]);
    exchange.allow();
    assert_eq!(charge.await.unwrap(), Ok(verdict(1)));
    assert!(!fake.has_more());
}

#[tokio::test]
async fn charge_is_not_resent_after_connection_breaks() {
    let mut fake = Fake::start().await;
    let log = Arc::new(Log::default());
    let charger = Charger::new(fake.client().charge_service(), long_deadline(), log.clone());
    let truncated = "HTTP/1.1 200 OK\r\ncontent-length: 42\r\n\r\n\0\0";
    // From the second iteration on, the broken connection is a reused one, on which HTTP clients tend to retry.
    for (number, response) in [(0, ""), (1, ""), (2, truncated), (3, "HTTP/1.1 200 OK\r\n")] {
        let charge = tokio::spawn(begin(&charger, number));
        let exchange = fake.next().await;
        assert_eq!(exchange.numbers(), [number]);
        exchange.raw_then_close(response);
        assert_eq!(charge.await.unwrap(), Err(ChargeError::Unreachable));
        assert!(!fake.has_more());

        let charge = tokio::spawn(begin(&charger, 100 + number));
        fake.next().await.allow();
        assert_eq!(charge.await.unwrap(), Ok(verdict(100 + number)), "recovers immediately");
    }
    let calls = outcomes(&log);
    assert_eq!(calls.len(), 8);
    assert!(calls.chunks(2).all(|pair| pair == [CallOutcome::Broken, CallOutcome::Answered]));
}

#[tokio::test]
async fn charge_after_idle_connection_was_closed_is_sent_on_a_new_one() {
    let mut fake = Fake::start().await;
    let log = Arc::new(Log::default());
    let charger = Charger::new(fake.client().charge_service(), long_deadline(), log.clone());
    for number in 0..3 {
        let charge = tokio::spawn(begin(&charger, number));
        fake.next().await.allow_then_close();
        assert_eq!(charge.await.unwrap(), Ok(verdict(number)));
        fake.connection_closed().await;
        // After this round trip, the runtime has also seen the end of the closed connection.
        let client = fake.client();
        let status = tokio::spawn(async move { client.status().await });
        fake.next().await.json(200, r#"{"limits":{"daily":1,"burst":1,"demo":1}}"#);
        status.await.unwrap().unwrap();
    }
    assert_eq!(outcomes(&log), [CallOutcome::Answered; 3]);
}

#[tokio::test]
async fn unrequested_response_is_not_the_response_to_the_next_call() {
    let mut fake = Fake::start().await;
    let log = Arc::new(Log::default());
    let charger = Charger::new(fake.client().charge_service(), long_deadline(), log.clone());
    let first = tokio::spawn(begin(&charger, 1));
    // Both arrive together, so the second one is buffered before the next call is sent.
    fake.next().await.allow_twice();
    assert_eq!(first.await.unwrap(), Ok(verdict(1)));
    let second = tokio::spawn(begin(&charger, 2));
    let exchange = fake.next().await;
    assert_eq!(exchange.numbers(), [2]);
    exchange.allow();
    assert_eq!(second.await.unwrap(), Ok(verdict(2)));
    assert!(!fake.has_more(), "the second charge is sent once");
    assert_eq!(outcomes(&log), [CallOutcome::Answered; 2]);
}

#[tokio::test]
async fn response_before_the_body_was_read_is_not_mixed_up_with_the_next() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = QuotaClient::new(&format!("http://{}", listener.local_addr().unwrap()), LONG).unwrap();
    let charger = Charger::new(
        client.charge_service(),
        BatchConfig { max_batch: 256, ..long_deadline() },
        Arc::new(()),
    );
    let charges: Vec<_> = (0..256).map(|number| begin(&charger, number)).collect();
    let (mut stream, _) = listener.accept().await.unwrap();
    // Responds to the first byte, like a server that rejects a request by its head.
    stream.read_u8().await.unwrap();
    let error = "HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(error.as_bytes()).await.unwrap();
    for charge in charges {
        assert_eq!(charge.await, Err(ChargeError::Unavailable));
    }
    let second = tokio::spawn(begin(&charger, 1_000));
    // The next call comes after the rest of the first body.
    let mut received = Vec::new();
    let first_body = encode_charges(&(0..256).map(charge).collect::<Vec<_>>());
    let second_body = encode_charges(&[charge(1_000)]);
    while !received.ends_with(&second_body) {
        assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0, "the connection is kept");
    }
    assert!(received.windows(first_body.len()).any(|bytes| bytes == first_body));
    stream.write_all(&response_with(&[verdict(1_000)])).await.unwrap();
    assert_eq!(second.await.unwrap(), Ok(verdict(1_000)));
}

#[tokio::test]
async fn oversized_response_fails_the_batch() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(long_deadline());
    let charge = tokio::spawn(begin(&charger, 1));
    // Incomplete, so that only the limit can end the call before its deadline.
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
    fake.next().await.raw(head.to_owned() + &" ".repeat((64 << 10) + 1));
    assert_eq!(charge.await.unwrap(), Err(ChargeError::Unavailable));
}

#[tokio::test]
async fn response_sent_byte_by_byte_is_read() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(long_deadline());
    let charges: Vec<_> = (0..5).map(|number| begin(&charger, number)).collect();
    fake.next().await.allow_byte_by_byte();
    for (charge, number) in charges.into_iter().zip(0..) {
        assert_eq!(charge.await, Ok(verdict(number)));
    }
}

#[tokio::test]
async fn verdict_count_mismatch_fails_batch() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(long_deadline());
    for count in [0, 1, 3] {
        let (one, two) = (begin(&charger, 1), begin(&charger, 2));
        let exchange = fake.next().await;
        assert_eq!(exchange.numbers(), [1, 2]);
        exchange.verdicts(&vec![verdict(1); count]);
        assert_eq!((one.await, two.await), (Err(ChargeError::Unavailable), Err(ChargeError::Unavailable)));
    }
}

#[tokio::test]
async fn unavailable_verdict_fails_only_its_charge() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(long_deadline());
    let (one, two) = (begin(&charger, 1), begin(&charger, 2));
    fake.next().await.verdicts(&[Verdict::Unavailable, verdict(2)]);
    assert_eq!((one.await, two.await), (Err(ChargeError::Unavailable), Ok(verdict(2))));
}

#[tokio::test]
async fn charge_is_unavailable_after_error_or_invalid_response() {
    let mut fake = Fake::start().await;
    let log = Arc::new(Log::default());
    let charger = Charger::new(fake.client().charge_service(), long_deadline(), log.clone());
    let error = r#"{"error":"internal_error","message":"m","docs":"d"}"#;
    for (status, body) in [(500, error), (200, "half a record"), (200, &"x".repeat(42)), (302, "")] {
        let charge = tokio::spawn(begin(&charger, 1));
        fake.next().await.json(status, body);
        assert_eq!(charge.await.unwrap(), Err(ChargeError::Unavailable));
    }
    use CallOutcome::{Broken, Refused};
    assert_eq!(outcomes(&log), [Refused, Broken, Broken, Broken]);
    assert!(!fake.has_more());
}

#[test]
fn charger_fails_when_its_task_ends() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = || QuotaClient::new("http://127.0.0.1:9", Duration::from_secs(1)).unwrap();
    let first = runtime();
    let charger = first
        .block_on(async { Charger::new(client().charge_service(), BatchConfig::default(), Arc::new(())) });
    // Ends the task as a panic would.
    drop(first);
    let failed = async { tokio::time::timeout(Duration::from_secs(10), charger.failed()).await };
    runtime().block_on(failed).expect("the failure is noticed");
}
