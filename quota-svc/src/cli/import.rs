//! Import: JSON lines in batches, several under way at once; memory stays bounded however long the input is.

mod lines;

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lines::{Batch, LineError};
use quota_client::wire::{ImportReport, KEYS_PER_ACCOUNT};
use quota_client::{ClientError, QuotaClient};
use tokio::sync::mpsc;

use super::operator::{About, Operator};
use super::progress::Progress;
use super::table::{cell, count, counted, number, table, text};

/// Enough to keep quota-svc busy while the next batch is read.
const UNDER_WAY: usize = 4;

/// A busy store may miss its deadline once; an import of a million keys should not end with that.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// What to read.
#[derive(clap::Args, Debug)]
pub struct ImportArgs {
    /// File of JSON lines that `export` wrote; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    from: PathBuf,
}

/// What has been imported so far.
#[derive(Default)]
struct Sum {
    report: ImportReport,
    bytes: u64,
}

pub(super) async fn run(args: &ImportArgs, operator: &Operator) -> anyhow::Result<()> {
    let (input, size) = open(&args.from)?;
    let mut sum = Sum::default();
    let done = send_all(read_batches(input), &mut sum, Progress::start(size), operator).await;
    let report = sum.report;
    done.with_context(|| {
        format!(
            "the import stopped. So far it added {} and {}, which stay. Doing it again is safe: what is there already \
             stays as it is",
            counted(report.accounts_created, "account"),
            counted(report.keys_created, "key"),
        )
    })?;
    operator.show(&report, || summary(&report))
}

/// The input, with its size where it has one.
fn open(path: &Path) -> anyhow::Result<(Box<dyn Read + Send>, Option<u64>)> {
    if path.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            eprintln!("Reading JSON lines from the terminal; Ctrl-D ends.");
        }
        return Ok((Box::new(io::stdin()), None));
    }
    let file = File::open(path).with_context(|| format!("{} can't be read", path.display()))?;
    let size = file.metadata().ok().filter(|found| found.is_file()).map(|found| found.len());
    Ok((Box::new(file), size))
}

/// Reads on a thread of its own that nobody waits for: a pipe may stay silent long after the import has failed.
fn read_batches(input: Box<dyn Read + Send>) -> mpsc::Receiver<Result<Batch, LineError>> {
    let (send, batches) = mpsc::channel(1);
    std::thread::spawn(move || {
        lines::batches(BufReader::with_capacity(1 << 16, input), |batch| send.blocking_send(batch).is_ok());
    });
    batches
}

/// After the first error nothing more is sent; what is under way is waited for, so that the sum is right.
async fn send_all(
    mut batches: mpsc::Receiver<Result<Batch, LineError>>,
    sum: &mut Sum,
    mut progress: Progress,
    operator: &Operator,
) -> anyhow::Result<()> {
    let (mut under_way, mut reading, mut outcome) = (FuturesUnordered::new(), true, Ok(()));
    loop {
        tokio::select! {
            batch = batches.recv(), if reading && under_way.len() < UNDER_WAY => match batch {
                Some(Ok(batch)) => under_way.push(send(batch, &operator.client)),
                Some(Err(error)) => (reading, outcome) = (false, outcome.and(Err(error.into()))),
                None => reading = false,
            },
            Some((batch, answer)) = under_way.next() => match answer {
                Ok(report) => {
                    sum.add(&report, batch.bytes);
                    progress.at(sum.bytes, sum.message());
                }
                Err(error) => (reading, outcome) = (false, outcome.and(Err(failed(&batch, error, operator)))),
            },
            else => return outcome,
        }
    }
}

/// An import may be repeated; what the first attempt has added then counts as there already.
async fn send(batch: Batch, client: &QuotaClient) -> (Batch, Result<ImportReport, ClientError>) {
    let mut attempt = 1;
    loop {
        let answer = client.import(&batch.request).await;
        let again = answer.as_ref().is_err_and(may_pass) && attempt < ATTEMPTS;
        if !again {
            return (batch, answer);
        }
        attempt += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

fn may_pass(error: &ClientError) -> bool {
    matches!(error, ClientError::TimedOut) || error.status() == Some(503)
}

fn failed(batch: &Batch, error: ClientError, operator: &Operator) -> anyhow::Error {
    let (first, last) = (batch.lines.start(), batch.lines.end());
    let error = operator.explain(error, About::Everything);
    error.context(format!("lines {first} to {last} were not imported"))
}

impl Sum {
    fn add(&mut self, report: &ImportReport, bytes: u64) {
        self.bytes += bytes;
        self.report.accounts_created += report.accounts_created;
        self.report.accounts_kept += report.accounts_kept;
        self.report.keys_created += report.keys_created;
        self.report.keys_kept += report.keys_kept;
        self.report.keys_refused += report.keys_refused;
    }

    fn message(&self) -> String {
        let ImportReport { accounts_created, accounts_kept, keys_created, keys_kept, .. } = self.report;
        let (accounts, keys) = (accounts_created + accounts_kept, keys_created + keys_kept);
        format!("{} with {}", counted(accounts, "account"), counted(keys, "key"))
    }
}

fn summary(report: &ImportReport) -> String {
    let mut rows = table(&["", "added", "there already", "left out"]);
    let accounts = [report.accounts_created, report.accounts_kept, 0].map(number);
    let keys = [report.keys_created, report.keys_kept, report.keys_refused].map(number);
    rows.add_row([cell("accounts")].into_iter().chain(accounts));
    rows.add_row([cell("keys")].into_iter().chain(keys));
    let refused = match report.keys_refused {
        0 => String::new(),
        refused => {
            format!("\n\n{} left out: an account holds at most {KEYS_PER_ACCOUNT} keys.", count(refused))
        }
    };
    text(&rows) + &refused
}
