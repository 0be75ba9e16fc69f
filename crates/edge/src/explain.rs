//! Explains decisions: the code that decides describes what it does, so that the explanation always matches.

/// Longest text of a header that an explanation contains, in characters.
const MAX_TEXT: usize = 64;

/// The response field that a text is about, and the text: a sentence about the client's address (`ip`), or the source of a
/// connection fact.
pub type Explained = (&'static str, String);

/// Receives the texts of an explanation.
pub(crate) trait Explain {
    /// `text` is called only if texts are collected.
    fn add(&mut self, field: &'static str, text: impl FnOnce() -> String);
}

/// Explains nothing, at no cost: for normal requests.
impl Explain for () {
    fn add(&mut self, _: &'static str, _: impl FnOnce() -> String) {}
}

impl Explain for Vec<Explained> {
    fn add(&mut self, field: &'static str, text: impl FnOnce() -> String) {
        self.push((field, text()));
    }
}

/// Returns the text of a header, shortened.
pub(crate) fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Joins header names with commas.
pub(crate) fn join(names: &[impl AsRef<str>]) -> String {
    names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_shortened_at_a_character() {
        assert_eq!(shortened(b" 192.0.2.7 "), "192.0.2.7");
        let long = "ä".repeat(MAX_TEXT + 1);
        assert_eq!(shortened(long.as_bytes()), format!("{}…", "ä".repeat(MAX_TEXT)));
        assert_eq!(shortened(b"\xff"), "\u{fffd}");
    }
}
