//! A static page: compressed once, sent with an ETag.

use std::io::Write;

use bytes::Bytes;
use data_encoding::BASE64;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use poem::{Request, Response};
use sha2::{Digest, Sha256};

#[derive(Clone, Debug)]
pub(super) struct Page {
    plain: Bytes,
    gzip: Bytes,
    headers: HeaderMap,
}

impl Page {
    pub(super) fn new(content_type: &'static str, text: String) -> Self {
        let etag = format!("\"{}\"", hash(&text));
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
            (header::ETAG, etag.try_into().expect("quoted base64 is a valid header value")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (header::VARY, HeaderValue::from_static("Accept-Encoding")),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        Self { gzip: gzip(text.as_bytes()), plain: text.into(), headers: headers.into_iter().collect() }
    }

    /// An HTML page with a content security policy.
    pub(super) fn html(text: String, policy: &str) -> Self {
        let mut page = Self::new("text/html; charset=utf-8", text);
        let mut set = |name: HeaderName, value: &str| {
            page.headers.insert(name, value.try_into().expect("valid header value"));
        };
        set(header::CONTENT_SECURITY_POLICY, policy);
        set(header::REFERRER_POLICY, "no-referrer");
        set(header::X_FRAME_OPTIONS, "DENY");
        page
    }

    /// Responds with the page, or with 304 if the client has this version.
    pub(super) fn respond(&self, request: &Request) -> Response {
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

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    compressed.expect("compressing to a Vec can't fail").into()
}

/// SHA-256 in base64, for ETags and for the inline scripts and styles in a content security policy.
pub(super) fn hash(text: &str) -> String {
    BASE64.encode(&Sha256::digest(text))
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
