//! The headers of API responses: one prepared map per kind of response, cloned for each request.

use futures_util::TryFutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};
use service_kit::hsts;

use crate::public_urls::PublicUrls;

pub(super) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ANY: HeaderValue = HeaderValue::from_static("*");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const EXPOSED: HeaderValue =
    HeaderValue::from_static("X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After");
/// Stands for a number that is set per response: replacing a value is cheaper than inserting one.
const PLACEHOLDER: HeaderValue = HeaderValue::from_static("0");

/// The headers of each kind of response.
#[derive(Clone, Debug)]
pub(super) struct HeaderTemplates {
    pub(super) success: HeaderMap,
    pub(super) too_many_requests: HeaderMap,
    pub(super) unauthorized: HeaderMap,
    pub(super) other_error: HeaderMap,
    pub(super) preflight: HeaderMap,
}

impl HeaderTemplates {
    pub(super) fn new(urls: &PublicUrls) -> Self {
        let rate_limit = [(LIMIT, PLACEHOLDER), (REMAINING, PLACEHOLDER), (RESET, PLACEHOLDER)];
        let common = defaults(urls).chain([(header::CONTENT_TYPE, JSON)]);
        let bearer = HeaderValue::from_static("Bearer");
        Self {
            success: common.clone().chain(rate_limit.clone()).collect(),
            too_many_requests: common
                .clone()
                .chain(rate_limit)
                .chain([(header::RETRY_AFTER, PLACEHOLDER)])
                .collect(),
            unauthorized: common.clone().chain([(header::WWW_AUTHENTICATE, bearer)]).collect(),
            other_error: common.collect(),
            preflight: preflight(urls),
        }
    }
}

fn defaults(urls: &PublicUrls) -> impl Iterator<Item = (HeaderName, HeaderValue)> + Clone + use<> {
    [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED),
        (header::CACHE_CONTROL, NO_STORE),
        (header::VARY, HeaderValue::from_static("Authorization")),
    ]
    .into_iter()
    .chain(hsts::header_for(&urls.base))
}

fn preflight(urls: &PublicUrls) -> HeaderMap {
    let value = HeaderValue::from_static;
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY),
        (header::ACCESS_CONTROL_ALLOW_METHODS, value("GET, OPTIONS")),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, value("Authorization")),
        (header::ACCESS_CONTROL_MAX_AGE, value("86400")),
        (header::CACHE_CONTROL, NO_STORE),
    ];
    headers.into_iter().chain(hsts::header_for(&urls.base)).collect()
}

/// Middleware that adds CORS, caching and HSTS headers to responses not built by the API (404, panics, pages).
/// Does not overwrite headers that a response already has.
pub fn default_headers(urls: &PublicUrls) -> DefaultHeaders {
    DefaultHeaders { headers: defaults(urls).collect() }
}

/// See [`default_headers`].
#[derive(Clone, Debug)]
pub struct DefaultHeaders {
    headers: HeaderMap,
}

impl DefaultHeaders {
    /// The added headers; the server also needs them for its own errors (431).
    pub fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn add_missing(&self, response: &mut Response) {
        let headers = response.headers_mut();
        // With this header, the response was built by the API, from a template that includes all of these headers.
        if headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
            return;
        }
        for (name, value) in &self.headers {
            headers.entry(name).or_insert_with(|| value.clone());
        }
    }
}

impl<E: Endpoint> Middleware<E> for DefaultHeaders {
    type Output = DefaultHeadersEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        DefaultHeadersEndpoint { inner, defaults: self.clone() }
    }
}

/// An endpoint wrapped by [`DefaultHeaders`].
#[derive(Debug)]
pub struct DefaultHeadersEndpoint<E> {
    inner: E,
    defaults: DefaultHeaders,
}

impl<E: Endpoint> Endpoint for DefaultHeadersEndpoint<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        self.inner.call(request).map_ok(|output| {
            let mut response = output.into_response();
            self.defaults.add_missing(&mut response);
            response
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_response_has_hsts_if_the_base_url_is_https() {
        let urls =
            |base_url: &str| PublicUrls::new(&Config { base_url: base_url.to_owned(), ..Config::default() });
        let all = |urls: &PublicUrls| {
            let HeaderTemplates { success, too_many_requests, unauthorized, other_error, preflight } =
                HeaderTemplates::new(urls);
            let defaults = default_headers(urls).headers();
            [success, too_many_requests, unauthorized, other_error, preflight, defaults]
        };
        for headers in all(&urls("https://ip.example")) {
            assert_eq!(headers[header::STRICT_TRANSPORT_SECURITY], "max-age=31536000");
        }
        for headers in all(&urls("https://localhost:8443")) {
            assert!(!headers.contains_key(header::STRICT_TRANSPORT_SECURITY));
        }
    }
}
