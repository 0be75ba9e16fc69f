//! The `import` command: sends JSON lines in batches, several batches at the same time. Memory use does not grow with
//! the input.

mod lines;

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use base::progress::Progress;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lines::Batch;
use quota_api::{ImportReport, KEYS_PER_ACCOUNT};
use quota_client::{ClientError, QuotaClient};
use tokio::sync::mpsc;

use super::context::{CliContext, ErrorContext};
use super::table::{cell, counted, number, table};

/// Batches sent at the same time; enough to keep quota-svc busy while the next batch is read.
const MAX_IN_FLIGHT: usize = 4;

/// Maximum attempts per batch. A single timeout of a busy store must not end an import of a million keys.
const MAX_ATTEMPTS: u32 = 3;
const RETRY_DELAY: Duration = Duration::from_secs(1);

#[derive(clap::Args, Debug)]
pub struct ImportArgs {
    /// JSON lines written by `export`; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    from: PathBuf,
}

#[derive(Default)]
struct Totals {
    report: ImportReport,
    bytes: u64,
}

pub(super) async fn run(args: &ImportArgs, context: &CliContext) -> anyhow::Result<()> {
    let (input, size) = open(&args.from)?;
    let mut totals = Totals::default();
    let (batches, reader) = read_batches(input);
    let result = send_all(batches, &mut totals, progress(size), context).await;
    // Joined only if all batches were received: after an error, the thread may be blocked in a read.
    let result = result
        .and_then(|()| reader.join().map_err(|_| anyhow!("the thread that reads the input has panicked")));
    let report = totals.report;
    result.with_context(|| {
        format!(
            "import stopped after adding {} and {}. Running it again is safe: existing entries are not changed",
            counted(report.accounts_created, "account"),
            counted(report.keys_created, "key"),
        )
    })?;
    context.show(&report, || summary(&report))
}

/// A bar if the size of the input is known, else a spinner.
fn progress(size: Option<u64>) -> Progress {
    let template = if size.is_some() { Progress::BAR } else { "{spinner} {msg}  {elapsed}" };
    let progress = Progress::start(template).only_if_slow();
    if let Some(size) = size {
        progress.set_total(size);
    }
    progress
}

/// Opens the input. Also returns its size, which is known only for a regular file.
fn open(path: &Path) -> anyhow::Result<(Box<dyn Read + Send>, Option<u64>)> {
    if path.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            eprintln!("Reading JSON lines from the terminal. Press Ctrl-D to finish.");
        }
        return Ok((Box::new(io::stdin()), None));
    }
    let file = File::open(path).with_context(|| format!("can't read {}", path.display()))?;
    let size = file.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len());
    Ok((Box::new(file), size))
}

/// Reads on a detached thread: a read from a pipe may block long after the import has failed.
fn read_batches(input: Box<dyn Read + Send>) -> (mpsc::Receiver<anyhow::Result<Batch>>, JoinHandle<()>) {
    let (send, batches) = mpsc::channel(1);
    let reader = std::thread::spawn(move || {
        lines::batches(BufReader::with_capacity(1 << 16, input), |batch| send.blocking_send(batch).is_ok());
    });
    (batches, reader)
}

/// Stops sending after the first error, but waits for the batches in flight so that the totals are correct.
async fn send_all(
    mut batches: mpsc::Receiver<anyhow::Result<Batch>>,
    totals: &mut Totals,
    mut progress: Progress,
    context: &CliContext,
) -> anyhow::Result<()> {
    let (mut in_flight, mut reading, mut result) = (FuturesUnordered::new(), true, Ok(()));
    loop {
        tokio::select! {
            batch = batches.recv(), if reading && in_flight.len() < MAX_IN_FLIGHT => match batch {
                Some(Ok(batch)) => in_flight.push(send(batch, &context.client)),
                Some(Err(error)) => (reading, result) = (false, result.and(Err(error))),
                None => reading = false,
            },
            Some((batch, response)) = in_flight.next() => match response {
                Ok(report) => {
                    totals.report += report;
                    totals.bytes += batch.bytes;
                    progress.update(totals.bytes, totals.message());
                }
                Err(error) => (reading, result) = (false, result.and(Err(batch_error(&batch, error, context)))),
            },
            else => return result,
        }
    }
}

/// Sends a batch and retries transient errors. If a failed attempt has added entries, the retry reports them as
/// existing.
async fn send(batch: Batch, client: &QuotaClient) -> (Batch, Result<ImportReport, ClientError>) {
    let mut attempt = 1;
    loop {
        let response = client.import(&batch.request).await;
        let is_transient =
            |error: &ClientError| matches!(error, ClientError::TimedOut) || error.status() == Some(503);
        if attempt == MAX_ATTEMPTS || !response.as_ref().is_err_and(is_transient) {
            return (batch, response);
        }
        attempt += 1;
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

fn batch_error(batch: &Batch, error: ClientError, context: &CliContext) -> anyhow::Error {
    let (first, last) = (batch.lines.start(), batch.lines.end());
    context.explain(ErrorContext::Other)(error).context(format!("lines {first} to {last} were not imported"))
}

impl Totals {
    fn message(&self) -> String {
        let ImportReport { accounts_created, accounts_kept, keys_created, keys_kept, .. } = self.report;
        let (accounts, keys) = (accounts_created + accounts_kept, keys_created + keys_kept);
        format!("{} with {}", counted(accounts, "account"), counted(keys, "key"))
    }
}

fn summary(report: &ImportReport) -> String {
    let mut rows = table(&["", "added", "existing", "skipped"]);
    let accounts = [report.accounts_created, report.accounts_kept, 0].map(number);
    let keys = [report.keys_created, report.keys_kept, report.keys_refused].map(number);
    rows.add_row([cell("accounts")].into_iter().chain(accounts));
    rows.add_row([cell("keys")].into_iter().chain(keys));
    let note = match report.keys_refused {
        0 => String::new(),
        skipped => {
            let skipped = counted(skipped, "key");
            format!(
                "\n\n{skipped} skipped: an account can have at most {KEYS_PER_ACCOUNT} keys, and a key that another \
                 account holds stays there."
            )
        }
    };
    rows.trim_fmt() + &note
}
