//! The headers of the API's answers: prepared once, copied for each.

use futures_util::TryFutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};

pub(super) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ANY: HeaderValue = HeaderValue::from_static("*");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const EXPOSED: HeaderValue =
    HeaderValue::from_static("X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After");
/// Takes the place of a number that the answer will have: replacing is cheaper than growing the map.
const NUMBER: HeaderValue = HeaderValue::from_static("0");

/// One finished map for each kind of answer.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    /// 200.
    pub(super) success: HeaderMap,
    /// 429.
    pub(super) limited: HeaderMap,
    /// 401.
    pub(super) unauthorized: HeaderMap,
    /// Every other error.
    pub(super) plain: HeaderMap,
    /// The preflight's 204.
    pub(super) preflight: HeaderMap,
}

impl Prepared {
    pub(super) fn new() -> Self {
        let numbers = [(LIMIT, NUMBER), (REMAINING, NUMBER), (RESET, NUMBER)];
        let plain = cors().chain([(header::CONTENT_TYPE, JSON)]);
        let bearer = HeaderValue::from_static("Bearer");
        Self {
            success: plain.clone().chain(numbers.clone()).collect(),
            limited: plain.clone().chain(numbers).chain([(header::RETRY_AFTER, NUMBER)]).collect(),
            unauthorized: plain.clone().chain([(header::WWW_AUTHENTICATE, bearer)]).collect(),
            plain: plain.collect(),
            preflight: preflight(),
        }
    }
}

/// What every answer carries, whatever it is.
fn cors() -> impl Iterator<Item = (HeaderName, HeaderValue)> + Clone {
    [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED),
        (header::CACHE_CONTROL, NO_STORE),
        (header::VARY, HeaderValue::from_static("Authorization")),
    ]
    .into_iter()
}

fn preflight() -> HeaderMap {
    let value = HeaderValue::from_static;
    HeaderMap::from_iter([
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY),
        (header::ACCESS_CONTROL_ALLOW_METHODS, value("GET, OPTIONS")),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, value("Authorization")),
        (header::ACCESS_CONTROL_MAX_AGE, value("86400")),
        (header::CACHE_CONTROL, NO_STORE),
    ])
}

/// Middleware for what the API did not answer itself (404, a panic, a page): open to every origin,
/// and not to be stored unless it says otherwise.
pub fn finish() -> Finish {
    Finish { headers: cors().collect() }
}

/// See [`finish`].
#[derive(Clone, Debug)]
pub struct Finish {
    headers: HeaderMap,
}

impl Finish {
    /// The headers it adds; the server's own errors (431) need them too.
    pub fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn complete(&self, response: &mut Response) {
        let headers = response.headers_mut();
        if headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
            return;
        }
        for (name, value) in &self.headers {
            headers.entry(name).or_insert_with(|| value.clone());
        }
    }
}

impl<E: Endpoint> Middleware<E> for Finish {
    type Output = FinishEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        FinishEndpoint { inner, finish: self.clone() }
    }
}

/// The endpoint that [`finish`] makes.
#[derive(Debug)]
pub struct FinishEndpoint<E> {
    inner: E,
    finish: Finish,
}

impl<E: Endpoint> Endpoint for FinishEndpoint<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        self.inner.call(request).map_ok(|answer| {
            let mut response = answer.into_response();
            self.finish.complete(&mut response);
            response
        })
    }
}
