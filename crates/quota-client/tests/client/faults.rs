//! Deadlines, broken connections and senseless answers: an error in time, never another's answer, never sent twice.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quota_client::wire::{ChargeResponse, Outcome, Verdict};
use quota_client::{BatchConfig, CallOutcome, CallReport, ChargeError, Charger, Observer, QuotaClient};
use tokio::sync::mpsc;

use crate::fake::{Fake, Log, begin, key, verdict};

/// Long enough that only a fault of ours could use it up.
const PATIENT: Duration = Duration::from_secs(10);

fn patient() -> BatchConfig {
    BatchConfig { in_flight: 1, deadline: PATIENT, ..BatchConfig::default() }
}

fn outcomes(log: &Log) -> Vec<CallOutcome> {
    log.calls.lock().unwrap().iter().map(|call| call.outcome).collect()
}

#[tokio::test]
async fn a_charge_ends_by_its_deadline_and_a_late_answer_reaches_nobody() {
    let mut fake = Fake::start().await;
    let deadline = Duration::from_millis(150);
    for batching in [true, false] {
        let charger = fake.charger(BatchConfig { deadline, batching, ..patient() });
        let started = Instant::now();
        assert_eq!(charger.charge(&key(1)).await, Err(ChargeError::TimedOut));
        let waited = started.elapsed();
        assert!(waited >= deadline && waited < PATIENT / 2, "{waited:?}");
        let late = fake.next().await;

        let next = tokio::spawn(begin(&charger, 2));
        let exchange = fake.next().await;
        late.judge();
        exchange.judge();
        assert_eq!(next.await.unwrap(), Ok(verdict(2)));
    }
}

#[tokio::test]
async fn the_deadline_counts_the_wait_in_the_queue() {
    let mut fake = Fake::start().await;
    let hanging = fake.charger(BatchConfig { deadline: Duration::from_millis(100), ..patient() });
    let first = begin(&hanging, 1);
    let _never_answered = fake.next().await;
    assert_eq!(hanging.charge(&key(2)).await, Err(ChargeError::TimedOut));
    assert_eq!(first.await, Err(ChargeError::TimedOut));
}

#[tokio::test]
async fn an_absent_server_is_tried_twice_and_reported_long_before_the_deadline() {
    let gone = tokio::net::TcpListener::bind("127.0.0.3:0").await.unwrap().local_addr().unwrap();
    let log = Arc::new(Log::default());
    let client = QuotaClient::new(&format!("http://{gone}"), PATIENT).unwrap();
    let charger = Charger::new(client, patient(), log.clone());
    let started = Instant::now();
    assert_eq!(charger.charge(&key(1)).await, Err(ChargeError::Unavailable));
    assert!(started.elapsed() < PATIENT / 5);
    assert_eq!(outcomes(&log), [CallOutcome::Unreachable, CallOutcome::Unreachable]);
    assert_eq!(*log.lost.lock().unwrap(), [ChargeError::Unavailable]);
}

/// Lets the server come up the moment the first try has failed.
struct ComesUp(SocketAddr, mpsc::UnboundedSender<std::net::TcpListener>);

impl Observer for ComesUp {
    fn called(&self, call: &CallReport) {
        if call.outcome == CallOutcome::Unreachable {
            self.1.send(std::net::TcpListener::bind(self.0).unwrap()).unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_not_sent_is_sent_once_the_server_is_back() {
    // An address of its own: no other test can take the port in between.
    let address = std::net::TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let (sender, mut up) = mpsc::unbounded_channel();
    let client = QuotaClient::new(&format!("http://{address}"), PATIENT).unwrap();
    let charger = Charger::new(client, patient(), Arc::new(ComesUp(address, sender)));
    let charging = tokio::spawn(begin(&charger, 1));
    let listener = up.recv().await.unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut fake = Fake::on(tokio::net::TcpListener::from_std(listener).unwrap());
    let exchange = fake.next().await;
    assert_eq!(exchange.numbers(), [1]);
    exchange.judge();
    assert_eq!(charging.await.unwrap(), Ok(verdict(1)));
    assert!(!fake.has_more());
}

#[tokio::test]
async fn what_was_written_is_never_sent_again() {
    let mut fake = Fake::start().await;
    let log = Arc::new(Log::default());
    let charger = Charger::new(fake.client(), patient(), log.clone());
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 60\r\n\r\n{\"verdicts\":[{\"outcome\":\"allowed\"";
    // The second and later ones meet a connection that was used before, which HTTP clients like to retry on.
    for (number, answer) in [(0, ""), (1, ""), (2, half), (3, "HTTP/1.1 200 OK\r\n")] {
        let charging = tokio::spawn(begin(&charger, number));
        let exchange = fake.next().await;
        assert_eq!(exchange.numbers(), [number]);
        exchange.raw_then_close(answer);
        assert_eq!(charging.await.unwrap(), Err(ChargeError::Unavailable));
        assert!(!fake.has_more());

        let charging = tokio::spawn(begin(&charger, 100 + number));
        fake.next().await.judge();
        assert_eq!(charging.await.unwrap(), Ok(verdict(100 + number)), "recovers at once");
    }
    let calls = outcomes(&log);
    assert_eq!(calls.len(), 8);
    assert!(calls.chunks(2).all(|pair| pair == [CallOutcome::Broken, CallOutcome::Answered]));
}

#[tokio::test]
async fn an_answer_byte_by_byte_is_an_answer() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(patient());
    let charging: Vec<_> = (0..5).map(|number| begin(&charger, number)).collect();
    fake.next().await.judge_byte_by_byte();
    for (charging, number) in charging.into_iter().zip(0..) {
        assert_eq!(charging.await, Ok(verdict(number)));
    }
}

#[tokio::test]
async fn a_wrong_number_of_verdicts_is_nobodys_verdict() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(patient());
    for count in [0, 1, 3] {
        let (one, two) = (begin(&charger, 1), begin(&charger, 2));
        let exchange = fake.next().await;
        assert_eq!(exchange.numbers(), [1, 2]);
        let verdicts = vec![verdict(1); count];
        exchange.json(200, &serde_json::to_string(&ChargeResponse { verdicts }).unwrap());
        assert_eq!((one.await, two.await), (Err(ChargeError::Unavailable), Err(ChargeError::Unavailable)));
    }
}

#[tokio::test]
async fn one_unavailable_verdict_fails_only_its_own_charge() {
    let mut fake = Fake::start().await;
    let charger = fake.charger(patient());
    let (one, two) = (begin(&charger, 1), begin(&charger, 2));
    let unavailable = Verdict { outcome: Outcome::Unavailable, ..verdict(1) };
    let answer = ChargeResponse { verdicts: vec![unavailable, verdict(2)] };
    fake.next().await.json(200, &serde_json::to_string(&answer).unwrap());
    assert_eq!((one.await, two.await), (Err(ChargeError::Unavailable), Ok(verdict(2))));
}

#[tokio::test]
async fn errors_and_senseless_answers_are_unavailable() {
    let mut fake = Fake::start().await;
    let log = Arc::new(Log::default());
    let charger = Charger::new(fake.client(), patient(), log.clone());
    let too_long = format!("{{\"verdicts\":[]{}}}", " ".repeat(300 << 10));
    let error = r#"{"error":"internal_error","message":"m","docs":"d"}"#;
    for (status, body) in [(500, error), (200, "{"), (200, "[]"), (302, ""), (200, &too_long)] {
        let charging = tokio::spawn(begin(&charger, 1));
        fake.next().await.json(status, body);
        assert_eq!(charging.await.unwrap(), Err(ChargeError::Unavailable));
    }
    use CallOutcome::{Broken, Refused};
    assert_eq!(outcomes(&log), [Refused, Broken, Broken, Broken, Broken]);
    assert!(!fake.has_more());
}
