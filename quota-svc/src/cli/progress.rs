//! Shows the progress of a long command on standard error: a bar if that is a terminal, a line every 5 s if it is not.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is printed if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// How often the elapsed time is redrawn on a terminal.
const TICK: Duration = Duration::from_millis(200);

pub(super) enum Progress {
    Bar(ProgressBar),
    /// Standard error is not a terminal. Contains the time of the last line; before the first line, the start time.
    Lines(Instant),
    /// No progress is shown: standard output is a terminal and shows the exported data.
    Hidden,
}

impl Progress {
    /// Without a total, shows a spinner instead of a bar.
    pub fn start(total: Option<u64>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Instant::now());
        }
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "{bar:30} {percent:>3}%  {msg}  {elapsed}, {eta} left"),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}  {elapsed}"),
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
        bar.enable_steady_tick(TICK);
        Self::Bar(bar)
    }

    /// Sets the message, and the position on the way from 0 to the total.
    pub fn update(&mut self, position: u64, message: String) {
        match self {
            Self::Bar(bar) => {
                bar.set_message(message);
                bar.set_position(position);
            }
            Self::Lines(last) if last.elapsed() >= LINE_INTERVAL => {
                eprintln!("{message}");
                *last = Instant::now();
            }
            Self::Lines(_) | Self::Hidden => {}
        }
    }

    pub fn set_total(&self, total: u64) {
        if let Self::Bar(bar) = self {
            bar.set_length(total);
        }
    }
}

impl Drop for Progress {
    /// Clears the bar before the result or the error is printed.
    fn drop(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
