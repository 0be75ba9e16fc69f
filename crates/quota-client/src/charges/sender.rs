//! Sends batches of charges to the charge service: a limited number of calls in flight, and one retry if no connection could be made.

use std::mem;
use std::ops::RangeInclusive;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::{BatchConfig, CallOutcome, CallReport, ChargeError, ChargeObserver, ChargeService};
use crate::error::ClientError;
use quota_api::{Charge, MAX_BATCH, TRACE_LINKS, Verdict};

/// Delay before the retry. In a measurement, a killed quota-svc sidecar accepted connections again after 22 ms.
const RETRY_DELAY: Duration = Duration::from_millis(50);

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

/// Sends queued charges in batches until the last charger is dropped and the queue is empty. Each call runs in its own
/// task, so that a canceled charge or a panic does not affect other calls.
pub(super) async fn dispatch(
    mut queue: mpsc::Receiver<PendingCharge>,
    sender: Arc<BatchSender>,
    config: BatchConfig,
) {
    let max_batch = config.max_batch.clamp(1, MAX_BATCH);
    let max_calls = u32::try_from(config.in_flight.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
    let permits = Arc::new(Semaphore::new(max_calls as usize));
    let mut charges = Vec::with_capacity(max_batch);
    let mut previous_len = 0;
    let mut timer = pin!(sleep(config.max_wait));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        if queue.recv_many(&mut charges, max_batch).await == 0 {
            return;
        }
        if charges.len() < previous_len {
            timer.as_mut().reset(Instant::now() + config.max_wait);
            let others_ended = pin!(permits.acquire_many(max_calls - 1));
            fill(&mut charges, previous_len..=max_batch, &mut queue, others_ended, timer.as_mut()).await;
        }
        previous_len = charges.len();
        let batch = Batch(mem::replace(&mut charges, Vec::with_capacity(max_batch)));
        let sender = sender.clone();
        // Boxed, because tokio moves the future several times before it runs.
        tokio::spawn(Box::pin(async move {
            sender.send(batch).await;
            drop(permit);
        }));
    }
}

/// Adds queued charges until their number is in `range`, `others_ended` completes, the timer fires or the queue is
/// closed. There are never more than the end of `range`.
async fn fill(
    charges: &mut Vec<PendingCharge>,
    range: RangeInclusive<usize>,
    queue: &mut mpsc::Receiver<PendingCharge>,
    mut others_ended: Pin<&mut impl Future>,
    mut timer: Pin<&mut Sleep>,
) {
    while charges.len() < *range.start() {
        let free = range.end() - charges.len();
        tokio::select! {
            biased;
            added = queue.recv_many(charges, free) => if added == 0 { return },
            _ = &mut others_ended => return,
            () = &mut timer => return,
        }
    }
}

pub(super) struct BatchSender {
    service: Arc<dyn ChargeService>,
    observer: Arc<dyn ChargeObserver>,
    /// Timers for the deadlines of charges, kept from one call to the next.
    ///
    /// When a new timer becomes the earliest one, tokio wakes itself with syscalls: three of the nine for a batch of one
    /// charge. Moving a timer that has not fired to a later time needs none, and each call's deadline is later than the one
    /// before.
    timers: Mutex<Vec<Pin<Box<Sleep>>>>,
}

impl BatchSender {
    pub(super) fn new(service: Arc<dyn ChargeService>, observer: Arc<dyn ChargeObserver>) -> Self {
        Self { service, observer, timers: Mutex::default() }
    }

    async fn send(&self, mut batch: Batch) {
        let mut is_retry = false;
        // A loop, so that the future contains one `attempt` instead of two.
        let result = loop {
            let result = self.attempt(&mut batch).await;
            if is_retry || !matches!(result, Err(ClientError::Unreachable(_))) {
                break result;
            }
            is_retry = true;
            sleep(RETRY_DELAY).await;
        };
        match result {
            Ok(verdicts) => batch.complete(verdicts),
            Err(ClientError::TimedOut) => batch.fail(ChargeError::TimedOut),
            Err(ClientError::Unreachable(_) | ClientError::Interrupted(_)) => {
                batch.fail(ChargeError::Unreachable);
            }
            Err(error) if error.status() == Some(401) => batch.fail(ChargeError::Unauthorized),
            Err(_) => batch.fail(ChargeError::Unavailable),
        }
    }

    async fn attempt(&self, batch: &mut Batch) -> Result<Vec<Verdict>, ClientError> {
        let started = Instant::now();
        batch.drop_abandoned(started);
        let Some(deadline) = batch.next_deadline() else { return Ok(Vec::new()) };
        let timers = || self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = timers().pop();
        let mut timer = kept.unwrap_or_else(|| Box::pin(sleep_until(deadline)));
        let call = self.service.charge(batch.charges(), batch.trace());
        let response = with_deadlines(call, batch, timer.as_mut()).await;
        timers().push(timer);
        // Verdicts are matched by position.
        let result = response.and_then(|verdicts| match verdicts.len() == batch.0.len() {
            true => Ok(verdicts),
            false => Err(ClientError::Protocol("the numbers of verdicts and of charges differ".to_owned())),
        });
        self.observer.on_call(&CallReport {
            charges: batch.0.len(),
            elapsed: started.elapsed(),
            outcome: CallOutcome::of(&result),
        });
        result
    }
}

/// Waits for the call and times out each charge at its deadline, with `timer`. Returns `TimedOut` once every charge
/// is resolved, because then no caller waits for the response.
async fn with_deadlines<T>(
    mut call: impl Future<Output = Result<T, ClientError>> + Unpin,
    batch: &mut Batch,
    mut timer: Pin<&mut Sleep>,
) -> Result<T, ClientError> {
    while let Some(deadline) = batch.next_deadline() {
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        tokio::select! {
            biased;
            result = &mut call => return result,
            () = timer.as_mut() => batch.expire(deadline),
        }
    }
    Err(ClientError::TimedOut)
}

struct Batch(Vec<PendingCharge>);

impl Batch {
    /// Removes expired and canceled charges before the batch is sent, so that quota-svc does not count them.
    fn drop_abandoned(&mut self, now: Instant) {
        self.expire(now);
        self.0.retain(|charge| charge.result_sender.as_ref().is_some_and(|sender| !sender.is_closed()));
    }

    /// Times out expired charges. They stay in the batch because verdicts are matched by position.
    fn expire(&mut self, now: Instant) {
        for charge in self.0.iter_mut().filter(|charge| charge.deadline <= now) {
            charge.resolve(Err(ChargeError::TimedOut));
        }
    }

    /// Earliest deadline of the unresolved charges.
    fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().filter(|charge| charge.result_sender.is_some()).map(|charge| charge.deadline).min()
    }

    /// The trace context of the call: that of the first sampled charge, and links to other sampled ones. If none is sampled, that of
    /// the first traced charge, so that quota-svc does not sample the call either.
    fn trace(&self) -> Option<HeaderMap> {
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

    fn charges(&self) -> Vec<Charge> {
        self.0.iter().map(|pending| pending.charge).collect()
    }

    /// Resolves each charge with the verdict at its position.
    fn complete(self, verdicts: Vec<Verdict>) {
        for (mut charge, verdict) in self.0.into_iter().zip(verdicts) {
            let unavailable = verdict == Verdict::Unavailable;
            charge.resolve(if unavailable { Err(ChargeError::Unavailable) } else { Ok(verdict) });
        }
    }

    fn fail(self, error: ChargeError) {
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
    use api_key::KeyDigest;

    use super::*;

    #[tokio::test]
    async fn expired_charge_times_out_alone() {
        let pending = |time| pending(Charge::Demo, Instant::now() + time);
        let (short, short_result) = pending(Duration::from_millis(10));
        let (long, mut long_result) = pending(Duration::from_secs(60));
        let mut batch = Batch(vec![short, long]);
        let (finish, call) = oneshot::channel();
        let call = pin!(async { call.await.expect("the test finishes the call") });
        let finish_after_timeout = async {
            assert_eq!(short_result.await, Ok(Err(ChargeError::TimedOut)));
            finish.send(Ok("verdicts")).expect("the call is in flight");
        };
        let timer = pin!(sleep_until(Instant::now()));
        let (result, ()) = tokio::join!(with_deadlines(call, &mut batch, timer), finish_after_timeout);
        assert_eq!(result.expect("response"), "verdicts");
        assert!(long_result.try_recv().is_err(), "the other charge must still be unresolved");
        assert_eq!(batch.0.len(), 2, "the expired charge must keep its position");
    }

    #[tokio::test]
    async fn call_times_out_if_no_charge_is_waiting() {
        let mut batch = Batch(Vec::new());
        let never = pin!(std::future::pending::<Result<(), ClientError>>());
        assert!(matches!(
            with_deadlines(never, &mut batch, pin!(sleep_until(Instant::now()))).await,
            Err(ClientError::TimedOut)
        ));
    }

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
        let mut batch = Batch(vec![expired, canceled, waiting]);
        batch.drop_abandoned(now);
        assert_eq!(expired_result.try_recv(), Ok(Err(ChargeError::TimedOut)));
        assert_eq!(batch.0.len(), 1);
        assert_eq!(batch.charges(), [key]);
        assert_eq!(batch.next_deadline(), Some(now + Duration::from_millis(1)));
        assert!(waiting_result.try_recv().is_err(), "the remaining charge is unresolved");
    }
}
