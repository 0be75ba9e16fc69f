//! Builds the HTTP responses, and connects each operation to the description of its responses in the OpenAPI document.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use poem::{Body, IntoResponse, Response};
use poem_openapi::ApiResponse;
use poem_openapi::registry::{MetaResponses, Registry};
use quota_client::ChargeError;
use service_kit::CloseConnection;

use super::document::{self, ResponseDoc};
use super::error::{ApiError, ErrorBodies};
use super::headers::{HeaderTemplates, LIMIT, REMAINING, RESET};
use crate::lookup::{Denial, RateLimit};
use crate::metrics::Operation;
use crate::public_urls::PublicUrls;

/// Builds responses from prepared headers and error bodies.
#[derive(Clone, Debug)]
pub struct Responses {
    headers: HeaderTemplates,
    errors: ErrorBodies,
}

impl Responses {
    pub fn new(urls: &PublicUrls) -> Self {
        Self { headers: HeaderTemplates::new(urls), errors: ErrorBodies::new(urls) }
    }

    pub(super) fn success(&self, rate_limit: &RateLimit, json: Vec<u8>) -> Response {
        let mut headers = self.headers.success.clone();
        set_rate_limit(&mut headers, rate_limit);
        respond(StatusCode::OK, headers, json)
    }

    pub(super) fn error(&self, operation: Operation, error: &ApiError) -> Response {
        let (status, body) = self.errors.status_and_body(operation, error);
        let headers = match (error.rate_limit(), status) {
            (Some((rate_limit, retry_after)), _) => {
                let mut headers = self.headers.too_many_requests.clone();
                set_rate_limit(&mut headers, &rate_limit);
                headers.insert(header::RETRY_AFTER, retry_after.into());
                headers
            }
            (None, StatusCode::UNAUTHORIZED) => self.headers.unauthorized.clone(),
            (None, _) => self.headers.other_error.clone(),
        };
        let mut response = respond(status, headers, body);
        // Another pod, with a quota-svc of its own, may work: the client's next connection may reach it.
        if let ApiError::Denied(Denial::NoVerdict(ChargeError::Unreachable)) = error {
            response.extensions_mut().insert(CloseConnection);
        }
        response
    }

    pub(super) fn preflight(&self) -> Response {
        respond(StatusCode::NO_CONTENT, self.headers.preflight.clone(), Bytes::new())
    }
}

/// Replaces the placeholders in one pass over the map, because a lookup by name would hash each name.
fn set_rate_limit(headers: &mut HeaderMap, rate_limit: &RateLimit) {
    for (name, value) in headers.iter_mut() {
        if *name == LIMIT {
            *value = rate_limit.limit.into();
        } else if *name == REMAINING {
            *value = rate_limit.remaining.into();
        } else if *name == RESET {
            *value = rate_limit.reset.into();
        }
    }
}

fn respond(status: StatusCode, headers: HeaderMap, body: impl Into<Body>) -> Response {
    let mut response = Response::default();
    response.set_status(status);
    *response.headers_mut() = headers;
    response.set_body(body);
    response
}

/// Response of `/api/v1/ip`.
pub(super) struct LookupResponse(pub(super) Response);

/// Response of `/api/v1/ip/demo`.
pub(super) struct DemoResponse(pub(super) Response);

/// Response of both preflights.
pub(super) struct PreflightResponse(pub(super) Response);

macro_rules! api_response {
    ($name:ident, $docs:expr) => {
        impl IntoResponse for $name {
            fn into_response(self) -> Response {
                self.0
            }
        }

        impl ApiResponse for $name {
            fn meta() -> MetaResponses {
                document::responses(&$docs)
            }

            fn register(registry: &mut Registry) {
                document::register(registry);
            }
        }
    };
}

api_response!(LookupResponse, ResponseDoc::LOOKUP);
api_response!(DemoResponse, ResponseDoc::DEMO);
api_response!(PreflightResponse, ResponseDoc::PREFLIGHT);
