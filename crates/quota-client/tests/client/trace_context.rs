//! Tests that a batch is sent with the trace context of one charge and with links to the others.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use quota_client::{BatchConfig, Charger};

use crate::fake::{Fake, begin};

thread_local! {
    static SPAN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

fn inject(headers: &mut HeaderMap) {
    if let Some(span) = SPAN.get() {
        headers.insert("traceparent", HeaderValue::from_static(span));
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Sends charges from these spans in one batch. Returns the trace context and the links of the batch.
async fn send_batch(spans: &[Option<&'static str>]) -> (Option<String>, Option<String>) {
    let mut fake = Fake::start().await;
    let config = BatchConfig {
        in_flight: 1,
        max_batch: 256,
        deadline: Duration::from_secs(10),
        inject_trace_context: Some(inject),
        ..BatchConfig::default()
    };
    let charger = fake.charger(config);
    let begin_in_span = |span, number| {
        SPAN.set(span);
        begin(&charger, number)
    };
    let first = begin_in_span(None, 0);
    let in_flight = fake.next().await;
    assert_eq!(header(&in_flight.head, "traceparent"), None);
    let others: Vec<_> = (1..).zip(spans).map(|(number, span)| begin_in_span(*span, number)).collect();
    in_flight.allow();
    let batch = fake.next().await;
    assert_eq!(batch.numbers().len(), spans.len());
    // quota-svc accepts 16 KiB. The rest is for the token, of at most 1 KiB, and the host.
    assert!(batch.head.len() < 12 << 10, "{} bytes of headers", batch.head.len());
    let headers = ["traceparent", "x-trace-links"].map(|name| header(&batch.head, name).map(str::to_owned));
    batch.allow();
    first.await.unwrap();
    for charge in others {
        charge.await.unwrap();
    }
    headers.into()
}

#[tokio::test]
async fn batch_has_context_of_first_sampled_charge_and_links_to_the_others() {
    let (parent, links) = send_batch(&[
        None,
        Some("00-a-1-00"),
        Some("00-b-1-01"),
        Some("00-c-1-00"),
        Some("00-d-1-03"),
        Some("00-e-1-01"),
    ])
    .await;
    assert_eq!(parent.as_deref(), Some("00-b-1-01"));
    assert_eq!(links.as_deref(), Some("00-d-1-03, 00-e-1-01"), "unsampled charges have no span");
}

#[tokio::test]
async fn links_of_a_full_sampled_batch_stay_below_the_header_limit() {
    let span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let (parent, links) = send_batch(&[Some(span); 256]).await;
    assert_eq!(parent.as_deref(), Some(span));
    let links = links.unwrap();
    assert_eq!(links.split(", ").filter(|link| *link == span).count(), 128, "{links}");
}

#[tokio::test]
async fn batch_without_sampled_charge_has_context_of_first_and_no_links() {
    let (parent, links) = send_batch(&[None, Some("00-a-1-00"), Some("00-b-1-00")]).await;
    assert_eq!((parent.as_deref(), links), (Some("00-a-1-00"), None));
}

#[tokio::test]
async fn context_of_the_caller_is_in_each_request_but_not_in_batches() {
    let mut fake = Fake::start().await;
    let client = fake.client().with_context(|headers| {
        drop(headers.insert("x-request-id", HeaderValue::from_static("of-the-caller")))
    });
    let (status, ()) = tokio::join!(client.status(), async {
        let exchange = fake.next().await;
        assert_eq!(header(&exchange.head, "x-request-id"), Some("of-the-caller"));
        exchange.json(200, r#"{"limits":{"daily":1,"burst":1,"demo":1}}"#);
    });
    status.unwrap();
    let charge = begin(&Charger::new(client.charge_service(), BatchConfig::default(), Arc::new(())), 0);
    let batch = fake.next().await;
    assert_eq!(header(&batch.head, "x-request-id"), None);
    batch.allow();
    charge.await.unwrap();
}
