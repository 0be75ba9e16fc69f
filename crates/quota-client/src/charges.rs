//! [`Charger`]: while calls are in flight, new charges wait in a queue; the next call sends them as one batch.

mod sender;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::HeaderMap;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::error::{ClientError, Result as ClientResult};
use quota_api::{Charge, Verdict};
use sender::{BatchSender, PendingCharge};

/// Charges batches. Implemented by the HTTP client of quota-svc, and by quota-svc itself for the same process.
pub trait ChargeService: Send + Sync + 'static {
    /// Returns the verdicts in the order of the charges. `trace` is the trace context of a call to another process. Needs no
    /// timeout: the caller enforces the deadlines of the charges, and drops the future.
    fn charge(
        &self,
        charges: Vec<Charge>,
        trace: Option<HeaderMap>,
    ) -> BoxFuture<'_, ClientResult<Vec<Verdict>>>;
}

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

#[derive(Debug, Clone)]
pub struct BatchConfig {
    /// Maximum number of queued charges. Further charges fail immediately.
    pub queue_capacity: usize,
    /// Maximum number of calls in flight. Default: 4 on a single-threaded runtime, 2 on a runtime with several threads.
    /// With several threads and more than 2 calls, a call can nearly always begin at once, so charges would be sent
    /// one by one instead of in batches.
    pub in_flight: usize,
    /// While other calls are in flight, a call waits until it has as many charges as the call
    /// before it, or until this time has passed. Fewer and larger calls take less CPU time. Default: 1 ms. As tokio's
    /// timers count whole milliseconds, the wait can be up to 2 ms longer.
    pub max_wait: Duration,
    /// Maximum number of charges per call. The API allows at most 256.
    pub max_batch: usize,
    /// Maximum time per charge, including its time in the queue.
    pub deadline: Duration,
    /// Called once per charge, in the span of its caller: adds that span's W3C trace context to the map, or nothing if
    /// the span is not traced. A batch is sent with the context of its first sampled charge, and with links to at most
    /// 128 other sampled ones ([`quota_api::TRACE_LINKS`]). `None`: none is sent.
    pub inject_trace_context: Option<fn(&mut HeaderMap)>,
}

/// `in_flight` depends on the thread count of the current tokio runtime.
impl Default for BatchConfig {
    fn default() -> Self {
        let threads = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
        Self {
            queue_capacity: 4096,
            in_flight: if threads > 1 { 2 } else { 4 },
            max_wait: Duration::from_millis(1),
            max_batch: 64,
            deadline: Duration::from_millis(400),
            inject_trace_context: None,
        }
    }
}

/// Receives reports for metrics. Called on the hot path, so implementations must return quickly.
pub trait ChargeObserver: Send + Sync + 'static {
    fn on_call(&self, _call: &CallReport) {}

    fn on_charge_error(&self, _error: ChargeError) {}
}

impl ChargeObserver for () {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallReport {
    pub charges: usize,
    /// Time from sending the request to the end of the response.
    pub elapsed: Duration,
    pub outcome: CallOutcome,
}

base::names! {
    /// Result of a call. The variants are named after their metric labels, which are public.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum CallOutcome {
        Answered = "answered",
        Refused = "refused",
        /// No connection, so nothing was sent.
        Unreachable = "unreachable",
        TimedOut = "timed_out",
        /// The connection broke, or the response is invalid.
        Broken = "broken",
    }
}

impl CallOutcome {
    fn of<T>(result: &Result<T, ClientError>) -> Self {
        match result {
            Ok(_) => Self::Answered,
            Err(ClientError::Api { .. }) => Self::Refused,
            Err(ClientError::Unreachable(_)) => Self::Unreachable,
            Err(ClientError::TimedOut) => Self::TimedOut,
            Err(_) => Self::Broken,
        }
    }
}

/// Charges keys and the demo quota. Clones share the queue. Queued charges are still sent after the last clone is
/// dropped.
#[derive(Clone)]
pub struct Charger {
    queue: mpsc::Sender<PendingCharge>,
    observer: Arc<dyn ChargeObserver>,
    deadline: Duration,
    inject_trace_context: Option<fn(&mut HeaderMap)>,
}

impl Charger {
    /// Creates a charger that calls `service` and reports to `observer`.
    ///
    /// Must be called within a tokio runtime; the calls run in that runtime.
    pub fn new(
        service: Arc<dyn ChargeService>,
        config: BatchConfig,
        observer: Arc<dyn ChargeObserver>,
    ) -> Self {
        let sender = Arc::new(BatchSender::new(service, observer.clone()));
        let (queue, receiver) = mpsc::channel(config.queue_capacity.clamp(1, Semaphore::MAX_PERMITS));
        let (deadline, inject_trace_context) = (config.deadline, config.inject_trace_context);
        tokio::spawn(sender::dispatch(receiver, sender, config));
        Self { queue, observer, deadline, inject_trace_context }
    }

    /// Charges one request. The verdict is never [`Verdict::Unavailable`]: that becomes an error.
    pub async fn charge(&self, charge: Charge) -> Result<Verdict, ChargeError> {
        let deadline = Instant::now() + self.deadline;
        let (result_sender, receiver) = oneshot::channel();
        let (result_sender, trace) = (Some(result_sender), self.trace());
        let pending = PendingCharge { charge, deadline, result_sender, trace };
        let queued = self.queue.try_send(pending).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ChargeError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => ChargeError::Unavailable,
        });
        // Needs no timer. Calls before it end at the deadlines of their own charges (or shortly after, if a call waits for its retry
        // or for more charges). These were queued earlier, so a queued charge gets its turn by its own deadline.
        let result = match queued {
            Ok(()) => receiver.await.unwrap_or(Err(ChargeError::Unavailable)),
            Err(error) => Err(error),
        };
        result.inspect_err(|error| self.observer.on_charge_error(*error))
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
