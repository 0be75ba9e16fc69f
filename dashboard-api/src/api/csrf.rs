//! Changes are made by our own page or by a program, never by a foreign page in somebody's browser.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode, header};
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};
use service_kit::ErrorBody;

/// The header that every change carries.
pub const HEADER: &str = "x-csrf-token";
/// Its value.
pub const VALUE: &str = "1";

/// Refuses changes without the header, and those from another origin.
#[derive(Clone)]
pub struct Guard {
    public_origin: Option<Arc<str>>,
    docs_url: Arc<str>,
}

impl Guard {
    /// Takes this origin beside the one that the Host header names.
    pub fn new(public_origin: Option<String>, docs_url: &str) -> Self {
        Self { public_origin: public_origin.map(Into::into), docs_url: docs_url.into() }
    }

    fn check(&self, request: &Request) -> Result<(), &'static str> {
        if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return Ok(());
        }
        let headers = request.headers();
        if headers.get(HEADER).is_none_or(|value| value != VALUE) {
            return Err("A change needs the header X-CSRF-Token: 1.");
        }
        let origin = single(headers, header::ORIGIN)
            .ok_or("A change needs an Origin header that names this service.")?;
        // HTTP/2 names the host in the URI.
        let host =
            single(headers, header::HOST).or_else(|| request.uri().authority().map(|host| host.as_str()));
        let ours = host.is_some_and(|host| is_origin_of(origin, host));
        let public = self.public_origin.as_deref().is_some_and(|public| public.eq_ignore_ascii_case(origin));
        match ours || public {
            true => Ok(()),
            false => Err("This change comes from a page of another origin."),
        }
    }
}

/// A header's value, if there is exactly one.
fn single(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// Whether a page of this origin was served under this Host. TLS may end before us: either scheme will do.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let with_port = |host: &str, port: &str| match host.strip_suffix(port) {
        Some(bare) => bare.to_ascii_lowercase(),
        None => host.to_ascii_lowercase(),
    };
    let (authority, port) = match (origin.strip_prefix("https://"), origin.strip_prefix("http://")) {
        (Some(authority), _) => (authority, ":443"),
        (_, Some(authority)) => (authority, ":80"),
        _ => return false,
    };
    !authority.is_empty() && with_port(authority, port) == with_port(host, port)
}

impl<E: Endpoint> Middleware<E> for Guard {
    type Output = Guarded<E>;

    fn transform(&self, inner: E) -> Self::Output {
        Guarded { inner, guard: self.clone() }
    }
}

/// A guarded endpoint.
pub struct Guarded<E> {
    inner: E,
    guard: Guard,
}

impl<E: Endpoint> Endpoint for Guarded<E> {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        match self.guard.check(&request) {
            Ok(()) => self.inner.call(request).await.map(IntoResponse::into_response),
            Err(reason) => {
                let body = ErrorBody::new("csrf_refused", reason, &self.guard.docs_url);
                Ok(service_kit::error::response(StatusCode::FORBIDDEN, &body))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_the_hosts_in_every_spelling() {
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
    fn and_no_other_is() {
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
