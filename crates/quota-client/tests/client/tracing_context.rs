//! A batch carries the trace context of its first traced charge.

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
async fn the_first_traced_charge_gives_the_call_its_context() {
    let mut fake = Fake::start().await;
    let config = BatchConfig { in_flight: 1, inject: Some(inject), ..BatchConfig::default() };
    let charger = fake.charger(config);
    let begin_in = |span, number| {
        SPAN.set(span);
        begin(&charger, number)
    };
    let first = begin_in(None, 0);
    let under_way = fake.next().await;
    assert!(traceparent(&under_way.head).is_empty());
    let others = [begin_in(None, 1), begin_in(Some("00-a"), 2), begin_in(Some("00-b"), 3)];
    under_way.judge();
    let traced = fake.next().await;
    assert_eq!(traced.numbers(), [1, 2, 3]);
    assert_eq!(traceparent(&traced.head), ["00-a"]);
    traced.judge();
    first.await.unwrap();
    for charging in others {
        charging.await.unwrap();
    }
}
