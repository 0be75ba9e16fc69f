//! The Markdown documents of the repository, whose commands and examples tests run.

use std::fs;

use testkit::tools::project_root;

/// The text of a document, by its path in the repository.
///
/// # Panics
/// If it can't be read.
#[must_use]
pub fn read(document: &str) -> String {
    fs::read_to_string(project_root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"))
}

/// The fenced blocks of a document: info string and text.
#[must_use]
pub fn blocks(text: &str) -> Vec<(String, String)> {
    let parts: Vec<&str> = text.split("\n```").collect();
    let fenced = parts.iter().skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    fenced.map(|(info, body)| (info.to_owned(), body.to_owned())).collect()
}

/// The blocks of a document that have this info string.
///
/// # Panics
/// If there is none, because then the test that wants to run them would check nothing.
#[must_use]
pub fn blocks_of(document: &str, info: &str) -> Vec<String> {
    let found: Vec<_> = blocks(&read(document)).into_iter().filter(|(found, _)| found == info).collect();
    assert!(!found.is_empty(), "{document} has no block `{info}`");
    found.into_iter().map(|(_, body)| body).collect()
}
