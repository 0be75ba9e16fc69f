//! A batch of charges: their deadlines, their trace contexts, and the results for their callers.

use http::{HeaderMap, HeaderValue};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::ChargeError;
use quota_api::{Charge, TRACE_LINKS, Verdict};

const TRACEPARENT: &str = "traceparent";

/// Maximum number of links of a call. A span in quota-svc has at most 128, OpenTelemetry's default. The limit also keeps
/// the headers far below the 16 KiB that quota-svc accepts: a larger call would fail with all of its charges.
const MAX_TRACE_LINKS: usize = 128;

pub(super) type ChargeResult = Result<Verdict, ChargeError>;

/// A charge whose caller waits for the result.
pub(super) struct PendingCharge {
    pub(super) charge: Charge,
    pub(super) deadline: Instant,
    /// `None` after the result has been sent.
    pub(super) result_sender: Option<oneshot::Sender<ChargeResult>>,
    /// Headers with the span of the caller. `None` for most charges.
    pub(super) trace: Option<Box<HeaderMap>>,
}

pub(super) struct Batch(Vec<PendingCharge>);

impl Batch {
    pub(super) fn new(charges: Vec<PendingCharge>) -> Self {
        Self(charges)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes expired and canceled charges before the batch is sent, so that quota-svc does not count them.
    pub(super) fn drop_abandoned(&mut self, now: Instant) {
        self.expire(now);
        self.0.retain(|charge| charge.result_sender.as_ref().is_some_and(|sender| !sender.is_closed()));
    }

    /// Times out expired charges. They stay in the batch because verdicts are matched by position.
    pub(super) fn expire(&mut self, now: Instant) {
        for charge in self.0.iter_mut().filter(|charge| charge.deadline <= now) {
            charge.resolve(Err(ChargeError::TimedOut));
        }
    }

    /// Earliest deadline of the unresolved charges.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().filter(|charge| charge.result_sender.is_some()).map(|charge| charge.deadline).min()
    }

    /// The trace context of the call: that of the first sampled charge, and links to other sampled ones. If none is sampled, that of the first traced charge, so that quota-svc does not sample the call either.
    pub(super) fn trace(&self) -> Option<HeaderMap> {
        let traced = || self.0.iter().filter_map(|charge| charge.trace.as_deref());
        let mut sampled = traced().filter(|trace| is_sampled(trace));
        let mut headers = sampled.next().or_else(|| traced().next())?.clone();
        let links: Vec<_> = sampled
            .filter_map(|trace| trace.get(TRACEPARENT))
            .map(HeaderValue::as_bytes)
            .take(MAX_TRACE_LINKS)
            .collect();
        if !links.is_empty()
            && let Ok(links) = HeaderValue::from_bytes(&links.join(&b", "[..]))
        {
            headers.insert(TRACE_LINKS, links);
        }
        Some(headers)
    }

    pub(super) fn charges(&self) -> Vec<Charge> {
        self.0.iter().map(|pending| pending.charge).collect()
    }

    /// Resolves each charge with the verdict at its position.
    pub(super) fn complete(self, verdicts: Vec<Verdict>) {
        for (mut charge, verdict) in self.0.into_iter().zip(verdicts) {
            let unavailable = verdict == Verdict::Unavailable;
            charge.resolve(if unavailable { Err(ChargeError::Unavailable) } else { Ok(verdict) });
        }
    }

    pub(super) fn fail(self, error: ChargeError) {
        for mut charge in self.0 {
            charge.resolve(Err(error));
        }
    }
}

/// Whether a `traceparent` has the flag `sampled`: the lowest bit of its last digit.
fn is_sampled(trace: &HeaderMap) -> bool {
    let flags = trace.get(TRACEPARENT).and_then(|value| value.as_bytes().last());
    flags.and_then(|digit| char::from(*digit).to_digit(16)).is_some_and(|digit| digit % 2 == 1)
}

impl PendingCharge {
    fn resolve(&mut self, result: ChargeResult) {
        if let Some(sender) = self.result_sender.take() {
            // Sending fails only if the caller has canceled the charge, so nobody waits for the result.
            sender.send(result).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api_key::KeyDigest;

    use super::*;

    fn pending(charge: Charge, deadline: Instant) -> (PendingCharge, oneshot::Receiver<ChargeResult>) {
        let (sender, receiver) = oneshot::channel();
        (PendingCharge { charge, deadline, result_sender: Some(sender), trace: None }, receiver)
    }

    #[test]
    fn expired_and_canceled_charges_are_not_sent() {
        let now = Instant::now();
        let (expired, mut expired_result) = pending(Charge::Demo, now);
        let (canceled, canceled_result) = pending(Charge::Demo, now + Duration::from_secs(1));
        let key = Charge::Key { digest: KeyDigest([1; 32]), origin: None };
        let (waiting, mut waiting_result) = pending(key, now + Duration::from_millis(1));
        drop(canceled_result);
        let mut batch = Batch::new(vec![expired, canceled, waiting]);
        batch.drop_abandoned(now);
        assert_eq!(expired_result.try_recv(), Ok(Err(ChargeError::TimedOut)));
        assert_eq!(batch.len(), 1);
        assert_eq!(batch.charges(), [key]);
        assert_eq!(batch.next_deadline(), Some(now + Duration::from_millis(1)));
        assert!(waiting_result.try_recv().is_err(), "the remaining charge is unresolved");
    }
}
