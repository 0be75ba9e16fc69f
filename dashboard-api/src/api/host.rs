//! Rejects requests for another host once `--public-url` is set, so that the dashboard can't be reached under a name that
//! another person controls (DNS rebinding) or be embedded in links to another host.

use std::sync::Arc;

use http::{StatusCode, header};
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};
use service_kit::{ErrorBody, host_name, is_loopback_name};

/// Accepts the host of the public URL and loopback names. Without a public URL, accepts every host.
#[derive(Clone)]
pub struct HostGuard {
    public_host: Option<Arc<str>>,
    docs_url: Arc<str>,
}

impl HostGuard {
    /// `public_host` is the host name of `--public-url`, without a port.
    pub fn new(public_host: Option<&str>, docs_url: &str) -> Self {
        Self { public_host: public_host.map(|host| canonical(host).into()), docs_url: docs_url.into() }
    }

    fn accepts(&self, request: &Request) -> bool {
        let Some(public) = &self.public_host else { return true };
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        // HTTP/2 has the host in the URI.
        let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
        host.and_then(host_name).is_some_and(|name| canonical(name) == **public || is_loopback_name(name))
    }
}

/// Names are case-insensitive and may end with a dot. An IPv6 address in a URL has brackets.
fn canonical(name: &str) -> String {
    name.trim_start_matches('[').trim_end_matches([']', '.']).to_ascii_lowercase()
}

impl<E: Endpoint> Middleware<E> for HostGuard {
    type Output = Guarded<E>;

    fn transform(&self, inner: E) -> Self::Output {
        Guarded { inner, guard: self.clone() }
    }
}

pub struct Guarded<E> {
    inner: E,
    guard: HostGuard,
}

impl<E: Endpoint> Endpoint for Guarded<E> {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        if self.guard.accepts(&request) {
            return self.inner.call(request).await.map(IntoResponse::into_response);
        }
        let message = "This service does not have this host name. Use the public URL of the dashboard.";
        let body = ErrorBody::new("wrong_host", message, &self.guard.docs_url);
        Ok(service_kit::error::response(StatusCode::MISDIRECTED_REQUEST, &body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(public: Option<&str>, host: &str) -> bool {
        let request = Request::builder().header(header::HOST, host).finish();
        HostGuard::new(public, "https://docs.example").accepts(&request)
    }

    #[test]
    fn only_the_public_host_and_loopback_names_are_accepted() {
        for host in [
            "keys.example",
            "Keys.Example:443",
            "keys.example.:8443",
            "keys.example:",
            "localhost:8081",
            "127.0.0.1:8081",
            "127.9.9.9",
            "[::1]:8081",
        ] {
            assert!(accepts(Some("keys.example"), host), "{host}");
        }
        for host in [
            "evil.example",
            "keys.example.evil.example",
            "localhost.evil.example",
            "localhost:8081.evil.example",
            "keys.example:80x",
            "192.0.2.1",
            "[::1].evil.example",
            "[::1",
            ":8081",
            "",
        ] {
            assert!(!accepts(Some("keys.example"), host), "{host}");
        }
        assert!(accepts(Some("[2001:db8::1]"), "[2001:db8::1]:8081"));
    }

    #[test]
    fn every_host_is_accepted_without_a_public_url() {
        assert!(accepts(None, "evil.example"));
        assert!(accepts(None, ""));
    }
}
