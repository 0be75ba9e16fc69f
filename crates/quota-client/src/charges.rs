//! Charges of many callers in few calls: a batch is what has gathered while earlier calls were under way.

mod batch;
mod config;
mod delivery;
mod observer;

use std::sync::Arc;
use std::time::Duration;

pub use config::BatchConfig;
use http::HeaderMap;
pub use observer::{CallOutcome, CallReport, Observer};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::client::QuotaClient;
use crate::wire::Verdict;
use batch::{Answer, Batch, Pending, Subject};
use delivery::Delivery;

/// Why a charge has no verdict. Nothing may be answered on the strength of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ChargeError {
    /// Too many charges wait already; this one was not sent.
    #[error("too many charges are waiting")]
    Overloaded,
    /// No verdict within the deadline; the charge may have been counted.
    #[error("no verdict in time")]
    TimedOut,
    /// quota-svc is away, or could not judge; the charge may have been counted.
    #[error("no verdict can be had")]
    Unavailable,
}

/// Charges keys and the demo quota. Clones share the queue; when the last is dropped, what waits is still delivered.
#[derive(Clone)]
pub struct Charger {
    route: Arc<Route>,
    delivery: Arc<Delivery>,
    deadline: Duration,
    inject: Option<fn(&mut HeaderMap)>,
}

enum Route {
    /// Into the queue, from which batches are made.
    Batched(mpsc::Sender<Pending>),
    /// Each charge in a call of its own; the permits are the bound on what is under way.
    Single(Semaphore),
}

impl Charger {
    /// A charger that calls through `client` and tells `observer`. Must be made within a tokio runtime, which then
    /// runs its calls.
    pub fn new(client: QuotaClient, config: BatchConfig, observer: Arc<dyn Observer>) -> Self {
        let delivery = Arc::new(Delivery::new(client, observer));
        let queue = config.queue.clamp(1, Semaphore::MAX_PERMITS);
        let route = if config.batching {
            let (sender, receiver) = mpsc::channel(queue);
            tokio::spawn(delivery::dispatch(receiver, delivery.clone(), config.clone()));
            Route::Batched(sender)
        } else {
            Route::Single(Semaphore::new(queue))
        };
        Self { route: Arc::new(route), delivery, deadline: config.deadline, inject: config.inject }
    }

    /// Charges the key with this SHA-256. A verdict's outcome is never `unavailable`: that is an error here.
    pub async fn charge(&self, key_sha256: &[u8; 32]) -> Result<Verdict, ChargeError> {
        self.submit(Subject::Key(*key_sha256)).await
    }

    /// Charges the quota that all anonymous callers share.
    pub async fn charge_demo(&self) -> Result<Verdict, ChargeError> {
        self.submit(Subject::Demo).await
    }

    async fn submit(&self, subject: Subject) -> Answer {
        let deadline = Instant::now() + self.deadline;
        let (reply, answer) = oneshot::channel();
        let pending = Pending { subject, deadline, reply: Some(reply), trace: self.trace() };
        let answer = match &*self.route {
            Route::Batched(queue) => wait_in(queue, pending, answer).await,
            // Boxed: the usual way need not have room for this one.
            Route::Single(permits) => Box::pin(self.deliver_alone(permits, pending, answer)).await,
        };
        answer.inspect_err(|error| self.delivery.observer().lost(*error))
    }

    /// Taken here, where the caller's span is the current one: the call is made by another task.
    fn trace(&self) -> Option<Box<HeaderMap>> {
        let mut headers = HeaderMap::new();
        self.inject?(&mut headers);
        (!headers.is_empty()).then(|| Box::new(headers))
    }

    async fn deliver_alone(
        &self,
        permits: &Semaphore,
        pending: Pending,
        mut answer: oneshot::Receiver<Answer>,
    ) -> Answer {
        let _permit = permits.try_acquire().map_err(|_| ChargeError::Overloaded)?;
        self.delivery.deliver(Batch::new(vec![pending])).await;
        answer.try_recv().unwrap_or(Err(ChargeError::Unavailable))
    }
}

/// Without a timer of its own: calls are made in the order of the queue and end by their charges' deadlines, so that
/// whatever waits is looked at before its own.
async fn wait_in(
    queue: &mpsc::Sender<Pending>,
    pending: Pending,
    answer: oneshot::Receiver<Answer>,
) -> Answer {
    queue.try_send(pending).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => ChargeError::Overloaded,
        mpsc::error::TrySendError::Closed(_) => ChargeError::Unavailable,
    })?;
    answer.await.unwrap_or(Err(ChargeError::Unavailable))
}
