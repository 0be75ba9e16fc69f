//! Splits JSON lines into batches. Every line is validated before its batch is sent.

use std::io::{BufRead, Read};
use std::ops::RangeInclusive;

use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use quota_api::{ExportedAccount, ImportRequest};

use crate::domain::transfer::ImportAccount;

const MAX_ACCOUNTS: usize = 200;

/// A batch ends once it has this many bytes of input. quota-svc accepts requests of up to 4 MiB.
const BATCH_BYTES: u64 = 1 << 20;

/// Maximum length of a line in bytes. An account with 10 keys and a month of usage is under 32 KiB. The limit keeps
/// input without line breaks from filling the memory.
const MAX_LINE: u64 = 1 << 20;

/// Accounts sent in one call.
#[derive(Debug)]
pub(super) struct Batch {
    /// Line numbers, in the input, of this batch's first and last account.
    pub lines: RangeInclusive<u64>,
    /// Bytes read for this batch, including empty lines.
    pub bytes: u64,
    pub request: ImportRequest,
}

/// Splits `input` into batches and passes each to `sink`. Stops when `sink` returns false, or after the first invalid
/// line, whose error is passed to `sink`.
pub(super) fn batches(mut input: impl BufRead, mut sink: impl FnMut(anyhow::Result<Batch>) -> bool) {
    let mut builder = BatchBuilder::default();
    let now = Timestamp::now().as_millisecond();
    loop {
        let next = builder.read_line(&mut input, now);
        let ends = !matches!(next, Ok(true));
        // Lines before an invalid one are still sent, so that its line number shows where the import stopped.
        if (ends || builder.is_full()) && !builder.accounts.is_empty() && !sink(Ok(builder.take_batch())) {
            return;
        }
        if let Err(error) = next {
            sink(Err(error));
        }
        if ends {
            return;
        }
    }
}

#[derive(Default)]
struct BatchBuilder {
    accounts: Vec<ExportedAccount>,
    bytes: u64,
    /// Line numbers of the batch's first and last account.
    first: u64,
    last: u64,
    /// Number of lines read since the start of the input.
    line: u64,
    buffer: Vec<u8>,
}

impl BatchBuilder {
    /// Returns false at the end of the input.
    fn read_line(&mut self, input: &mut impl BufRead, now: i64) -> anyhow::Result<bool> {
        self.buffer.clear();
        let read = input.take(MAX_LINE + 1).read_until(b'\n', &mut self.buffer);
        let read = read.with_context(|| format!("can't read the input after line {}", self.line))? as u64;
        if read == 0 {
            return Ok(false);
        }
        self.line += 1;
        if read > MAX_LINE {
            bail!("line {} is longer than {MAX_LINE} bytes, the maximum for one account", self.line);
        }
        if !self.buffer.trim_ascii().is_empty() {
            let account = parse(&self.buffer, self.line, now)?;
            if self.accounts.is_empty() {
                self.first = self.line;
            }
            self.last = self.line;
            self.accounts.push(account);
        }
        self.bytes += read;
        Ok(true)
    }

    /// A batch that is not full can take one more line: with at most 1 MiB each, both stay far below 4 MiB.
    fn is_full(&self) -> bool {
        self.accounts.len() >= MAX_ACCOUNTS || self.bytes >= BATCH_BYTES
    }

    fn take_batch(&mut self) -> Batch {
        let accounts = std::mem::take(&mut self.accounts);
        let bytes = std::mem::take(&mut self.bytes);
        Batch { lines: self.first..=self.last, bytes, request: ImportRequest { accounts } }
    }
}

/// The errors don't repeat the line, because it contains hashes of keys and passwords.
fn parse(text: &[u8], line: u64, now: i64) -> anyhow::Result<ExportedAccount> {
    let account = serde_json::from_slice(text).map_err(|error| {
        let reason = match error.is_data() {
            true => "a field is missing, unknown or of the wrong type",
            false => "not valid JSON; each line must be one JSON object",
        };
        anyhow!("line {line}, column {}: {reason}", error.column())
    })?;
    // quota-svc validates again; validating here lets the error name the line.
    ImportAccount::from_export(&account, now).map_err(|reason| anyhow!("line {line}: {reason}"))?;
    Ok(account)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = r#"{"login":"ada","created_at":1,"keys":[]}"#;

    fn read(input: &str) -> (Vec<(RangeInclusive<u64>, usize)>, Option<String>) {
        let (mut sizes, mut error) = (Vec::new(), None);
        batches(input.as_bytes(), |batch| {
            match batch {
                Ok(batch) => sizes.push((batch.lines, batch.request.accounts.len())),
                Err(line_error) => error = Some(line_error.to_string()),
            }
            true
        });
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
        assert!(error.unwrap().starts_with("line 6, column"));
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

    #[test]
    fn batches_stop_when_the_sink_returns_false() {
        let mut calls = 0;
        batches(format!("{VALID}\n").repeat(1000).as_bytes(), |_| {
            calls += 1;
            calls < 2
        });
        assert_eq!(calls, 2);
    }
}
