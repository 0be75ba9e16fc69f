//! Shows the progress of the run: time, requests, errors and memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::progress::Progress as ProgressBar;

use super::client_stats::Observation;
use super::target::Target;
use crate::table::thousands;

const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// Counts of the requests of all clients.
pub struct Progress {
    started: Instant,
    requests: AtomicU64,
    errors: AtomicU64,
    wrong: AtomicU64,
}

impl Progress {
    pub fn new() -> Self {
        let [requests, errors, wrong] = [const { AtomicU64::new(0) }; 3];
        Self { started: Instant::now(), requests, errors, wrong }
    }

    /// Counts one request.
    pub fn record(&self, observation: &Observation) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match observation {
            Observation::Expected => {}
            Observation::Error(_) => drop(self.errors.fetch_add(1, Ordering::Relaxed)),
            Observation::Wrong(_) => drop(self.wrong.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Shows a progress bar until `deadline`.
    pub async fn show(&self, target: &Target, deadline: Instant) -> anyhow::Result<()> {
        let mut bar = ProgressBar::start("{bar:30} {pos}/{len} s  {msg}");
        bar.set_total(deadline.saturating_duration_since(self.started).as_secs());
        while Instant::now() < deadline {
            tokio::time::sleep(UPDATE_INTERVAL.min(deadline.saturating_duration_since(Instant::now()))).await;
            bar.update(self.started.elapsed().as_secs(), self.line(target.names, target.memory()?));
        }
        Ok(())
    }

    fn line(&self, names: [&str; 2], memory: [f64; 2]) -> String {
        let [requests, errors, wrong] =
            [&self.requests, &self.errors, &self.wrong].map(|count| count.load(Ordering::Relaxed));
        let rate = requests as f64 / self.started.elapsed().as_secs_f64();
        format!(
            "{} requests ({}/s), {errors} errors, {wrong} wrong, {} {:.0} MiB, {} {:.0} MiB",
            thousands(requests as f64),
            thousands(rate),
            names[0],
            memory[0],
            names[1],
            memory[1]
        )
    }
}
