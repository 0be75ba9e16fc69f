//! Keeps a number of charges in flight for a given time, in batches of the sizes that quota-client sends under load.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::report;
use super::variant::Variant;
use crate::stats;

/// quota-client's default maximum of charges per call.
const MAX_BATCH: usize = 64;

/// How the charges in flight are split into batches. One entry per concurrent caller: the size of the batches that
/// this caller sends one after another.
pub struct BatchPlan {
    batch_sizes: Vec<usize>,
}

impl BatchPlan {
    /// One charge per call for the plain INCR baseline, batches for all other variants.
    pub fn new(variant: &Variant<'_>, in_flight: usize) -> Self {
        if variant.name() == report::INCR { Self::unbatched(in_flight) } else { Self::batched(in_flight) }
    }

    /// Each charge in its own call.
    fn unbatched(in_flight: usize) -> Self {
        Self { batch_sizes: vec![1; in_flight] }
    }

    /// One charge is sent alone. More are split into at least two batches, so that one is prepared while the store
    /// handles the other.
    fn batched(in_flight: usize) -> Self {
        let callers = if in_flight == 1 { 1 } else { in_flight.div_ceil(MAX_BATCH).max(2) };
        let batch_sizes = (0..callers).map(|n| (in_flight + n) / callers).collect();
        Self { batch_sizes }
    }
}

pub struct LoadResult {
    /// Completed charges or INCRs.
    pub count: usize,
    /// Latency of each call in microseconds, sorted. All charges of a batch have the latency of their call.
    latencies: Vec<f64>,
}

impl LoadResult {
    /// A percentile of the latencies, in microseconds.
    pub fn percentile(&self, percent: f64) -> f64 {
        stats::percentile(&self.latencies, percent)
    }
}

/// Keeps the charges of `plan` in flight for `duration`.
pub async fn run(variant: &Variant<'_>, plan: &BatchPlan, duration: Duration) -> anyhow::Result<LoadResult> {
    let deadline = Instant::now() + duration;
    let callers = plan.batch_sizes.iter().map(|&size| call_until(deadline, variant, size));
    let latencies = try_join_all(callers).await?;
    let count = plan.batch_sizes.iter().zip(&latencies).map(|(size, calls)| size * calls.len()).sum();
    let mut latencies = latencies.concat();
    latencies.sort_by(f64::total_cmp);
    Ok(LoadResult { count, latencies })
}

/// Makes one call after another until `deadline`. Returns their latencies in microseconds.
async fn call_until(deadline: Instant, variant: &Variant<'_>, batch_size: usize) -> anyhow::Result<Vec<f64>> {
    let mut latencies = Vec::new();
    let mut now = Instant::now();
    while now < deadline {
        let started = now;
        variant.call(batch_size).await?;
        // With the embedded store, a charge completes without ever suspending this task. Without this yield, the store's flush task
        // would not run.
        tokio::task::yield_now().await;
        now = Instant::now();
        latencies.push((now - started).as_secs_f64() * 1e6);
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batched_plan_covers_all_charges_within_max_batch() {
        for (in_flight, callers) in [(1, 1), (50, 2), (500, 8)] {
            let plan = BatchPlan::batched(in_flight);
            assert_eq!(plan.batch_sizes.len(), callers);
            assert_eq!(plan.batch_sizes.iter().sum::<usize>(), in_flight);
            assert!(plan.batch_sizes.iter().all(|size| (1..=MAX_BATCH).contains(size)));
        }
    }
}
