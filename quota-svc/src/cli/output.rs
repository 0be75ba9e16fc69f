//! Tables, times and numbers on the terminal, lists that are printed page by page, and the confirmation of deletions.

use std::io::{self, IsTerminal};

use anyhow::ensure;
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::HumanCount;
use jiff::Timestamp;
use serde::Serialize;
use service_kit::command_line::{Output, print};

/// A table with these headings; without a heading row if there are none. Control characters are replaced, so that untrusted
/// text can't control the terminal.
pub(super) fn table<const N: usize>(
    headings: &[&str],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    // Never wraps: a wrapped ID can't be copied, and scripts expect one row per line.
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if !headings.is_empty() {
        table.set_header(headings.iter().map(|heading| heading.to_uppercase()));
    }
    let rows = rows.into_iter().map(|row| row.map(without_control_characters));
    table.add_rows(rows).trim_fmt()
}

/// A table of names and values, such as the attributes of an object.
pub(super) fn attributes(rows: Vec<(&str, String)>) -> String {
    table(&[], rows.into_iter().map(|(name, value)| [name.to_owned(), value]))
}

pub(super) fn without_control_characters(text: String) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// `12345` as `12,345`.
pub(super) fn with_commas(number: impl Into<u64>) -> String {
    HumanCount(number.into()).to_string()
}

/// `1 key`, `2 keys`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", with_commas(number), if number == 1 { "" } else { "s" })
}

/// `2 accounts with 1 key`.
pub(super) fn accounts_with_keys(accounts: u64, keys: u64) -> String {
    format!("{} with {}", counted(accounts, "account"), counted(keys, "key"))
}

/// Unix milliseconds as `2026-01-31 12:00:00 UTC`.
pub(super) fn time(unix_ms: i64) -> String {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        // An import may contain a time outside the range of the calendar.
        Err(_) => format!("{unix_ms} ms"),
    }
}

/// A list that is printed page by page, because it may have millions of items: one JSON object, or a table with a heading on
/// its first page.
pub(super) struct PagedList {
    /// `account` or `key`.
    pub noun: &'static str,
    pub headings: &'static [&'static str],
    pub output: Output,
    /// The number of items so far.
    pub printed: u64,
}

impl PagedList {
    pub fn print_page<T: Serialize, const N: usize>(
        &mut self,
        items: &[T],
        row: impl Fn(&T) -> [String; N],
    ) -> anyhow::Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let is_first = self.printed == 0;
        self.printed += items.len() as u64;
        print(&match self.output {
            Output::Text => table(if is_first { self.headings } else { &[] }, items.iter().map(row)),
            Output::Json => {
                let start = if is_first { self.json_start() } else { ",".to_owned() };
                start + serde_json::to_string(items)?.trim_start_matches('[').trim_end_matches(']')
            }
        })
    }

    /// Prints what can't be read and, as text, the number of items. `text` describes what can't be read.
    pub fn print_end(
        self,
        unreadable: &[impl Serialize],
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let end = match unreadable {
            [] => String::new(),
            _ if self.output == Output::Json => {
                format!(",\"unreadable\":{}", serde_json::to_string(unreadable)?)
            }
            _ => format!("\n\n{}", text()),
        };
        print(&match self.output {
            Output::Text => counted(self.printed, self.noun) + &end,
            Output::Json if self.printed == 0 => format!("{}]{end}}}", self.json_start()),
            Output::Json => format!("]{end}}}"),
        })
    }

    fn json_start(&self) -> String {
        format!("{{\"{}s\":[", self.noun)
    }
}

#[derive(clap::Args, Debug, Clone, Copy)]
pub struct ConfirmArgs {
    /// Delete without confirmation
    #[arg(long, short)]
    yes: bool,
}

impl ConfirmArgs {
    /// Asks before a deletion, unless --yes was given. Anything other than `y` or `yes` is an error.
    pub(super) fn ask(self, question: &str) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        let no_terminal = "standard input is not a terminal: add --yes to delete without confirmation";
        ensure!(io::stdin().is_terminal(), no_terminal);
        eprint!("{question} [y/N] ");
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        ensure!(is_yes(&line), "canceled; nothing was deleted");
        Ok(())
    }
}

fn is_yes(line: &str) -> bool {
    ["y", "yes"].contains(&line.trim().to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_y_or_yes_confirms() {
        for yes in ["y\n", "Y\n", "yes\n", " YES \n"] {
            assert!(is_yes(yes), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "yeah\n", "no\n"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let formatted = [0_u32, 7, 999, 1_000, 12_345, 1_000_000].map(with_commas);
        assert_eq!(formatted, ["0", "7", "999", "1,000", "12,345", "1,000,000"]);
        assert_eq!((counted(1, "key"), counted(2_000, "key")), ("1 key".to_owned(), "2,000 keys".to_owned()));
    }

    #[test]
    fn times_are_formatted_in_utc() {
        assert_eq!(time(1_800_000_000_123), "2027-01-15 08:00:00 UTC");
        assert_eq!(time(i64::MAX), format!("{} ms", i64::MAX));
    }

    #[test]
    fn control_characters_are_replaced() {
        let table = table(&[], [["a\u{1b}[2Jb\n".to_owned()]]);
        assert_eq!(table.trim(), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn rows_do_not_wrap() {
        let table = table(&["name"], [["x".repeat(300)]]);
        assert_eq!(table.lines().count(), 2, "{table}");
    }
}
