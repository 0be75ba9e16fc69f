//! The `geo-update` command: downloads databases, verifies them and installs them atomically by rename.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

mod args;
mod download;
mod error;
mod install;
mod progress;
mod request;
mod source;
mod target_dir;
mod unpack;

pub use args::GeoUpdateArgs;
pub use error::UpdateError;
pub use progress::Report;

/// Maximum delay before `--every` retries a failed update.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(15 * 60);

/// The result of updating one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateResult {
    /// A new file was installed.
    Installed(PathBuf),
    /// The provider has no newer file.
    Unchanged(PathBuf),
}

/// Runs the command: once, or with `--every` until SIGTERM or SIGINT. A signal during a download leaves no temporary
/// files. The process must already have installed a rustls crypto provider.
pub async fn run(args: GeoUpdateArgs) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let report = Report::to_terminal();
    tokio::select! {
        result = update_repeatedly(&args, &report) => result,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
    }
}

async fn update_repeatedly(args: &GeoUpdateArgs, report: &Report) -> anyhow::Result<()> {
    loop {
        let result = update(args, report).await;
        let Some(every) = args.every else {
            return result.map(|_| ());
        };
        let delay = match result {
            Ok(_) => every,
            Err(error) => {
                report.line(&format!("update failed: {error:#}"));
                every.min(MAX_RETRY_DELAY)
            }
        };
        tokio::time::sleep(delay).await;
    }
}

/// Updates every database of the source once. If one fails, the others are still updated. Returns the first error, and
/// how many databases failed if there are several.
#[doc(hidden)]
pub async fn update(args: &GeoUpdateArgs, report: &Report) -> anyhow::Result<Vec<UpdateResult>> {
    let items = source::plan(args, SystemTime::now())?;
    let to = args.to.as_deref().context("--to is required")?;
    let target_dir = target_dir::TargetDir::open(to).context("can't use the target directory")?;
    let client = request::client(args)?;
    let mut results = Vec::new();
    let mut failures = Vec::new();
    let total = items.len();
    for item in items {
        let work = install::refresh(&client, args, &target_dir, &item, report);
        let result = tokio::time::timeout(args.timeout, work).await;
        match result.unwrap_or(Err(UpdateError::TimedOut(args.timeout))) {
            Ok(result) => results.push(result),
            Err(error) => {
                let error = anyhow::Error::new(error).context(item.label);
                report.line(&format!("{error:#}"));
                failures.push(error);
            }
        }
    }
    let failed = failures.len();
    match failures.into_iter().next() {
        None => Ok(results),
        Some(error) if failed == 1 => Err(error),
        Some(error) => Err(error.context(format!("{failed} of {total} databases failed; first error"))),
    }
}
