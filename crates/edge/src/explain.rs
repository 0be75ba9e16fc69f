//! Explains decisions: the code that decides describes what it does, so that the explanation always matches.

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

/// Returns the text of a header, quoted.
pub(crate) fn quoted(value: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(value.trim_ascii()))
}

/// Joins header names with commas.
pub(crate) fn join(names: &[impl AsRef<str>]) -> String {
    names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}
