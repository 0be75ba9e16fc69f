//! [`Charger`]: while calls are in flight, new charges wait in a queue; the next call sends them as one batch.

mod batch;
mod config;
mod observer;
mod sender;

use std::sync::Arc;
use std::time::Duration;

pub use config::BatchConfig;
use http::HeaderMap;
pub use observer::{CallOutcome, CallReport, Observer};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::client::QuotaClient;
use batch::{ChargeResult, PendingCharge, Subject};
use quota_api::Verdict;
use sender::BatchSender;

/// Why a charge has no verdict. The request must not be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ChargeError {
    /// The queue is full. The charge was not sent.
    #[error("too many charges are queued")]
    Overloaded,
    /// No verdict before the deadline. The charge may have been counted.
    #[error("no verdict in time")]
    TimedOut,
    /// quota-svc could not process the charge, for example because its store is unavailable. The charge may have been
    /// counted.
    #[error("no verdict from quota-svc")]
    Unavailable,
    /// There is no connection to quota-svc, or it broke. The charge may have been counted.
    #[error("can't reach quota-svc")]
    Unreachable,
    /// quota-svc rejected the token. Nothing was counted.
    #[error("quota-svc rejected the token: set --quota-token-file to the file with its token")]
    Unauthorized,
}

/// Charges keys and the demo quota. Clones share the queue. Queued charges are still sent after the last clone is
/// dropped.
#[derive(Clone)]
pub struct Charger {
    queue: mpsc::Sender<PendingCharge>,
    observer: Arc<dyn Observer>,
    deadline: Duration,
    inject_trace_context: Option<fn(&mut HeaderMap)>,
}

impl Charger {
    /// Creates a charger that calls quota-svc through `client` and reports to `observer`.
    ///
    /// Must be called within a tokio runtime; the calls to quota-svc run in that runtime.
    pub fn new(client: &QuotaClient, config: BatchConfig, observer: Arc<dyn Observer>) -> Self {
        let sender = Arc::new(BatchSender::new(client.charge_calls(), observer.clone()));
        let (queue, receiver) = mpsc::channel(config.queue_capacity.clamp(1, Semaphore::MAX_PERMITS));
        let (deadline, inject_trace_context) = (config.deadline, config.inject_trace_context);
        tokio::spawn(sender::dispatch(receiver, sender, config));
        Self { queue, observer, deadline, inject_trace_context }
    }

    /// Charges the key with this SHA-256. The outcome is never `unavailable`: that becomes an error.
    pub async fn charge(&self, key_sha256: &[u8; 32]) -> Result<Verdict, ChargeError> {
        self.submit(Subject::Key(*key_sha256)).await
    }

    /// Charges the demo quota.
    pub async fn charge_demo(&self) -> Result<Verdict, ChargeError> {
        self.submit(Subject::Demo).await
    }

    async fn submit(&self, subject: Subject) -> ChargeResult {
        let deadline = Instant::now() + self.deadline;
        let (result_sender, receiver) = oneshot::channel();
        let result_sender = Some(result_sender);
        let charge = PendingCharge { subject, deadline, result_sender, trace: self.trace() };
        let result = self.enqueue(charge, receiver).await;
        result.inspect_err(|error| self.observer.on_charge_error(*error))
    }

    /// Queues a charge and waits for its result.
    ///
    /// Needs no timer for a queued charge. Calls before it end at the deadlines of their own charges (or shortly after,
    /// if a call waits for its retry or for more charges). These charges were queued earlier, so their deadlines
    /// are earlier: a queued charge gets its turn by its own deadline.
    async fn enqueue(
        &self,
        charge: PendingCharge,
        receiver: oneshot::Receiver<ChargeResult>,
    ) -> ChargeResult {
        self.queue.try_send(charge).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ChargeError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => ChargeError::Unavailable,
        })?;
        receiver.await.unwrap_or(Err(ChargeError::Unavailable))
    }

    /// Waits until the task that sends the queued charges has failed. From then on every charge is an error.
    pub async fn failed(self) {
        self.queue.closed().await;
    }

    /// Captures the trace context here because another task, outside the caller's span, makes the call.
    fn trace(&self) -> Option<Box<HeaderMap>> {
        let mut context = HeaderMap::new();
        self.inject_trace_context?(&mut context);
        (!context.is_empty()).then(|| Box::new(context))
    }
}
