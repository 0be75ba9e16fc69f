//! From the queue to quota-svc and back: permits for calls under way, one call per batch, one retry of what was not sent.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::batch::{Batch, Pending};
use super::{BatchConfig, CallOutcome, CallReport, ChargeError, Observer};
use crate::client::QuotaClient;
use crate::error::ClientError;
use crate::wire::{MAX_BATCH, Verdict};

/// Before the second try of what could not be sent: a killed sidecar was back after 22 ms.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Nearer than any deadline of a call.
const TICK: Duration = Duration::from_millis(50);

/// Makes batches of what waits until the last charger is gone. Each call is a task of its own, so that a caller that
/// goes away, or even a panic, takes nobody else along.
pub(super) async fn dispatch(
    mut queue: mpsc::Receiver<Pending>,
    delivery: Arc<Delivery>,
    config: BatchConfig,
) {
    let most = config.batch.clamp(1, MAX_BATCH);
    let permits = Arc::new(Semaphore::new(config.in_flight.clamp(1, Semaphore::MAX_PERMITS)));
    let mut gathered = Vec::with_capacity(most);
    let mut ticking = JoinSet::new();
    ticking.spawn(tick());
    while let Ok(permit) = permits.clone().acquire_owned().await {
        if queue.recv_many(&mut gathered, most).await == 0 {
            return;
        }
        let batch = Batch::new(mem::replace(&mut gathered, Vec::with_capacity(most)));
        let delivery = delivery.clone();
        tokio::spawn(async move {
            delivery.deliver(batch).await;
            drop(permit);
        });
    }
}

/// Has a timer that is due before those of the calls, as long as there is a dispatcher. tokio wakes itself by a system
/// call whenever it gets a timer before which nothing is due; those were three of the nine system calls of a
/// batch with one charge.
async fn tick() {
    let mut ticks = interval(TICK);
    loop {
        ticks.tick().await;
    }
}

/// Carries batches to quota-svc.
pub(super) struct Delivery {
    client: QuotaClient,
    observer: Arc<dyn Observer>,
}

impl Delivery {
    pub(super) fn new(client: QuotaClient, observer: Arc<dyn Observer>) -> Self {
        Self { client, observer }
    }

    pub(super) fn observer(&self) -> &dyn Observer {
        &*self.observer
    }

    /// Has the batch judged and answers each caller.
    pub(super) async fn deliver(&self, mut batch: Batch) {
        let mut result = self.attempt(&mut batch).await;
        if let Err(ClientError::Unreachable(_)) = result {
            sleep(RETRY_PAUSE).await;
            result = self.attempt(&mut batch).await;
        }
        match result {
            Ok(verdicts) => batch.answer(verdicts),
            Err(ClientError::TimedOut) => batch.fail(ChargeError::TimedOut),
            Err(_) => batch.fail(ChargeError::Unavailable),
        }
    }

    async fn attempt(&self, batch: &mut Batch) -> Result<Vec<Verdict>, ClientError> {
        let started = Instant::now();
        batch.drop_abandoned(started);
        if batch.len() == 0 {
            return Ok(Vec::new());
        }
        // Boxed: a call has kilobytes, and the task that makes it is moved several times.
        let call = Box::pin(self.client.charge_written(batch.body(), batch.trace()));
        let result = in_time(call, batch).await.and_then(|answer| matching(answer.verdicts, batch));
        self.observer.called(&CallReport {
            charges: batch.len(),
            elapsed: started.elapsed(),
            outcome: CallOutcome::of(&result),
        });
        result
    }
}

/// One timer for the whole batch: whose time is over meanwhile is answered, the others go on waiting.
async fn in_time<T>(
    mut call: impl Future<Output = Result<T, ClientError>> + Unpin,
    batch: &mut Batch,
) -> Result<T, ClientError> {
    while let Some(deadline) = batch.next_deadline() {
        tokio::select! {
            biased;
            result = &mut call => return result,
            () = sleep_until(deadline) => batch.give_up(deadline),
        }
    }
    Err(ClientError::TimedOut)
}

/// Else nobody can tell whose verdict is whose.
fn matching(verdicts: Vec<Verdict>, batch: &Batch) -> Result<Vec<Verdict>, ClientError> {
    match verdicts.len() == batch.len() {
        true => Ok(verdicts),
        false => Err(ClientError::Protocol("not one verdict for each charge".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::super::batch::Subject;
    use super::*;

    #[tokio::test]
    async fn whose_time_is_over_is_answered_while_the_others_wait() {
        let pending = |time| {
            let (reply, answer) = oneshot::channel();
            let deadline = Instant::now() + time;
            (Pending { subject: Subject::Demo, deadline, reply: Some(reply), trace: None }, answer)
        };
        let (hasty, hasty_answer) = pending(Duration::from_millis(10));
        let (patient, mut patient_answer) = pending(Duration::from_secs(60));
        let mut batch = Batch::new(vec![hasty, patient]);
        let (finish, call) = oneshot::channel();
        let call = Box::pin(async { call.await.expect("the test finishes the call") });
        let first = async {
            assert_eq!(hasty_answer.await, Ok(Err(ChargeError::TimedOut)));
            finish.send(Ok("verdicts")).expect("the call is still waited for");
        };
        let (result, ()) = tokio::join!(in_time(call, &mut batch), first);
        assert_eq!(result.expect("an answer"), "verdicts");
        assert!(patient_answer.try_recv().is_err(), "gets its own verdict by its place");
        assert_eq!(batch.len(), 2);
    }

    #[tokio::test]
    async fn a_call_that_nobody_waits_for_is_given_up() {
        let mut batch = Batch::new(Vec::new());
        let never = std::future::pending::<Result<(), ClientError>>();
        assert!(matches!(in_time(never, &mut batch).await, Err(ClientError::TimedOut)));
    }
}
