//! Answers as responses, and what the document says about them.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use poem::{Body, IntoResponse, Response};
use poem_openapi::ApiResponse;
use poem_openapi::registry::{MetaResponses, Registry};

use super::document::{self, Described};
use super::error::{Denial, Errors};
use super::headers::{LIMIT, Prepared, REMAINING, RESET};
use crate::links::Links;
use crate::lookup::Limit;
use crate::metrics::Operation;

/// Makes the responses.
#[derive(Clone, Debug)]
pub struct Answers {
    headers: Prepared,
    errors: Errors,
}

impl Answers {
    /// Answers that point to `links`.
    pub fn new(links: &Links) -> Self {
        Self { headers: Prepared::new(), errors: Errors::new(links) }
    }

    /// What was looked up.
    pub(super) fn success(&self, limit: &Limit, json: Vec<u8>) -> Response {
        let mut headers = self.headers.success.clone();
        write_limit(&mut headers, limit);
        respond(StatusCode::OK, headers, json)
    }

    /// Why it was not.
    pub(super) fn denial(&self, operation: Operation, denial: &Denial) -> Response {
        let (status, body) = self.errors.answer(operation, denial);
        let headers = match (denial.limit(), status) {
            (Some((limit, retry_after)), _) => {
                let mut headers = self.headers.limited.clone();
                write_limit(&mut headers, &limit);
                headers.insert(header::RETRY_AFTER, retry_after.into());
                headers
            }
            (None, StatusCode::UNAUTHORIZED) => self.headers.unauthorized.clone(),
            (None, _) => self.headers.plain.clone(),
        };
        respond(status, headers, body)
    }

    /// What a browser asks before it sends the key.
    pub(super) fn preflight(&self) -> Response {
        respond(StatusCode::NO_CONTENT, self.headers.preflight.clone(), Bytes::new())
    }
}

/// Overwrites the numbers where they stand, in one pass: to look each of them up would mean to hash its name.
fn write_limit(headers: &mut HeaderMap, limit: &Limit) {
    for (name, value) in headers.iter_mut() {
        if *name == LIMIT {
            *value = limit.limit.into();
        } else if *name == REMAINING {
            *value = limit.remaining.into();
        } else if *name == RESET {
            *value = limit.reset.into();
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

/// The answer of `/api/v1/ip`.
pub(super) struct Found(pub(super) Response);

/// The answer of `/api/v1/ip/demo`.
pub(super) struct Demo(pub(super) Response);

/// The answer of both preflights.
pub(super) struct Preflight(pub(super) Response);

macro_rules! answer {
    ($name:ident, $described:expr) => {
        impl IntoResponse for $name {
            fn into_response(self) -> Response {
                self.0
            }
        }

        impl ApiResponse for $name {
            fn meta() -> MetaResponses {
                document::responses(&$described)
            }

            fn register(registry: &mut Registry) {
                document::register(registry);
            }
        }
    };
}

answer!(Found, Described::LOOKUP);
answer!(Demo, Described::DEMO);
answer!(Preflight, Described::PREFLIGHT);
