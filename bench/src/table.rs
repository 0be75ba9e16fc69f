//! Formatting of tables and numbers.

use comfy_table::{CellAlignment, Table, presets};

/// A Markdown table. The first column is left-aligned text, the others are right-aligned numbers.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.iter().copied());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Rounds to a whole number and adds thousands separators.
pub fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or("?")).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_adds_separators() {
        assert_eq!([7.4, 999.6, 98_457.0, 1_000_000.0].map(thousands), ["7", "1,000", "98,457", "1,000,000"]);
    }
}
