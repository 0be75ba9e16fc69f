//! Rejects requests before they reach an operation.
//!
//! Every request needs the token, whatever its path. Web pages are kept out, too: requests with an `Origin` header and, against DNS rebinding, requests whose `Host` is not a loopback name. The server has already
//! rejected malformed hosts.

use http::{HeaderValue, StatusCode, header};
use http_server::is_for_loopback;
use poem::{Error, Request, Response, Result};
use quota_client::QuotaToken;
use service_kit::ErrorBody;

use super::NO_DOCS;

#[derive(Debug)]
pub struct Guard {
    pub token: QuotaToken,
    /// Accept any `Host` (`--allow-remote`).
    pub allow_remote: bool,
}

impl Guard {
    /// Fails with the response to send if the request must be rejected. The token is checked first: without it, every
    /// request gets the same response.
    pub fn check(&self, request: &Request) -> Result<()> {
        if !self.token.matches(request.headers()) {
            return Err(Error::from_response(unauthorized()));
        }
        if request.headers().contains_key(header::ORIGIN) {
            return Err(forbidden("Requests from web pages (Origin header) are rejected."));
        }
        if !self.allow_remote && !is_for_loopback(request) {
            return Err(forbidden("The Host must be a loopback name (127.0.0.1, [::1], localhost)."));
        }
        Ok(())
    }
}

fn unauthorized() -> Response {
    let message =
        "The token of this quota-svc is missing or wrong. Set --quota-token-file to the file with its token.";
    let body = ErrorBody::new("unauthorized", message, NO_DOCS);
    let mut response = service_kit::error::response(StatusCode::UNAUTHORIZED, &body);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn forbidden(reason: &str) -> Error {
    let body = ErrorBody::new("forbidden", reason, NO_DOCS);
    Error::from_response(service_kit::error::response(StatusCode::FORBIDDEN, &body))
}
