//! Formats tables, times and numbers for terminal output.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use indicatif::HumanCount;
use jiff::Timestamp;
use service_kit::command_line::use_color;

/// A table with these headings; without a heading row if there are none.
pub(super) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    // Never wraps: a wrapped ID can't be copied, and scripts expect one row per line.
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if !use_color(&std::io::stdout()) {
        table.force_no_tty();
    }
    if !headings.is_empty() {
        table.set_header(headings.iter().map(|heading| Cell::new(heading.to_uppercase())));
    }
    table
}

/// A cell with untrusted text. Control characters are replaced, so that it can't control the terminal.
pub(super) fn cell(text: impl AsRef<str>) -> Cell {
    Cell::new(text.as_ref().replace(|c: char| c.is_control(), "\u{fffd}"))
}

/// A right-aligned number.
pub(super) fn number(number: impl Into<u64>) -> Cell {
    Cell::new(with_commas(number)).set_alignment(CellAlignment::Right)
}

/// `12345` as `12,345`.
pub(super) fn with_commas(number: impl Into<u64>) -> String {
    HumanCount(number.into()).to_string()
}

/// `1 key`, `2 keys`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", with_commas(number), if number == 1 { "" } else { "s" })
}

/// Unix milliseconds as `2026-01-31 12:00:00 UTC`.
pub(super) fn time(unix_ms: i64) -> String {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        // An import may contain a time outside the range of the calendar.
        Err(_) => format!("{unix_ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(cell("a\u{1b}[2Jb\n").content(), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn rows_do_not_wrap_and_have_no_color_without_a_terminal() {
        let mut table = table(&["name"]);
        table.force_no_tty().add_row([cell("x".repeat(300)).fg(comfy_table::Color::Red)]);
        let output = table.trim_fmt();
        assert_eq!(output.lines().count(), 2, "{output}");
        assert!(!output.contains('\u{1b}'));
    }
}
