//! The `geo-update` command: downloads databases, verifies them and installs them atomically by rename.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use tokio::process::Command;
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
    if args.once {
        stop_with_parent();
    }
    let report = Report::to_terminal();
    let work = async {
        match args.every.filter(|_| !args.once) {
            Some(every) => update_repeatedly(every, &report).await,
            None => update(&args, &report).await.map(|_| ()),
        }
    };
    tokio::select! {
        result = work => result,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
    }
}

/// Runs each update in a process of its own: in the chart, a container that is not running makes its pod unready, so this
/// process must survive an update that is killed.
async fn update_repeatedly(every: Duration, report: &Report) -> ! {
    loop {
        let delay = match update_in_child().await {
            Ok(()) => every,
            Err(error) => {
                report.line(&format!("update failed: {error:#}"));
                every.min(MAX_RETRY_DELAY)
            }
        };
        tokio::time::sleep(delay).await;
    }
}

/// Starts this program again, with the same arguments and `--once`.
async fn update_in_child() -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let status = Command::new(program).args(std::env::args_os().skip(1)).arg("--once").status().await?;
    anyhow::ensure!(status.success(), "{status}");
    Ok(())
}

/// Makes the kernel send SIGTERM to this process when its parent ends. An error is ignored: the update then completes.
fn stop_with_parent() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
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
