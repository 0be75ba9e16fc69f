//! From JSON lines to batches, each line checked before anything of its batch is sent.

use std::io::{self, BufRead, Read};
use std::ops::RangeInclusive;

use jiff::Timestamp;
use quota_client::wire::{ExportedAccount, ImportRequest};

use crate::present;

/// The most accounts that quota-svc takes at once.
const MAX_ACCOUNTS: usize = 200;

/// About how large a batch becomes; quota-svc takes 4 MiB.
const BATCH_BYTES: u64 = 1 << 20;

/// An account with ten keys and a month of usage is under 32 KiB; what has no end must not fill the memory.
const MAX_LINE: u64 = 1 << 20;

/// Accounts that travel together.
#[derive(Debug)]
pub(super) struct Batch {
    /// Where they stand in the input.
    pub lines: RangeInclusive<u64>,
    /// What they took there, with the empty lines between.
    pub bytes: u64,
    pub request: ImportRequest,
}

/// Why a line can't be imported. The line itself is not repeated: it holds hashes of keys and passwords.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error("line {line}, column {column}: this is not JSON. An import has one JSON object on each line")]
    Syntax { line: u64, column: usize },
    #[error("line {line}, column {column}: a field is missing, unknown or of the wrong type")]
    Shape { line: u64, column: usize },
    #[error("line {line}: {why}")]
    Invalid { line: u64, why: String },
    #[error("line {line} is longer than {MAX_LINE} bytes: no account is that large")]
    TooLong { line: u64 },
    #[error("the input can't be read after line {line}")]
    Read { line: u64, source: io::Error },
}

/// Cuts `input` into batches and gives each to `take` until that refuses; the first bad line is the last thing given.
pub(super) fn batches(mut input: impl BufRead, mut take: impl FnMut(Result<Batch, LineError>) -> bool) {
    let mut gathered = Gathered::default();
    let now = Timestamp::now().as_millisecond();
    loop {
        let next = gathered.read(&mut input, now);
        let ends = !matches!(next, Ok(true));
        // What precedes a bad line is sent: the message says that nothing after it was.
        if (ends || gathered.is_full()) && !gathered.accounts.is_empty() && !take(Ok(gathered.batch())) {
            return;
        }
        if let Err(error) = next {
            take(Err(error));
        }
        if ends {
            return;
        }
    }
}

#[derive(Default)]
struct Gathered {
    accounts: Vec<ExportedAccount>,
    bytes: u64,
    /// Where the batch's first and last account stand.
    first: u64,
    last: u64,
    /// How many lines were read in all.
    line: u64,
    buffer: Vec<u8>,
}

impl Gathered {
    /// Reads a line; false at the end.
    fn read(&mut self, input: &mut impl BufRead, now: i64) -> Result<bool, LineError> {
        self.buffer.clear();
        let read = input.take(MAX_LINE + 1).read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|source| LineError::Read { line: self.line, source })? as u64;
        if read == 0 {
            return Ok(false);
        }
        self.line += 1;
        if read > MAX_LINE {
            return Err(LineError::TooLong { line: self.line });
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

    /// Leaves room for one more line, whatever its length.
    fn is_full(&self) -> bool {
        self.accounts.len() >= MAX_ACCOUNTS || self.bytes >= BATCH_BYTES
    }

    fn batch(&mut self) -> Batch {
        let accounts = std::mem::take(&mut self.accounts);
        let bytes = std::mem::take(&mut self.bytes);
        Batch { lines: self.first..=self.last, bytes, request: ImportRequest { accounts } }
    }
}

fn parse(text: &[u8], line: u64, now: i64) -> Result<ExportedAccount, LineError> {
    let account = serde_json::from_slice(text).map_err(|error| match (error.is_data(), error.column()) {
        (true, column) => LineError::Shape { line, column },
        (false, column) => LineError::Syntax { line, column },
    })?;
    // quota-svc checks the same; here the error can name the line.
    present::imported(&account, now).map_err(|why| LineError::Invalid { line, why })?;
    Ok(account)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"login":"ada","created_at":1,"keys":[]}"#;

    fn read(input: &str) -> (Vec<(RangeInclusive<u64>, usize)>, Option<String>) {
        let (mut sizes, mut error) = (Vec::new(), None);
        batches(input.as_bytes(), |batch| {
            match batch {
                Ok(batch) => sizes.push((batch.lines, batch.request.accounts.len())),
                Err(found) => error = Some(found.to_string()),
            }
            true
        });
        (sizes, error)
    }

    #[test]
    fn a_batch_has_at_most_200_accounts() {
        let (sizes, error) = read(&format!("{GOOD}\n").repeat(401));
        assert_eq!(sizes, [(1..=200, 200), (201..=400, 200), (401..=401, 1)]);
        assert_eq!(error, None);
        assert_eq!(read(&format!("{GOOD}\n").repeat(200)).0, [(1..=200, 200)]);
    }

    #[test]
    fn a_batch_is_about_a_mebibyte() {
        let padded = format!("{GOOD}{}\n", " ".repeat(300_000));
        assert_eq!(read(&padded.repeat(5)).0, [(1..=4, 4), (5..=5, 1)]);
    }

    #[test]
    fn empty_lines_count_but_are_no_accounts() {
        let (sizes, error) = read(&format!("\n{GOOD}\r\n \n{GOOD}\n\nnonsense"));
        assert_eq!(sizes, [(2..=4, 2)]);
        assert!(error.unwrap().starts_with("line 6, column"));
        assert_eq!(read("\n\n"), (Vec::new(), None));
    }

    #[test]
    fn nothing_after_a_bad_line_is_given() {
        for (bad, says) in [
            ("{", "not JSON"),
            ("{}", "missing"),
            (r#"{"login":"ada","created_at":1,"keys":[],"hush":1}"#, "unknown"),
            (r#"{"login":"a b","created_at":1,"keys":[]}"#, "a login is"),
            (&" ".repeat(2 << 20), "longer than"),
        ] {
            let (sizes, error) = read(&format!("{GOOD}\n{bad}\n{GOOD}\n"));
            let error = error.unwrap();
            assert_eq!(sizes.len(), 1, "{error}");
            assert_eq!(sizes[0].1, 1, "{error}");
            assert!(error.starts_with("line 2") && error.contains(says), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn it_stops_when_nobody_takes_more() {
        let mut taken = 0;
        batches(format!("{GOOD}\n").repeat(1000).as_bytes(), |_| {
            taken += 1;
            taken < 2
        });
        assert_eq!(taken, 2);
    }
}
