//! Shows the progress of the run: time, requests, errors and memory.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::client_stats::Observation;
use super::target::Target;
use crate::table::thousands;

const UPDATE_INTERVAL: Duration = Duration::from_secs(1);
/// If stderr is not a terminal, no progress bar is shown; a line is printed every time this many seconds have passed.
const LINE_INTERVAL: u64 = 60;

/// Counts of the requests of all clients, and the progress bar.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    requests: AtomicU64,
    errors: AtomicU64,
    wrong: AtomicU64,
}

impl Progress {
    pub fn new(duration: Duration) -> Self {
        let bar = ProgressBar::new(duration.as_secs());
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}") {
            bar.set_style(style);
        }
        let [requests, errors, wrong] = [const { AtomicU64::new(0) }; 3];
        Self { bar, started: Instant::now(), requests, errors, wrong }
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

    /// Updates the display until `deadline`.
    pub async fn show(&self, target: &Target, deadline: Instant) -> anyhow::Result<()> {
        while Instant::now() < deadline {
            tokio::time::sleep(UPDATE_INTERVAL.min(deadline.saturating_duration_since(Instant::now()))).await;
            let (seconds, line) = (self.started.elapsed().as_secs(), self.line(target.memory()?));
            self.bar.set_position(seconds);
            if !std::io::stderr().is_terminal() && seconds > 0 && seconds.is_multiple_of(LINE_INTERVAL) {
                println!("{seconds} s: {line}");
            }
            self.bar.set_message(line);
        }
        Ok(())
    }

    /// Removes the progress bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, [lookup, quota]: [f64; 2]) -> String {
        let [requests, errors, wrong] =
            [&self.requests, &self.errors, &self.wrong].map(|count| count.load(Ordering::Relaxed));
        let rate = requests as f64 / self.started.elapsed().as_secs_f64();
        format!(
            "{} requests ({}/s), {errors} errors, {wrong} wrong, lookup-svc {lookup:.0} MiB, quota-svc {quota:.0} MiB",
            thousands(requests as f64),
            thousands(rate)
        )
    }
}
