//! What all pages have in common: when they are rendered, their headers, and escaping.

use std::sync::{Mutex, PoisonError};

use http::{HeaderName, HeaderValue, header};
use poem::{Request, Response};
use service_kit::StaticFile;

/// A page that is rendered when it is first requested, and again when its content has changed.
pub(super) struct LivePage<C> {
    /// What the current page was rendered from.
    current: Mutex<Option<(C, StaticFile)>>,
}

impl<C> Default for LivePage<C> {
    fn default() -> Self {
        Self { current: Mutex::new(None) }
    }
}

impl<C: PartialEq> LivePage<C> {
    pub(super) fn respond(
        &self,
        request: &Request,
        content: C,
        render: impl FnOnce(&C) -> StaticFile,
    ) -> Response {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match current.take().filter(|(rendered, _)| *rendered == content) {
            Some((_, page)) => page,
            None => render(&content),
        };
        let response = page.respond(request);
        *current = Some((content, page));
        response
    }
}

/// A file that browsers may store but must check for changes before each use.
pub(super) fn new(content_type: &'static str, text: String) -> StaticFile {
    StaticFile::new(content_type, text).header(header::CACHE_CONTROL, "no-cache")
}

/// An HTML page with a content security policy.
pub(super) fn html(text: String, policy: &str) -> StaticFile {
    let page = StaticFile::new("text/html; charset=utf-8", text);
    with_headers(page.header(header::CONTENT_SECURITY_POLICY, policy))
}

/// The headers that all HTML pages have in common, besides their content security policies.
pub(super) const SECURITY_HEADERS: [(HeaderName, HeaderValue); 2] = [
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// Adds the headers of HTML pages.
pub(super) fn with_headers(page: StaticFile) -> StaticFile {
    let page = page.header(header::CACHE_CONTROL, "no-cache");
    SECURITY_HEADERS
        .iter()
        .fold(page, |page, (name, value)| page.header(name.clone(), value.to_str().unwrap_or_default()))
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
