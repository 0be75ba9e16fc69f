//! `geo-update`: downloads databases, checks them, and puts them in place by rename.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

mod args;
mod download;
mod error;
mod folder;
mod install;
mod progress;
mod request;
mod source;
mod unpack;

pub use args::GeoUpdateArgs;
pub use error::UpdateError;
pub use progress::Report;

/// How soon a failed round of `--every` is tried again.
const AFTER_FAILURE: Duration = Duration::from_secs(15 * 60);

/// What became of one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A new file is in place.
    Installed(PathBuf),
    /// The provider has nothing newer.
    Unchanged(PathBuf),
}

/// Runs the command: once, or with `--every` until SIGTERM or SIGINT. A signal in mid-download
/// leaves nothing behind. The process needs its rustls provider installed before.
pub async fn run(args: GeoUpdateArgs) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let report = Report::to_terminal();
    tokio::select! {
        result = rounds(&args, &report) => result,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
    }
}

async fn rounds(args: &GeoUpdateArgs, report: &Report) -> anyhow::Result<()> {
    loop {
        let result = update(args, report).await;
        let Some(every) = args.every else {
            return result.map(|_| ());
        };
        let pause = match result {
            Ok(_) => every,
            Err(error) => {
                report.line(&format!("failed: {error:#}"));
                every.min(AFTER_FAILURE)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// One round: every database of the source, each on its own; the first failure is returned after
/// the others had their turn.
#[doc(hidden)]
pub async fn update(args: &GeoUpdateArgs, report: &Report) -> anyhow::Result<Vec<Outcome>> {
    let items = source::plan(args, SystemTime::now())?;
    let folder = folder::Folder::open(&args.to).context("the target folder cannot be used")?;
    let client = request::client(args)?;
    let mut outcomes = Vec::new();
    let mut failure = None;
    for item in items {
        let work = install::refresh(&client, args, &folder, &item, report);
        let result = match tokio::time::timeout(args.timeout, work).await {
            Ok(result) => result,
            Err(_) => Err(UpdateError::Deadline(args.timeout)),
        };
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => {
                report.line(&format!("{}: {error}", item.label));
                failure = failure.or(Some(anyhow::Error::new(error).context(item.label)));
            }
        }
    }
    failure.map_or(Ok(outcomes), Err)
}
