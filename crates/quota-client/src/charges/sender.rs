//! Sends batches to the charge service: a limited number of calls in flight, and one retry if no connection could be made.

use std::mem;
use std::ops::RangeInclusive;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::batch::{Batch, PendingCharge};
use super::{BatchConfig, CallOutcome, CallReport, ChargeError, ChargeObserver, ChargeService};
use crate::error::ClientError;
use quota_api::{MAX_BATCH, Verdict};

/// Delay before the retry. In a measurement, a killed quota-svc sidecar accepted connections again after 22 ms.
const RETRY_DELAY: Duration = Duration::from_millis(50);

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
        let batch = Batch::new(mem::replace(&mut charges, Vec::with_capacity(max_batch)));
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

/// Timers for the deadlines of charges, kept from one call to the next.
///
/// When a new timer becomes the earliest one, tokio wakes itself with syscalls: three of the nine for a batch of one
/// charge. Moving a timer that has not fired to a later time needs none, and each call's deadline is later than the one
/// before.
#[derive(Default)]
struct Timers(Mutex<Vec<Pin<Box<Sleep>>>>);

impl Timers {
    /// Returns a kept timer, with the deadline of an earlier call, or a new one.
    fn take(&self, deadline: Instant) -> Pin<Box<Sleep>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| Box::pin(sleep_until(deadline)))
    }

    fn put_back(&self, timer: Pin<Box<Sleep>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(timer);
    }
}

pub(super) struct BatchSender {
    service: Arc<dyn ChargeService>,
    timers: Timers,
    observer: Arc<dyn ChargeObserver>,
}

impl BatchSender {
    pub(super) fn new(service: Arc<dyn ChargeService>, observer: Arc<dyn ChargeObserver>) -> Self {
        Self { service, timers: Timers::default(), observer }
    }

    pub(super) async fn send(&self, mut batch: Batch) {
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
        let mut timer = self.timers.take(deadline);
        let call = self.service.charge(batch.charges(), batch.trace());
        let response = with_deadlines(call, batch, timer.as_mut()).await;
        self.timers.put_back(timer);
        let result = response.and_then(|verdicts| check_count(verdicts, batch));
        self.observer.on_call(&CallReport {
            charges: batch.len(),
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

/// Verdicts are matched by position, so the counts must be equal.
fn check_count(verdicts: Vec<Verdict>, batch: &Batch) -> Result<Vec<Verdict>, ClientError> {
    match verdicts.len() == batch.len() {
        true => Ok(verdicts),
        false => {
            Err(ClientError::Protocol("the number of verdicts differs from the number of charges".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use quota_api::Charge;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn expired_charge_times_out_alone() {
        let pending = |time| {
            let (sender, receiver) = oneshot::channel();
            let (deadline, result_sender) = (Instant::now() + time, Some(sender));
            (PendingCharge { charge: Charge::Demo, deadline, result_sender, trace: None }, receiver)
        };
        let (short, short_result) = pending(Duration::from_millis(10));
        let (long, mut long_result) = pending(Duration::from_secs(60));
        let mut batch = Batch::new(vec![short, long]);
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
        assert_eq!(batch.len(), 2, "the expired charge must keep its position");
    }

    #[tokio::test]
    async fn call_times_out_if_no_charge_is_waiting() {
        let mut batch = Batch::new(Vec::new());
        let never = pin!(std::future::pending::<Result<(), ClientError>>());
        assert!(matches!(
            with_deadlines(never, &mut batch, pin!(sleep_until(Instant::now()))).await,
            Err(ClientError::TimedOut)
        ));
    }
}
