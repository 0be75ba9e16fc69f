//! A page that is the same for everybody: compressed once, and sent only to those who have not got it yet.

use std::io::Write;

use bytes::Bytes;
use data_encoding::BASE64;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use poem::{Request, Response};
use sha2::{Digest, Sha256};

/// A page's bytes and headers.
#[derive(Clone, Debug)]
pub(super) struct Page {
    plain: Bytes,
    gzip: Bytes,
    headers: HeaderMap,
}

impl Page {
    /// A page of that type.
    pub(super) fn new(content_type: &'static str, text: String) -> Self {
        let etag = format!("\"{}\"", hash(&text));
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
            (header::ETAG, etag.try_into().expect("base64 in quotes is a header value")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (header::VARY, HeaderValue::from_static("Accept-Encoding")),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        Self { gzip: compressed(text.as_bytes()), plain: text.into(), headers: headers.into_iter().collect() }
    }

    /// An HTML page that may run and load only what its policy says.
    pub(super) fn html(text: String, policy: &str) -> Self {
        let mut page = Self::new("text/html; charset=utf-8", text);
        let mut put = |name: HeaderName, value: &str| {
            page.headers.insert(name, value.try_into().expect("our own policy is a header value"));
        };
        put(header::CONTENT_SECURITY_POLICY, policy);
        put(header::REFERRER_POLICY, "no-referrer");
        put(header::X_FRAME_OPTIONS, "DENY");
        page
    }

    /// The page, or that it has not changed.
    pub(super) fn answer(&self, request: &Request) -> Response {
        let mut response = Response::default();
        *response.headers_mut() = self.headers.clone();
        if request.headers().get(header::IF_NONE_MATCH) == self.headers.get(header::ETAG) {
            response.set_status(StatusCode::NOT_MODIFIED);
        } else if accepts_gzip(request) {
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response.set_body(self.gzip.clone());
        } else {
            response.set_body(self.plain.clone());
        }
        response
    }
}

fn accepts_gzip(request: &Request) -> bool {
    let accepted = request.header(header::ACCEPT_ENCODING).unwrap_or_default();
    accepted.split(',').any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim().eq_ignore_ascii_case("gzip") && !matches!(quality.trim(), "q=0" | "q=0.0")
    })
}

fn compressed(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("writing into memory can not fail").into()
}

/// SHA-256 in base64: an entity's tag, and how a content security policy names an inline script.
pub(super) fn hash(text: &str) -> String {
    BASE64.encode(&Sha256::digest(text))
}

/// Text that may stand in HTML and in its attributes.
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
