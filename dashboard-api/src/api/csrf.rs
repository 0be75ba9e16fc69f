//! Protection against cross-site request forgery (CSRF): rejects changes that a page of another origin could have sent.

use std::future::{Ready, ready};

use http::{HeaderMap, Method, StatusCode, header};
use poem::{Error, Request, Result};
use service_kit::ErrorBody;

/// Required on every request other than GET, HEAD and OPTIONS. A page of another origin can't set it without a CORS
/// preflight, and this service allows none.
pub const HEADER: &str = "x-csrf-token";
pub const VALUE: &str = "1";

/// Rejects changes without the header and changes from another origin.
pub struct CsrfGuard {
    public_origin: Option<String>,
    docs_url: String,
}

impl CsrfGuard {
    /// `public_origin` is accepted in addition to the origin that matches the Host header.
    pub fn new(public_origin: Option<String>, docs_url: &str) -> Self {
        Self { public_origin, docs_url: docs_url.to_owned() }
    }

    pub fn check(&self, request: Request) -> Ready<Result<Request>> {
        ready(self.accept(&request).map(|()| request).map_err(|reason| {
            let body = ErrorBody::new("csrf_refused", reason, &self.docs_url);
            Error::from_response(service_kit::error::response(StatusCode::FORBIDDEN, &body))
        }))
    }

    fn accept(&self, request: &Request) -> Result<(), &'static str> {
        if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return Ok(());
        }
        let headers = request.headers();
        if headers.get(HEADER).is_none_or(|value| value != VALUE) {
            return Err("Requests other than GET need the header `X-CSRF-Token: 1`.");
        }
        let origin = single(headers, header::ORIGIN)
            .ok_or("Requests other than GET need an `Origin` header that matches this service.")?;
        // HTTP/2 has the host in the URI.
        let host =
            single(headers, header::HOST).or_else(|| request.uri().authority().map(|host| host.as_str()));
        let matches_host = host.is_some_and(|host| is_origin_of(origin, host));
        let matches_public =
            self.public_origin.as_deref().is_some_and(|public| public.eq_ignore_ascii_case(origin));
        match matches_host || matches_public {
            true => Ok(()),
            false => Err("This request comes from another origin."),
        }
    }
}

/// Returns a header's value if it occurs exactly once.
pub(super) fn single(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// Whether an origin has this host. The scheme may be http or https, because a proxy may terminate TLS.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let without_port = |host: &str, port: &str| match host.strip_suffix(port) {
        Some(bare) => bare.to_ascii_lowercase(),
        None => host.to_ascii_lowercase(),
    };
    let (authority, port) = match (origin.strip_prefix("https://"), origin.strip_prefix("http://")) {
        (Some(authority), _) => (authority, ":443"),
        (_, Some(authority)) => (authority, ":80"),
        _ => return false,
    };
    !authority.is_empty() && without_port(authority, port) == without_port(host, port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_with_the_same_host_matches() {
        for (origin, host) in [
            ("http://127.0.0.1:8081", "127.0.0.1:8081"),
            ("https://keys.example", "keys.example"),
            ("https://keys.example", "Keys.Example:443"),
            ("http://keys.example", "keys.example:80"),
            ("http://[::1]:8081", "[::1]:8081"),
        ] {
            assert!(is_origin_of(origin, host), "{origin} {host}");
        }
    }

    #[test]
    fn other_origins_do_not_match() {
        for (origin, host) in [
            ("null", "null"),
            ("", ""),
            ("https://", ""),
            ("keys.example", "keys.example"),
            ("https://evil.example", "keys.example"),
            ("https://keys.example.evil.example", "keys.example"),
            ("https://keys.example:8443", "keys.example"),
            ("http://keys.example", "keys.example:443"),
            ("file://keys.example", "keys.example"),
        ] {
            assert!(!is_origin_of(origin, host), "{origin} {host}");
        }
    }
}
