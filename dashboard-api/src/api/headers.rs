//! Security headers of every response: no caching unless it says otherwise, no framing, no content sniffing, no scripts
//! from elsewhere.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http_server::hsts;

/// Content security policy of every response that has none of its own, as the page and Swagger UI have.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const ALWAYS: [(HeaderName, &str); 7] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// Content security policy of the page: it may use its own scripts and images, the inline style sheet with this hash, and
/// its own API.
pub fn page_policy(style_hash: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self'; style-src {style_hash}; img-src 'self'; connect-src 'self'; \
         manifest-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    )
}

/// Headers of every response, for a dashboard with this public origin.
pub fn security_headers(public_origin: Option<&str>) -> HeaderMap {
    let mut headers: HeaderMap =
        ALWAYS.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.extend(public_origin.and_then(hsts::header_for));
    headers
}
