//! Output of the command: the progress of each download, and lines about the rest.

use std::sync::Arc;

use base::progress::{Progress, WriteLine};
use indicatif::HumanBytes;

/// The destination of the output. `None` is standard error.
#[derive(Clone)]
pub struct Report(Option<WriteLine>);

impl Report {
    /// Writes to standard error, with a bar if that is a terminal.
    pub fn to_terminal() -> Self {
        Self(None)
    }

    /// Passes plain lines to `write`.
    pub fn to_lines(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(write)))
    }

    pub fn line(&self, text: &str) {
        match &self.0 {
            Some(write) => write(text),
            None => eprintln!("{text}"),
        }
    }

    pub(super) fn start(&self, label: &str) -> DownloadProgress {
        let progress = match &self.0 {
            Some(write) => Progress::lines(write.clone()),
            None => Progress::start(&format!(
                "{label} [{{bar:30}}] {{bytes}}/{{total_bytes}} {{binary_bytes_per_sec}} {{eta}}"
            )),
        };
        DownloadProgress { progress, label: label.to_owned(), total: None }
    }
}

/// The progress of one download.
pub(super) struct DownloadProgress {
    progress: Progress,
    label: String,
    total: Option<u64>,
}

impl DownloadProgress {
    pub(super) fn set_total(&mut self, total: Option<u64>) {
        self.total = total;
        if let Some(total) = total {
            self.progress.set_total(total);
        }
    }

    pub(super) fn set_position(&mut self, done: u64) {
        let of = self.total.map(|total| format!(" of {}", HumanBytes(total))).unwrap_or_default();
        self.progress.update(done, format!("{}: {}{of}", self.label, HumanBytes(done)));
    }

    pub(super) fn line(&self, text: &str) {
        self.progress.line(text);
    }
}
