//! The `import` command: sends JSON lines in batches. Memory use does not grow with the input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::iter;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use base::progress::Progress;
use jiff::Timestamp;
use quota_api::{ExportedAccount, ImportReport, ImportRequest, KEYS_PER_ACCOUNT};
use tokio::task::{JoinHandle, spawn_blocking};

use super::context::CliContext;
use super::output::{accounts_with_keys, counted, table, with_commas};
use crate::domain::transfer::ImportAccount;

/// Maximum number of accounts per batch: that of quota-svc.
const MAX_ACCOUNTS: usize = 200;

/// A batch ends once it has this many bytes of input. It can take one more line, and both together stay far below the 4 MiB
/// that quota-svc accepts.
const BATCH_BYTES: u64 = 1 << 20;

/// Maximum length of a line in bytes. An account with 10 keys and a month of usage is under 32 KiB. The limit keeps
/// input without line breaks from filling the memory.
const MAX_LINE: u64 = 1 << 20;

#[derive(clap::Args, Debug)]
pub struct ImportArgs {
    /// JSON lines written by `export`; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    from: PathBuf,
}

impl ImportArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<()> {
        let (input, size) = open(&self.from)?;
        // A bar if the size of the input is known, else a spinner.
        let template = if size > 0 { Progress::BAR } else { "{spinner} {msg}  {elapsed}" };
        let mut progress = Progress::start(template).only_if_slow();
        progress.set_total(size);
        let (mut report, mut bytes) = (ImportReport::default(), 0);
        let mut reading = read_next(batches(BufReader::new(input)));
        let result = loop {
            let (batch, batches) = reading.await?;
            let Some(batch) = batch else { break Ok(()) };
            reading = read_next(batches);
            let (sent, batch_bytes) = match send(batch, context).await {
                Ok(response) => response,
                Err(error) => break Err(error),
            };
            report += sent;
            bytes += batch_bytes;
            let accounts = report.accounts_created + report.accounts_kept;
            let keys = report.keys_created + report.keys_kept;
            progress.update(bytes, accounts_with_keys(accounts, keys));
        };
        drop(progress);
        result.with_context(|| {
            format!(
                "import stopped after adding {} and {}. Running it again is safe: existing entries are not changed",
                counted(report.accounts_created, "account"),
                counted(report.keys_created, "key"),
            )
        })?;
        context.output.show(&report, || summary(&report))
    }
}

/// Opens the input. Also returns its size; 0 if that is not known, as for a pipe.
fn open(path: &Path) -> anyhow::Result<(Box<dyn Read + Send>, u64)> {
    if path.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            eprintln!("Reading JSON lines from the terminal. Press Ctrl-D to finish.");
        }
        return Ok((Box::new(io::stdin()), 0));
    }
    let file = File::open(path).with_context(|| format!("can't read {}", path.display()))?;
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    Ok((Box::new(file), size))
}

/// Sends a batch. Returns the report and the length of the batch in the input.
async fn send(batch: anyhow::Result<Batch>, context: &CliContext) -> anyhow::Result<(ImportReport, u64)> {
    let Batch { accounts, first_line, last_line, bytes } = batch?;
    let report = context.call("", context.client.import(&ImportRequest { accounts })).await;
    let report = report.with_context(|| format!("lines {first_line} to {last_line} were not imported"))?;
    Ok((report, bytes))
}

fn summary(report: &ImportReport) -> String {
    let row = |noun: &str, numbers: [u64; 3]| {
        let [added, existing, skipped] = numbers.map(|number| format!("{:>8}", with_commas(number)));
        [noun.to_owned(), added, existing, skipped]
    };
    let rows = [
        row("accounts", [report.accounts_created, report.accounts_kept, 0]),
        row("keys", [report.keys_created, report.keys_kept, report.keys_refused]),
    ];
    let mut text = table(&["", "added", "existing", "skipped"], rows);
    if report.keys_refused > 0 {
        text += &format!(
            "\n\n{} skipped: an account can have at most {KEYS_PER_ACCOUNT} keys, and a key that another account holds \
             stays there.",
            counted(report.keys_refused, "key")
        );
    }
    text
}

/// Reads the next batch on another thread while one is sent. A read from a pipe may block long after the import has failed.
fn read_next<I>(mut batches: I) -> JoinHandle<(Option<I::Item>, I)>
where
    I: Iterator<Item: Send> + Send + 'static,
{
    spawn_blocking(move || (batches.next(), batches))
}

/// Splits JSON lines into batches. Every line is validated before its batch is sent. An invalid one ends the batches, and its
/// error is the last item; the lines before it are still sent, so that its number shows where the import stopped.
fn batches(mut input: impl BufRead) -> impl Iterator<Item = anyhow::Result<Batch>> {
    let (mut line, mut ended, mut error) = (0, false, None);
    iter::from_fn(move || {
        let mut batch = Batch::default();
        while !ended && !batch.is_full() {
            match batch.read_line(&mut input, &mut line) {
                Ok(is_end) => ended = is_end,
                Err(invalid) => (ended, error) = (true, Some(invalid)),
            }
        }
        if batch.accounts.is_empty() { error.take().map(Err) } else { Some(Ok(batch)) }
    })
}

/// Accounts sent in one call.
#[derive(Debug, Default)]
struct Batch {
    accounts: Vec<ExportedAccount>,
    /// Line numbers, in the input, of the first and the last account.
    first_line: u64,
    last_line: u64,
    /// Bytes read for this batch, including empty lines.
    bytes: u64,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.accounts.len() >= MAX_ACCOUNTS || (self.bytes >= BATCH_BYTES && !self.accounts.is_empty())
    }

    /// Adds the next line. `line` is the number of lines read. Returns true at the end of the input.
    fn read_line(&mut self, input: &mut impl BufRead, line: &mut u64) -> anyhow::Result<bool> {
        let mut text = Vec::new();
        let read = input.take(MAX_LINE + 1).read_until(b'\n', &mut text);
        let read = read.with_context(|| format!("can't read the input after line {line}"))? as u64;
        if read == 0 {
            return Ok(true);
        }
        *line += 1;
        ensure!(read <= MAX_LINE, "line {line} is longer than {MAX_LINE} bytes, the maximum for one account");
        if !text.trim_ascii().is_empty() {
            self.accounts.push(parse(&text).with_context(|| format!("line {line}"))?);
            self.last_line = *line;
            if self.accounts.len() == 1 {
                self.first_line = *line;
            }
        }
        self.bytes += read;
        Ok(false)
    }
}

/// The errors don't repeat the line, because it contains hashes of keys and passwords.
fn parse(line: &[u8]) -> anyhow::Result<ExportedAccount> {
    let account = serde_json::from_slice(line).map_err(|error| {
        let reason = match error.is_data() {
            true => "a field is missing, unknown or of the wrong type",
            false => "not valid JSON; each line must be one JSON object",
        };
        anyhow!("column {}: {reason}", error.column())
    })?;
    // quota-svc validates again; validating here lets the error name the line.
    ImportAccount::from_export(&account, Timestamp::now().as_millisecond())?;
    Ok(account)
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    const VALID: &str = r#"{"login":"ada","created_at":1,"keys":[]}"#;

    /// The line numbers and the number of accounts of each batch, and the error.
    fn read(input: &str) -> (Vec<(RangeInclusive<u64>, usize)>, Option<String>) {
        let (mut sizes, mut error) = (Vec::new(), None);
        for batch in batches(input.as_bytes()) {
            assert!(error.is_none(), "nothing follows the error");
            match batch {
                Ok(batch) => sizes.push((batch.first_line..=batch.last_line, batch.accounts.len())),
                Err(line_error) => error = Some(format!("{line_error:#}")),
            }
        }
        (sizes, error)
    }

    #[test]
    fn batch_has_at_most_200_accounts() {
        let (sizes, error) = read(&format!("{VALID}\n").repeat(401));
        assert_eq!(sizes, [(1..=200, 200), (201..=400, 200), (401..=401, 1)]);
        assert_eq!(error, None);
        assert_eq!(read(&format!("{VALID}\n").repeat(200)).0, [(1..=200, 200)]);
    }

    #[test]
    fn batch_ends_after_one_mebibyte() {
        let padded = format!("{VALID}{}\n", " ".repeat(300_000));
        assert_eq!(read(&padded.repeat(5)).0, [(1..=4, 4), (5..=5, 1)]);
    }

    #[test]
    fn empty_lines_are_skipped_but_numbered() {
        let (sizes, error) = read(&format!("\n{VALID}\r\n \n{VALID}\n\nnonsense"));
        assert_eq!(sizes, [(2..=4, 2)]);
        assert!(error.unwrap().starts_with("line 6: column"));
        assert_eq!(read("\n\n"), (Vec::new(), None));
    }

    #[test]
    fn invalid_line_ends_the_batches() {
        for (invalid, message) in [
            ("{", "not valid JSON"),
            ("{}", "missing"),
            (r#"{"login":"ada","created_at":1,"keys":[],"hush":1}"#, "unknown"),
            (r#"{"login":"a b","created_at":1,"keys":[]}"#, "a login"),
            (&" ".repeat(2 << 20), "longer than"),
        ] {
            let (sizes, error) = read(&format!("{VALID}\n{invalid}\n{VALID}\n"));
            let error = error.unwrap();
            assert_eq!(sizes.len(), 1, "{error}");
            assert_eq!(sizes[0].1, 1, "{error}");
            assert!(error.starts_with("line 2") && error.contains(message), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
