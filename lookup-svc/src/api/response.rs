//! Builds the HTTP responses.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_server::CloseConnection;
use poem::{Body, Response};
use quota_client::ChargeError;
use quota_client::wire::RateLimit;

use super::error::{ApiError, ErrorBodies};
use super::headers::HeaderTemplates;
use super::rate_limit::{self, KEY_REASON, REASON, Reason};
use crate::lookup::unix_now;
use crate::metrics::Operation;
use crate::public_urls::PublicUrls;
use crate::quota_status::QuotaStatus;

/// Builds responses from prepared headers and error bodies.
#[derive(Clone, Debug)]
pub struct Responses {
    headers: HeaderTemplates,
    /// Whether the headers of the IETF draft are sent.
    ietf: bool,
    errors: ErrorBodies,
    quota: QuotaStatus,
}

impl Responses {
    pub fn new(urls: &PublicUrls, ietf: bool, quota: QuotaStatus) -> Self {
        Self { headers: HeaderTemplates::new(urls, ietf), ietf, errors: ErrorBodies::new(urls), quota }
    }

    /// The headers of responses not built by the API (404, panics, pages): CORS, caching and HSTS.
    pub fn default_headers(&self) -> HeaderMap {
        self.headers.default.clone()
    }

    pub(super) fn success(&self, operation: Operation, rate_limit: &RateLimit, json: Vec<u8>) -> Response {
        let mut headers = self.headers.success.clone();
        rate_limit::set(&mut headers, rate_limit);
        if self.ietf {
            let wait = rate_limit.reset.saturating_sub(u64::try_from(unix_now()).unwrap_or_default());
            rate_limit::set_ietf(&mut headers, Reason::daily(operation), rate_limit, wait);
        }
        respond(StatusCode::OK, headers, json)
    }

    pub(super) fn error(&self, operation: Operation, error: &ApiError) -> Response {
        let (status, body) = self.errors.status_and_body(operation, error);
        let headers = match (error.exceeded(operation), status) {
            (Some((reason, exceeded)), _) => {
                let (rate_limit, retry_after) = (exceeded.rate_limit(), exceeded.retry_after);
                let mut headers = self.headers.too_many_requests.clone();
                rate_limit::set(&mut headers, &rate_limit);
                if self.ietf {
                    rate_limit::set_ietf(&mut headers, reason, &rate_limit, retry_after.into());
                }
                headers.insert(header::RETRY_AFTER, retry_after.into());
                headers.insert(REASON, HeaderValue::from_static(reason.as_str()));
                headers
            }
            (None, StatusCode::UNAUTHORIZED) => self.headers.unauthorized.clone(),
            (None, _) => self.headers.other_error.clone(),
        };
        let mut response = respond(status, headers, body);
        if let Some(reason) = error.key_reason() {
            response.headers_mut().insert(KEY_REASON, HeaderValue::from_static(reason));
        }
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
        respond(StatusCode::NO_CONTENT, self.headers.preflight.clone(), Bytes::new())
    }
}

fn respond(status: StatusCode, headers: HeaderMap, body: impl Into<Body>) -> Response {
    let mut response = Response::default();
    response.set_status(status);
    *response.headers_mut() = headers;
    response.set_body(body);
    response
}
