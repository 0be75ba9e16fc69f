//! Shows the progress of a long command: a bar if standard error is a terminal that supports it, else a line every 5 s.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Minimum time between two lines, to keep logs short.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// How often the elapsed time is redrawn on a terminal.
const TICK: Duration = Duration::from_millis(200);

/// Writes a line of output.
pub type WriteLine = Arc<dyn Fn(&str) + Send + Sync>;

/// The progress of a command. Dropping it clears the bar.
pub struct Progress {
    /// Hidden if lines are written instead, or nothing is shown.
    bar: ProgressBar,
    write: WriteLine,
    /// When the next line is due; `None` if no progress lines are written.
    next_line: Option<Instant>,
}

impl Progress {
    /// A template for [`Self::start`].
    pub const BAR: &str = "{bar:30} {percent:>3}%  {msg}  {elapsed}, {eta} left";

    /// Shows the progress on standard error. `template` is the form of the bar, with indicatif's placeholders.
    pub fn start(template: &str) -> Self {
        let write: WriteLine = Arc::new(|line| eprintln!("{line}"));
        if ProgressDrawTarget::stderr().is_hidden() {
            return Self::lines(write);
        }
        let bar = ProgressBar::no_length();
        bar.set_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()));
        bar.enable_steady_tick(TICK);
        Self { bar, write, next_line: None }
    }

    /// Passes lines to `write`.
    pub fn lines(write: WriteLine) -> Self {
        Self { bar: ProgressBar::hidden(), write, next_line: Some(Instant::now()) }
    }

    /// Shows nothing.
    pub fn hidden() -> Self {
        Self::lines(Arc::new(|_| {}))
    }

    /// Delays the first progress line by 5 s. Does not affect the bar or [`Self::line`].
    #[must_use]
    pub fn only_if_slow(mut self) -> Self {
        self.next_line = self.next_line.map(|start| start + LINE_INTERVAL);
        self
    }

    /// Sets the position at which the command is complete.
    pub fn set_total(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Sets the position and the message of the bar, or writes the message as a line if one is due.
    pub fn update(&mut self, position: u64, message: String) {
        if self.next_line.is_some_and(|next| Instant::now() >= next) {
            self.next_line = Some(Instant::now() + LINE_INTERVAL);
            self.line(&message);
        }
        self.bar.set_message(message);
        self.bar.set_position(position);
    }

    /// Writes a line, above the bar if there is one.
    pub fn line(&self, text: &str) {
        self.bar.suspend(|| (self.write)(text));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
