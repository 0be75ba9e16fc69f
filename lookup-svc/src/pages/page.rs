//! The headers of pages, and escaping.

use http::header;
use service_kit::StaticFile;

/// A file that browsers may store but must check for changes before each use.
pub(super) fn new(content_type: &'static str, text: String) -> StaticFile {
    StaticFile::new(content_type, text).header(header::CACHE_CONTROL, "no-cache")
}

/// An HTML page with a content security policy.
pub(super) fn html(text: String, policy: &str) -> StaticFile {
    let page = StaticFile::new("text/html; charset=utf-8", text);
    with_headers(page.header(header::CONTENT_SECURITY_POLICY, policy))
}

/// Adds the headers that all HTML pages have in common.
pub(super) fn with_headers(page: StaticFile) -> StaticFile {
    page.header(header::CACHE_CONTROL, "no-cache")
        .header(header::REFERRER_POLICY, "no-referrer")
        .header(header::X_FRAME_OPTIONS, "DENY")
}

/// Escapes text for HTML elements and attribute values.
pub(super) fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, c| {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
        escaped
    })
}
