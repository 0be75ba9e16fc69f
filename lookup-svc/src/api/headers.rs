//! The headers of API responses: one prepared map per kind of response, cloned for each request.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_server::{X_REQUEST_ID, hsts_header};

use super::rate_limit::{self, PLACEHOLDER};
use crate::public_urls::PublicUrls;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ANY: HeaderValue = HeaderValue::from_static("*");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The headers of each kind of response.
#[derive(Clone, Debug)]
pub(super) struct HeaderTemplates {
    pub(super) success: HeaderMap,
    pub(super) too_many_requests: HeaderMap,
    pub(super) unauthorized: HeaderMap,
    pub(super) other_error: HeaderMap,
    pub(super) preflight: HeaderMap,
    /// For responses not built by the API (404, panics, pages): CORS, caching and HSTS.
    pub(super) default: HeaderMap,
}

impl HeaderTemplates {
    pub(super) fn new(urls: &PublicUrls, ietf: bool) -> Self {
        let rate_limit = rate_limit::placeholders(ietf);
        let defaults = defaults(urls, ietf);
        // The server sets the ID of each request.
        let common = defaults.clone().chain([(header::CONTENT_TYPE, JSON), (X_REQUEST_ID, PLACEHOLDER)]);
        let bearer = HeaderValue::from_static("Bearer");
        Self {
            success: common.clone().chain(rate_limit.clone()).collect(),
            too_many_requests: common
                .clone()
                .chain(rate_limit)
                .chain([(header::RETRY_AFTER, PLACEHOLDER), (rate_limit::REASON, PLACEHOLDER)])
                .collect(),
            unauthorized: common.clone().chain([(header::WWW_AUTHENTICATE, bearer)]).collect(),
            other_error: common.collect(),
            preflight: preflight(urls),
            default: defaults.collect(),
        }
    }
}

fn defaults(
    urls: &PublicUrls,
    ietf: bool,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + Clone + use<> {
    [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, rate_limit::exposed(ietf)),
        (header::CACHE_CONTROL, NO_STORE),
        (header::VARY, HeaderValue::from_static("Authorization")),
    ]
    .into_iter()
    .chain(hsts_header(&urls.base))
}

fn preflight(urls: &PublicUrls) -> HeaderMap {
    let value = HeaderValue::from_static;
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY),
        (header::ACCESS_CONTROL_ALLOW_METHODS, value("GET, OPTIONS")),
        // Libraries for browsers often send the others, which the API ignores.
        (header::ACCESS_CONTROL_ALLOW_HEADERS, value("Authorization, Content-Type, X-Requested-With")),
        (header::ACCESS_CONTROL_MAX_AGE, value("86400")),
        (header::CACHE_CONTROL, NO_STORE),
    ];
    headers.into_iter().chain(hsts_header(&urls.base)).collect()
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
            let HeaderTemplates { success, too_many_requests, unauthorized, other_error, preflight, default } =
                HeaderTemplates::new(urls, true);
            [success, too_many_requests, unauthorized, other_error, preflight, default]
        };
        for headers in all(&urls("https://ip.example")) {
            assert_eq!(headers[header::STRICT_TRANSPORT_SECURITY], "max-age=31536000");
        }
        for headers in all(&urls("https://localhost:8443")) {
            assert!(!headers.contains_key(header::STRICT_TRANSPORT_SECURITY));
        }
    }
}
