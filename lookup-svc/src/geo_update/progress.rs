//! Progress output: a bar on a terminal, plain lines elsewhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The destination of progress output.
#[derive(Clone)]
pub struct Report {
    bars: bool,
    write: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Report {
    /// Writes to standard error, with bars if it is a terminal that supports them (TERM=dumb does not).
    pub fn to_terminal() -> Self {
        let bars = !ProgressDrawTarget::stderr().is_hidden();
        Report { bars, write: Arc::new(|line| eprintln!("{line}")) }
    }

    /// Passes plain lines to `write`.
    pub fn to_lines(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Report { bars: false, write: Arc::new(write) }
    }

    pub fn line(&self, text: &str) {
        (self.write)(text);
    }

    pub(super) fn start(&self, label: &str) -> Progress<'_> {
        let bar = self.bars.then(|| {
            let style = "{prefix} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
            let style = ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar());
            ProgressBar::new(0).with_style(style).with_prefix(label.to_owned())
        });
        Progress { report: self, label: label.to_owned(), bar, total: None, next_line: Instant::now() }
    }
}

/// The progress of one download.
pub(super) struct Progress<'r> {
    report: &'r Report,
    label: String,
    bar: Option<ProgressBar>,
    total: Option<u64>,
    /// When the next plain line is due. Lines are at least 5 s apart, to keep logs short.
    next_line: Instant,
}

impl Progress<'_> {
    pub(super) fn set_total(&mut self, total: Option<u64>) {
        self.total = total;
        if let (Some(bar), Some(total)) = (&self.bar, total) {
            bar.set_length(total);
        }
    }

    pub(super) fn set_position(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            return bar.set_position(done);
        }
        if Instant::now() >= self.next_line {
            self.next_line = Instant::now() + Duration::from_secs(5);
            let of = self.total.map(|total| format!(" of {}", HumanBytes(total))).unwrap_or_default();
            self.report.line(&format!("{}: {}{of}", self.label, HumanBytes(done)));
        }
    }

    pub(super) fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.report.line(text)),
            None => self.report.line(text),
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
