//! The bounds of batching.

use std::time::Duration;

use http::HeaderMap;
use tokio::runtime::Handle;

/// How charges are gathered and how long they may take.
#[derive(Debug, Clone)]
pub struct BatchConfig {
    /// How many charges may wait; one more is refused at once.
    pub queue: usize,
    /// How many calls may be under way. The default suits the runtime it is asked for in: 4 on one thread; on several
    /// 2, or the threads would take the charges from each other in batches of one.
    pub in_flight: usize,
    /// How many charges one call carries at the most; 256 is the API's bound.
    pub batch: usize,
    /// How long a charge may take in all, the queue included.
    pub deadline: Duration,
    /// False: each charge in a call of its own, which is what the benchmark compares with.
    pub batching: bool,
    /// Writes the current span's W3C trace context. It is asked once for each charge, so it should write nothing where
    /// nothing is traced. A batch carries the context of its first traced charge.
    pub inject: Option<fn(&mut HeaderMap)>,
}

impl Default for BatchConfig {
    fn default() -> Self {
        let threads = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
        Self {
            queue: 4096,
            in_flight: if threads > 1 { 2 } else { 4 },
            batch: 64,
            deadline: Duration::from_millis(400),
            batching: true,
            inject: None,
        }
    }
}
