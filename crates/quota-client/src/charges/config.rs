//! Configuration of charging: limits of the queue and of batches, and the deadline of a charge.

use std::time::Duration;

use http::HeaderMap;
use tokio::runtime::Handle;

/// Configuration of a [`crate::Charger`].
#[derive(Debug, Clone)]
pub struct BatchConfig {
    /// Maximum number of queued charges. Further charges fail immediately.
    pub queue_capacity: usize,
    /// Maximum number of calls in flight. Default: 4 on a single-threaded runtime, 2 on a runtime with several threads.
    /// With several threads and more than 2 calls, a call can nearly always begin at once, so charges would be sent
    /// one by one instead of in batches.
    pub in_flight: usize,
    /// While other calls are in flight, not counting extra ones, a call waits until it has as many charges as the call
    /// before it, or until this time has passed. Fewer and larger calls take less CPU time. Default: 1 ms. As tokio's
    /// timers count whole milliseconds, the wait can be up to 2 ms longer.
    pub max_wait: Duration,
    /// Maximum number of calls in flight beyond `in_flight`. Whenever a call has begun and a full batch is still queued,
    /// an extra call takes it: that does not make batches smaller. Default: none on a single-threaded runtime, otherwise
    /// one per thread. Without extra calls, the rate of a pod with many CPUs would be limited to `in_flight` batches per
    /// round trip.
    pub extra_in_flight: usize,
    /// Maximum number of charges per call. The API allows at most 256.
    pub max_batch: usize,
    /// Maximum time per charge, including its time in the queue.
    pub deadline: Duration,
    /// Called once per charge, in the span of its caller: adds that span's W3C trace context to the map, or nothing if
    /// the span is not traced. A batch is sent with the context of its first sampled charge, and with links to at most
    /// 128 other sampled ones ([`quota_api::TRACE_LINKS`]). `None`: none is sent.
    pub inject_trace_context: Option<fn(&mut HeaderMap)>,
}

/// `in_flight` and `extra_in_flight` depend on the thread count of the current tokio runtime.
impl Default for BatchConfig {
    fn default() -> Self {
        let threads = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
        Self {
            queue_capacity: 4096,
            in_flight: if threads > 1 { 2 } else { 4 },
            max_wait: Duration::from_millis(1),
            extra_in_flight: if threads > 1 { threads } else { 0 },
            max_batch: 64,
            deadline: Duration::from_millis(400),
            inject_trace_context: None,
        }
    }
}
