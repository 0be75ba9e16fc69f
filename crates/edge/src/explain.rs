//! Explains decisions: the code that decides describes what it does, so that the explanation always matches.

/// Longest text of a header that an explanation contains, in characters.
const MAX_TEXT: usize = 64;

/// The response field that a text is about, and the text: a sentence about the client's address (`ip`), or the source of a
/// connection fact.
pub type Explained = (&'static str, String);

/// Collects the texts of an explanation. The default collects nothing, for normal requests.
#[derive(Debug, Default)]
pub struct Explanation(Option<Vec<Explained>>);

impl Explanation {
    pub(crate) fn collect() -> Self {
        Self(Some(Vec::new()))
    }

    /// `text` is called only if texts are collected.
    pub(crate) fn add(&mut self, field: &'static str, text: impl FnOnce() -> String) {
        if let Some(texts) = &mut self.0 {
            texts.push((field, text()));
        }
    }

    pub(crate) fn into_texts(self) -> Vec<Explained> {
        self.0.unwrap_or_default()
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
