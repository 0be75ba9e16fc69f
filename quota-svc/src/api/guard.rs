//! Rejects requests before they reach an operation.
//!
//! With `--quota-token-file`, every request needs the token, whatever its path. Web pages are kept out, too: requests with
//! an `Origin` header and, against DNS rebinding, requests whose `Host` is not a loopback name. The server has already
//! rejected malformed hosts.

use std::future::ready;

use futures_util::TryFutureExt;
use futures_util::future::Either;
use http::{HeaderValue, StatusCode, header};
use poem::{Endpoint, Error, IntoResponse, Middleware, Request, Response, Result};
use quota_client::QuotaToken;
use service_kit::{ErrorBody, host_name, is_loopback_name};

use super::DOCS;

#[derive(Debug, Clone)]
pub struct Guard {
    /// `None` accepts every request.
    pub token: Option<QuotaToken>,
    /// Accept any `Host` (`--allow-remote`).
    pub allow_remote: bool,
}

impl Guard {
    /// The response to a request that is rejected. The token is checked first: without it, every request gets the same
    /// response.
    fn rejection(&self, request: &Request) -> Option<Response> {
        if self.token.as_ref().is_some_and(|token| !token.matches(request.headers())) {
            return Some(unauthorized());
        }
        if request.headers().contains_key(header::ORIGIN) {
            return Some(forbidden("Requests from web pages (Origin header) are rejected."));
        }
        if !self.allow_remote && !is_for_loopback(request) {
            return Some(forbidden("The Host must be a loopback name (127.0.0.1, [::1], localhost)."));
        }
        None
    }
}

fn unauthorized() -> Response {
    let message =
        "The token of this quota-svc is missing or wrong. Set --quota-token-file to the file with its token.";
    let body = ErrorBody::new("unauthorized", message, DOCS);
    let mut response = service_kit::error::response(StatusCode::UNAUTHORIZED, &body);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn forbidden(reason: &str) -> Response {
    service_kit::error::response(StatusCode::FORBIDDEN, &ErrorBody::new("forbidden", reason, DOCS))
}

/// Whether all hosts that the request names are loopback names. HTTP/2 has the host in the URI, and a request may name
/// it there and in the header.
fn is_for_loopback(request: &Request) -> bool {
    let headers = request.headers().get_all(header::HOST).into_iter().map(|host| host.to_str().unwrap_or(""));
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let mut hosts = headers.chain(authority).peekable();
    hosts.peek().is_some() && hosts.all(is_loopback)
}

/// Accepts `127.0.0.1:8082`, `[::1]`, `localhost:8082` and so on.
fn is_loopback(host: &str) -> bool {
    host_name(host).is_some_and(is_loopback_name)
}

impl<E: Endpoint> Middleware<E> for Guard {
    type Output = Guarded<E>;

    fn transform(&self, inner: E) -> Self::Output {
        Guarded { inner, guard: self.clone() }
    }
}

pub struct Guarded<E> {
    inner: E,
    guard: Guard,
}

impl<E: Endpoint> Endpoint for Guarded<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        match self.guard.rejection(&request) {
            None => Either::Left(self.inner.call(request).map_ok(IntoResponse::into_response)),
            Some(response) => Either::Right(ready(Err(Error::from_response(response)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_are_accepted() {
        for host in ["127.0.0.1", "127.0.0.1:8082", "127.9.9.9:1", "[::1]", "[::1]:8082", "LOCALHOST:8082"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "10.0.0.1:8082",
            "127.0.0.1.example.org",
            "localhost.example.org:80",
            "localhost:8082.evil.example",
            "[::1].evil.example",
            "[::2]",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn host_header_and_authority_must_both_be_loopback() {
        let request = |uri: &'static str, host: &'static str| {
            let uri = poem::http::Uri::from_static(uri);
            let request = Request::builder().uri(uri);
            if host.is_empty() { request.finish() } else { request.header(header::HOST, host).finish() }
        };
        assert!(is_for_loopback(&request("http://localhost:8082/", "")));
        assert!(is_for_loopback(&request("http://localhost/", "127.0.0.1")));
        assert!(is_for_loopback(&request("/", "localhost")));
        assert!(!is_for_loopback(&request("http://evil.example/", "localhost")));
        assert!(!is_for_loopback(&request("http://localhost/", "evil.example")));
        assert!(!is_for_loopback(&request("/", "")));
    }
}
