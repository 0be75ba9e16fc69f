//! Builds the HTTP responses. Their headers are prepared, and cloned for each response. Those about limits are
//! `X-RateLimit-*`, which the API's contract requires, and those of the IETF draft
//! (draft-ietf-httpapi-ratelimit-headers-11).

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_server::{CloseConnection, X_REQUEST_ID, hsts_header};
use poem::{Body, Response};
use quota_client::ChargeError;
use quota_client::wire::RateLimit;

use super::error::{ApiError, Reason};
use crate::lookup::unix_now;
use crate::metrics::Operation;
use crate::public_urls::PublicUrls;
use crate::quota_status::QuotaStatus;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const REASON: HeaderName = HeaderName::from_static("x-ratelimit-reason");
const KEY_REASON: HeaderName = HeaderName::from_static("x-key-reason");
const IETF_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const IETF_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Stands for a number or an ID that is set per response: replacing a value is cheaper than inserting one.
const PLACEHOLDER: HeaderValue = HeaderValue::from_static("0");

/// Builds responses from prepared headers.
#[derive(Clone, Debug)]
pub struct Responses {
    urls: PublicUrls,
    quota: QuotaStatus,
    /// For responses that have the headers about limits.
    limited: HeaderMap,
    /// For other errors.
    other: HeaderMap,
    preflight: HeaderMap,
    /// For responses not built by the API (404, panics, pages): CORS, caching and HSTS.
    pub default: HeaderMap,
}

impl Responses {
    pub fn new(urls: &PublicUrls, ietf: bool, quota: QuotaStatus) -> Self {
        let value = HeaderValue::from_static;
        let common =
            [(header::ACCESS_CONTROL_ALLOW_ORIGIN, value("*")), (header::CACHE_CONTROL, value("no-store"))];
        let common = common.into_iter().chain(hsts_header(&urls.base));
        let default = common.clone().chain([
            (header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed(ietf)),
            (header::VARY, value("Authorization")),
        ]);
        // The server sets the ID of each request.
        let json = [(header::CONTENT_TYPE, value("application/json")), (X_REQUEST_ID, PLACEHOLDER)];
        let other = default.clone().chain(json);
        let preflight = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, value("GET, OPTIONS")),
            // Libraries for browsers often send the others, which the API ignores.
            (header::ACCESS_CONTROL_ALLOW_HEADERS, value("Authorization, Content-Type, X-Requested-With")),
            (header::ACCESS_CONTROL_MAX_AGE, value("86400")),
        ];
        Self {
            urls: urls.clone(),
            quota,
            limited: other.clone().chain(placeholders(ietf)).collect(),
            other: other.collect(),
            preflight: common.chain(preflight).collect(),
            default: default.collect(),
        }
    }

    pub(super) fn success(&self, operation: Operation, rate_limit: &RateLimit, json: Vec<u8>) -> Response {
        let wait = || rate_limit.reset.saturating_sub(u64::try_from(unix_now()).unwrap_or_default());
        let mut headers = self.limited.clone();
        set(&mut headers, Reason::daily(operation), rate_limit, wait);
        respond(StatusCode::OK, headers, json)
    }

    pub(super) fn error(&self, operation: Operation, error: &ApiError) -> Response {
        let (status, body) = error.status_and_body(operation, &self.urls);
        let mut headers = match error.exceeded(operation) {
            Some((reason, exceeded)) => {
                let retry_after = exceeded.retry_after;
                let mut headers = self.limited.clone();
                set(&mut headers, reason, &exceeded.rate_limit(), || retry_after.into());
                headers.insert(header::RETRY_AFTER, retry_after.into());
                headers.insert(REASON, HeaderValue::from_static(reason.as_str()));
                headers
            }
            None => self.other.clone(),
        };
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        headers.extend(error.key_reason().map(|reason| (KEY_REASON, HeaderValue::from_static(reason))));
        let mut response = respond(status, headers, body);
        // Another pod, with a quota-svc of its own, may work: the client's next connection may reach it.
        let close = match error {
            ApiError::NoVerdict(ChargeError::Unreachable) => true,
            ApiError::NoVerdict(_) => self.quota.is_hung(),
            _ => false,
        };
        if close {
            response.extensions_mut().insert(CloseConnection);
        }
        response
    }

    pub(super) fn preflight(&self) -> Response {
        respond(StatusCode::NO_CONTENT, self.preflight.clone(), Bytes::new())
    }
}

fn respond(status: StatusCode, headers: HeaderMap, body: impl Into<Body>) -> Response {
    let mut response = Response::default();
    response.set_status(status);
    *response.headers_mut() = headers;
    response.set_body(body);
    response
}

/// The names that scripts of other origins may read. `ietf`: whether the draft's headers are sent.
fn exposed(ietf: bool) -> HeaderValue {
    let draft = if ietf { "RateLimit, RateLimit-Policy, " } else { "" };
    let names = format!(
        "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Reason, X-Key-Reason, {draft}\
         Retry-After, X-Request-Id"
    );
    HeaderValue::try_from(names).expect("names are valid in a header")
}

/// The headers whose values [`set`] replaces.
fn placeholders(ietf: bool) -> Vec<(HeaderName, HeaderValue)> {
    let names = [LIMIT, REMAINING, RESET, IETF_LIMIT, IETF_POLICY].into_iter().take(if ietf { 5 } else { 3 });
    names.map(|name| (name, PLACEHOLDER)).collect()
}

/// Replaces the placeholders of the headers about limits in one pass over the map, because a lookup by name would hash each
/// name. `wait` returns the time in seconds until the limit resets. It is called only for the draft, whose `t` is never more
/// than the window, even if the clocks of this machine and of the store differ.
fn set(headers: &mut HeaderMap, reason: Reason, rate_limit: &RateLimit, wait: impl Fn() -> u64) {
    let (policy, window) = reason.policy();
    let RateLimit { limit, remaining, reset } = *rate_limit;
    let text = |text| HeaderValue::try_from(text).expect("names and numbers are valid in a header");
    for (name, value) in headers.iter_mut() {
        if *name == LIMIT {
            *value = limit.into();
        } else if *name == REMAINING {
            *value = remaining.into();
        } else if *name == RESET {
            *value = reset.into();
        } else if *name == IETF_LIMIT {
            *value = text(format!("\"{policy}\";r={remaining};t={}", wait().min(window)));
        } else if *name == IETF_POLICY {
            *value = text(format!("\"{policy}\";q={limit};w={window}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const RATE_LIMIT: RateLimit = RateLimit { limit: 300, remaining: 7, reset: 1_000 };

    fn headers(ietf: bool, reason: Reason, wait: u64) -> Vec<(String, String)> {
        let mut headers: HeaderMap = placeholders(ietf).into_iter().collect();
        set(&mut headers, reason, &RATE_LIMIT, || wait);
        let text = |value: &HeaderValue| value.to_str().expect("ASCII").to_owned();
        let mut headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        headers.sort();
        headers
    }

    fn pairs<const N: usize>(headers: [(&str, &str); N]) -> Vec<(String, String)> {
        headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn headers_of_the_draft_are_an_addition() {
        let contract =
            [("x-ratelimit-limit", "300"), ("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", "1000")];
        let ietf = [("ratelimit", "\"burst\";r=7;t=59"), ("ratelimit-policy", "\"burst\";q=300;w=60")];
        assert_eq!(headers(false, Reason::Burst, 59), pairs(contract));
        assert_eq!(headers(true, Reason::Burst, 59), [pairs(ietf), pairs(contract)].concat());
    }

    #[test]
    fn policies_have_their_names_and_windows() {
        for (reason, limit, description) in [
            (Reason::Daily, "\"daily\";r=7;t=86400", "\"daily\";q=300;w=86400"),
            (Reason::Demo, "\"demo\";r=7;t=86400", "\"demo\";q=300;w=86400"),
            (Reason::Burst, "\"burst\";r=7;t=60", "\"burst\";q=300;w=60"),
        ] {
            let sent = headers(true, reason, u64::MAX);
            assert_eq!(sent[..2], pairs([("ratelimit", limit), ("ratelimit-policy", description)]));
        }
    }

    #[test]
    fn every_header_that_is_sent_is_exposed() {
        for ietf in [false, true] {
            let exposed = exposed(ietf);
            let exposed = exposed.to_str().expect("ASCII").to_lowercase();
            let mut exposed: Vec<_> = exposed.split(", ").collect();
            let sent = placeholders(ietf).into_iter().map(|(name, _)| name.to_string());
            let others =
                [&REASON, &KEY_REASON, &header::RETRY_AFTER, &X_REQUEST_ID].map(HeaderName::to_string);
            let mut sent: Vec<_> = sent.chain(others).collect();
            sent.sort();
            exposed.sort_unstable();
            assert_eq!(exposed, sent, "{ietf}");
        }
    }

    #[test]
    fn every_response_has_hsts_if_the_base_url_is_https() {
        let all = |base_url: &str| {
            let urls = PublicUrls::new(&Config { base_url: base_url.to_owned(), ..Config::default() });
            let Responses { limited, other, preflight, default, .. } =
                Responses::new(&urls, true, QuotaStatus::unknown());
            [limited, other, preflight, default]
        };
        for headers in all("https://ip.example") {
            assert_eq!(headers[header::STRICT_TRANSPORT_SECURITY], "max-age=31536000");
        }
        for headers in all("https://localhost:8443") {
            assert!(!headers.contains_key(header::STRICT_TRANSPORT_SECURITY));
        }
    }
}
