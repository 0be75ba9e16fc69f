//! Shows the progress of a long command on standard error: a bar if that is a terminal, a line every 5 s if it is not.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is printed if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// How often the elapsed time is redrawn on a terminal.
const TICK: Duration = Duration::from_millis(200);

pub(super) struct Progress {
    /// Draws nothing unless standard error is a terminal.
    bar: ProgressBar,
    /// If standard error is not a terminal: the time of the last line; before the first line, the start time.
    last_line: Option<Instant>,
}

impl Progress {
    /// Without a total, shows a spinner instead of a bar.
    pub fn start(total: Option<u64>) -> Self {
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "{bar:30} {percent:>3}%  {msg}  {elapsed}, {eta} left"),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}  {elapsed}"),
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
        bar.enable_steady_tick(TICK);
        Self { bar, last_line: (!std::io::stderr().is_terminal()).then(Instant::now) }
    }

    /// Shows nothing: standard output is a terminal and shows the exported data.
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), last_line: None }
    }

    /// Sets the message, and the position on the way from 0 to the total.
    pub fn update(&mut self, position: u64, message: String) {
        if let Some(last) = &mut self.last_line
            && last.elapsed() >= LINE_INTERVAL
        {
            eprintln!("{message}");
            *last = Instant::now();
        }
        self.bar.set_message(message);
        self.bar.set_position(position);
    }

    pub fn set_total(&self, total: u64) {
        self.bar.set_length(total);
    }
}

impl Drop for Progress {
    /// Clears the bar before the result or the error is printed.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
