//! Tests that a batch is sent with the trace context of its first traced charge.

use std::cell::Cell;

use http::{HeaderMap, HeaderValue};
use quota_client::BatchConfig;

use crate::fake::{Fake, begin};

thread_local! {
    static SPAN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

fn inject(headers: &mut HeaderMap) {
    if let Some(span) = SPAN.get() {
        headers.insert("traceparent", HeaderValue::from_static(span));
    }
}

fn traceparent(head: &str) -> Vec<&str> {
    head.lines().filter_map(|line| line.strip_prefix("traceparent: ")).collect()
}

#[tokio::test]
async fn batch_has_trace_context_of_first_traced_charge() {
    let mut fake = Fake::start().await;
    let config = BatchConfig { in_flight: 1, inject_trace_context: Some(inject), ..BatchConfig::default() };
    let charger = fake.charger(config);
    let begin_in_span = |span, number| {
        SPAN.set(span);
        begin(&charger, number)
    };
    let first = begin_in_span(None, 0);
    let in_flight = fake.next().await;
    assert!(traceparent(&in_flight.head).is_empty());
    let others = [begin_in_span(None, 1), begin_in_span(Some("00-a"), 2), begin_in_span(Some("00-b"), 3)];
    in_flight.allow();
    let traced = fake.next().await;
    assert_eq!(traced.numbers(), [1, 2, 3]);
    assert_eq!(traceparent(&traced.head), ["00-a"]);
    traced.allow();
    first.await.unwrap();
    for charge in others {
        charge.await.unwrap();
    }
}
