//! Tables, times and counts as people read them.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use jiff::Timestamp;

/// A table with these headings; an empty one for facts that need none.
pub(super) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    // Never wrapped: an id in pieces can't be copied, and what reads a pipe splits lines.
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if !headings.is_empty() {
        table.set_header(headings.iter().map(|heading| Cell::new(heading.to_uppercase())));
    }
    table
}

/// The table's text, without the blanks that pad its lines.
pub(super) fn text(table: &Table) -> String {
    table.trim_fmt()
}

/// A cell of text that others wrote: nothing in it may steer the terminal.
pub(super) fn cell(text: impl AsRef<str>) -> Cell {
    Cell::new(text.as_ref().replace(|c: char| c.is_control(), "\u{fffd}"))
}

/// A cell whose digits line up.
pub(super) fn number(number: impl Into<u64>) -> Cell {
    Cell::new(count(number)).set_alignment(CellAlignment::Right)
}

/// `12345` as `12,345`.
pub(super) fn count(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// `1 key`, `2 keys`.
pub(super) fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Unix milliseconds as `2026-01-31 12:00:00 UTC`.
pub(super) fn time(unix_ms: i64) -> String {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        // An import may have brought a time that no calendar has.
        Err(_) => format!("{unix_ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_in_threes() {
        let shown = [0_u32, 7, 999, 1_000, 12_345, 1_000_000].map(count);
        assert_eq!(shown, ["0", "7", "999", "1,000", "12,345", "1,000,000"]);
        assert_eq!((counted(1, "key"), counted(2_000, "key")), ("1 key".to_owned(), "2,000 keys".to_owned()));
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(time(1_800_000_000_123), "2027-01-15 08:00:00 UTC");
        assert_eq!(time(i64::MAX), format!("{} ms", i64::MAX));
    }

    #[test]
    fn what_others_wrote_does_not_steer_the_terminal() {
        assert_eq!(cell("a\u{1b}[2Jb\n").content(), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn a_table_has_one_line_for_each_row_and_off_a_terminal_no_colours() {
        let mut table = table(&["name"]);
        table.force_no_tty().add_row([cell("x".repeat(300)).fg(comfy_table::Color::Red)]);
        let shown = text(&table);
        assert_eq!(shown.lines().count(), 2, "{shown}");
        assert!(!shown.contains('\u{1b}'));
    }
}
