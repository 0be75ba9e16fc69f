//! Static files: one copy in memory, compressed once, shared by all responses, with ETags.

use std::io::Write;

use bytes::Bytes;
use data_encoding::BASE64;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_server::SharedBody;
use poem::{Request, Response};
use sha2::{Digest, Sha256};

/// A file that is served from memory, plain or compressed with gzip.
#[derive(Clone, Debug)]
pub struct StaticFile {
    plain: Variant,
    gzip: Variant,
    headers: HeaderMap,
}

/// The bytes of one encoding. Each has its own ETag, because a cache must not mix them up.
#[derive(Clone, Debug)]
struct Variant {
    bytes: Bytes,
    etag: HeaderValue,
}

impl StaticFile {
    /// Hashes and compresses the content.
    pub fn new(content_type: &'static str, content: impl Into<Bytes>) -> Self {
        let plain = content.into();
        let digest = BASE64.encode(&Sha256::digest(&plain));
        let etag = |suffix: &str| {
            let quoted = format!("\"{digest}{suffix}\"");
            quoted.try_into().expect("quoted base64 is a valid header value")
        };
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
            (header::VARY, HeaderValue::from_static("Accept-Encoding")),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        Self {
            gzip: Variant { bytes: gzip(&plain), etag: etag("-gzip") },
            plain: Variant { bytes: plain, etag: etag("") },
            headers: headers.into_iter().collect(),
        }
    }

    /// Adds a header to all responses.
    ///
    /// # Panics
    /// If the value is not a valid header value.
    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.insert(name, value.try_into().expect("valid header value"));
        self
    }

    /// Responds with the file, or with 304 if the client has this version.
    pub fn respond(&self, request: &Request) -> Response {
        let compressed = accepts_gzip(request.headers());
        let variant = if compressed { &self.gzip } else { &self.plain };
        let mut response = Response::default();
        *response.headers_mut() = self.headers.clone();
        response.headers_mut().insert(header::ETAG, variant.etag.clone());
        if has_version(request.headers(), &variant.etag) {
            response.set_status(StatusCode::NOT_MODIFIED);
            return response;
        }
        if compressed {
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response.set_body(variant.bytes.clone());
        response.extensions_mut().insert(SharedBody);
        response
    }
}

/// The entries of a header that is a comma-separated list, from all of its lines.
fn entries<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Evaluates `If-None-Match`. The comparison is weak: a proxy that recompresses a file makes its ETag weak. No ETag of
/// ours contains a comma, so splitting the list at commas is safe.
fn has_version(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    entries(headers, &header::IF_NONE_MATCH)
        .any(|entry| entry == "*" || entry.strip_prefix("W/").unwrap_or(entry).as_bytes() == etag.as_bytes())
}

/// Evaluates `Accept-Encoding`: `gzip` or its old name `x-gzip`, else `*`, with no quality or one above 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let find = |names: &[&str]| {
        entries(headers, &header::ACCEPT_ENCODING).find_map(|coding| {
            let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
            let is_named = names.iter().any(|wanted| name.trim().eq_ignore_ascii_case(wanted));
            is_named.then(|| parameters.split(';').all(|parameter| !is_quality_of_zero(parameter)))
        })
    };
    find(&["gzip", "x-gzip"]).or_else(|| find(&["*"])).unwrap_or(false)
}

/// Whether this is a quality (`q=`) that is not a number above 0.
fn is_quality_of_zero(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    let above_zero = value.trim().parse::<f32>().is_ok_and(|quality| quality > 0.0);
    name.trim().eq_ignore_ascii_case("q") && !above_zero
}

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    compressed.expect("compressing to a Vec can't fail").into()
}

/// SHA-256 in base64: how a content security policy names an inline script or style.
pub fn csp_hash(text: &str) -> String {
    format!("'sha256-{}'", BASE64.encode(&Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "some text, some text, some text, some text, some text";

    fn file() -> StaticFile {
        StaticFile::new("text/plain", TEXT)
    }

    fn respond(headers: &[(HeaderName, &str)]) -> Response {
        let request = headers
            .iter()
            .fold(Request::builder(), |request, (name, value)| request.header(name.clone(), *value));
        file().respond(&request.finish())
    }

    fn is_gzip(accepted: &str) -> bool {
        let response = respond(&[(header::ACCEPT_ENCODING, accepted)]);
        response.header(header::CONTENT_ENCODING) == Some("gzip")
    }

    #[test]
    fn gzip_is_sent_only_if_accepted() {
        for accepted in ["gzip", "br, GZIP;q=0.5", "x-gzip", "*", "gzip; q=1", "identity, gzip ;q=0.001"] {
            assert!(is_gzip(accepted), "{accepted}");
        }
        for rejected in
            ["", "br", "gzip;q=0", "gzip;q=0.0", "gzip; Q=0.000", "*;q=0", "gzip;q=0, *", "gzip;q=x"]
        {
            assert!(!is_gzip(rejected), "{rejected}");
        }
    }

    #[test]
    fn encodings_have_distinct_etags() {
        let plain = respond(&[]);
        let gzip = respond(&[(header::ACCEPT_ENCODING, "gzip")]);
        assert_ne!(plain.header(header::ETAG), gzip.header(header::ETAG));
        let tag = gzip.header(header::ETAG).expect("ETag").to_owned();
        let again = respond(&[(header::ACCEPT_ENCODING, "gzip"), (header::IF_NONE_MATCH, &tag)]);
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(again.header(header::ETAG), Some(&*tag));
        assert_eq!(respond(&[(header::IF_NONE_MATCH, &tag)]).status(), StatusCode::OK, "other encoding");
    }

    #[test]
    fn if_none_match_accepts_lists_weak_tags_and_star() {
        let response = respond(&[]);
        let tag = response.header(header::ETAG).expect("ETag");
        for list in [tag, "*", &format!("W/{tag}"), &format!("\"a\", W/\"b\",{tag}")] {
            assert_eq!(
                respond(&[(header::IF_NONE_MATCH, list)]).status(),
                StatusCode::NOT_MODIFIED,
                "{list}"
            );
        }
        let lines = [(header::IF_NONE_MATCH, "\"a\""), (header::IF_NONE_MATCH, tag)];
        assert_eq!(respond(&lines).status(), StatusCode::NOT_MODIFIED);
        for other in ["\"a\"", "", tag.trim_matches('"')] {
            assert_eq!(respond(&[(header::IF_NONE_MATCH, other)]).status(), StatusCode::OK, "{other}");
        }
    }

    #[tokio::test]
    async fn responses_share_one_copy_of_the_body() {
        let file = file();
        let request = Request::default();
        let (first, second) = (file.respond(&request), file.respond(&request));
        let first = first.into_body().into_bytes().await.expect("body");
        let second = second.into_body().into_bytes().await.expect("body");
        assert_eq!(first, TEXT);
        assert_eq!(first.as_ptr(), second.as_ptr());
    }
}
