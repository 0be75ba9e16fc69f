//! How far it is and what was seen so far, while it runs.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::tally::Seen;
use super::target::Target;
use crate::table::thousands;

const EVERY: Duration = Duration::from_secs(1);
/// Where nobody watches, a line now and then is enough.
const LINE_EVERY: u64 = 60;

/// Counts of all clients together.
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    requests: AtomicU64,
    errors: AtomicU64,
    wrong: AtomicU64,
}

impl Progress {
    /// At its beginning.
    pub fn new(length: Duration) -> Self {
        let bar = ProgressBar::new(length.as_secs());
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}") {
            bar.set_style(style);
        }
        let [requests, errors, wrong] = [const { AtomicU64::new(0) }; 3];
        Self { bar, began: Instant::now(), requests, errors, wrong }
    }

    /// Notes one request.
    pub fn note(&self, seen: &Seen) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match seen {
            Seen::Right => {}
            Seen::Error(_) => drop(self.errors.fetch_add(1, Ordering::Relaxed)),
            Seen::Wrong(_) => drop(self.wrong.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Shows how it goes until then.
    pub async fn show(&self, target: &Target, until: Instant) -> anyhow::Result<()> {
        while Instant::now() < until {
            tokio::time::sleep(EVERY.min(until.saturating_duration_since(Instant::now()))).await;
            let (seconds, line) = (self.began.elapsed().as_secs(), self.line(target.memory()?));
            self.bar.set_position(seconds);
            if !std::io::stderr().is_terminal() && seconds > 0 && seconds.is_multiple_of(LINE_EVERY) {
                println!("{seconds} s: {line}");
            }
            self.bar.set_message(line);
        }
        Ok(())
    }

    /// Clears the display for the report.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, [lookup, quota]: [f64; 2]) -> String {
        let [requests, errors, wrong] =
            [&self.requests, &self.errors, &self.wrong].map(|count| count.load(Ordering::Relaxed));
        let rate = requests as f64 / self.began.elapsed().as_secs_f64();
        format!(
            "{} requests ({}/s), {errors} errors, {wrong} wrong, lookup-svc {lookup:.0} MiB, quota-svc {quota:.0} MiB",
            thousands(requests as f64),
            thousands(rate)
        )
    }
}
