//! How far a long command has come: a bar on a terminal, a line now and then elsewhere; always on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a log gets a line.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How often the clock on a terminal ticks while nothing else happens.
const TICK: Duration = Duration::from_millis(200);

/// The progress of one command.
pub(super) enum Progress {
    /// On a terminal.
    Bar(ProgressBar),
    /// Elsewhere; since when there was no line.
    Lines(Instant),
    /// The terminal shows the output itself.
    Hidden,
}

impl Progress {
    /// Starts; of an unknown total only what is done can be shown.
    pub fn start(total: Option<u64>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Instant::now());
        }
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "{bar:30} {percent:>3}%  {msg}  {elapsed}, {eta} left"),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}  {elapsed}"),
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the templates above are well-formed"));
        bar.enable_steady_tick(TICK);
        Self::Bar(bar)
    }

    /// `position` of the total is done; `message` says what that is.
    pub fn at(&mut self, position: u64, message: String) {
        match self {
            Self::Bar(bar) => {
                bar.set_message(message);
                bar.set_position(position);
            }
            Self::Lines(last) if last.elapsed() >= LINE_EVERY => {
                eprintln!("{message}");
                *last = Instant::now();
            }
            Self::Lines(_) | Self::Hidden => {}
        }
    }

    /// The total has become known, or another one.
    pub fn total(&self, total: u64) {
        if let Self::Bar(bar) = self {
            bar.set_length(total);
        }
    }
}

impl Drop for Progress {
    /// The report takes the bar's place, also when it is an error.
    fn drop(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
