//! Rejects requests before they reach an operation.
//!
//! With `--quota-token-file`, every request needs the token, whatever its path. Web pages are kept out, too: requests with
//! an `Origin` header and, against DNS rebinding, requests whose `Host` is not a loopback name. The server has already
//! rejected malformed hosts.

use http::{HeaderValue, StatusCode, header};
use poem::{Error, Request, Response, Result};
use quota_client::QuotaToken;
use service_kit::{ErrorBody, host_name, is_loopback_name};

use super::DOCS;

#[derive(Debug)]
pub struct Guard {
    /// `None` accepts every request.
    pub token: Option<QuotaToken>,
    /// Accept any `Host` (`--allow-remote`).
    pub allow_remote: bool,
}

impl Guard {
    /// Returns the request, or the response that rejects it. The token is checked first: without it, every request gets
    /// the same response.
    pub fn check(&self, request: Request) -> Result<Request> {
        if self.token.as_ref().is_some_and(|token| !token.matches(request.headers())) {
            return Err(Error::from_response(unauthorized()));
        }
        if request.headers().contains_key(header::ORIGIN) {
            return Err(forbidden("Requests from web pages (Origin header) are rejected."));
        }
        if !self.allow_remote && !is_for_loopback(&request) {
            return Err(forbidden("The Host must be a loopback name (127.0.0.1, [::1], localhost)."));
        }
        Ok(request)
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

fn forbidden(reason: &str) -> Error {
    let body = ErrorBody::new("forbidden", reason, DOCS);
    Error::from_response(service_kit::error::response(StatusCode::FORBIDDEN, &body))
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
