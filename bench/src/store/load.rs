//! A number of charges kept outstanding for a while, in batches as they form in front of a busy store.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::subject::Subject;
use crate::stats;

/// What quota-client carries in one call at the most.
const BATCH: usize = 64;

/// How the outstanding charges travel: one batch for each caller.
pub struct Shape {
    batches: Vec<usize>,
}

impl Shape {
    /// Each in a call of its own.
    pub fn alone(in_flight: usize) -> Self {
        Self { batches: vec![1; in_flight] }
    }

    /// One charge alone; else at least two batches, so that one is made while the other is judged.
    pub fn batched(in_flight: usize) -> Self {
        let callers = if in_flight == 1 { 1 } else { in_flight.div_ceil(BATCH).max(2) };
        let batches = (0..callers).map(|n| (in_flight + n) / callers).collect();
        Self { batches }
    }
}

/// What was done.
pub struct Done {
    /// INCRs or charges.
    pub count: usize,
    /// The latency of each call in microseconds, sorted; each charge of a batch has that of its call.
    latencies: Vec<f64>,
}

impl Done {
    /// A percentile of the latencies.
    pub fn percentile(&self, percent: f64) -> f64 {
        stats::percentile(&self.latencies, percent)
    }
}

/// Keeps the shape's charges outstanding for `time`.
pub async fn run(subject: &Subject, shape: &Shape, time: Duration) -> anyhow::Result<Done> {
    let until = Instant::now() + time;
    let calls = try_join_all(shape.batches.iter().map(|batch| caller(subject, *batch, until))).await?;
    let count = shape.batches.iter().zip(&calls).map(|(batch, calls)| batch * calls.len()).sum();
    let mut latencies = calls.concat();
    latencies.sort_by(f64::total_cmp);
    Ok(Done { count, latencies })
}

async fn caller(subject: &Subject, batch: usize, until: Instant) -> anyhow::Result<Vec<f64>> {
    let mut latencies = Vec::new();
    let mut now = Instant::now();
    while now < until {
        let started = now;
        subject.call(batch).await?;
        // The embedded store answers without waiting; its flush must have its turn.
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
    fn all_charges_travel_and_no_batch_is_too_large() {
        for (in_flight, callers) in [(1, 1), (50, 2), (500, 8)] {
            let shape = Shape::batched(in_flight);
            assert_eq!(shape.batches.len(), callers);
            assert_eq!(shape.batches.iter().sum::<usize>(), in_flight);
            assert!(shape.batches.iter().all(|batch| (1..=BATCH).contains(batch)));
        }
    }
}
