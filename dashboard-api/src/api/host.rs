//! Rejects requests for another host than that of the dashboard's URL, so that the dashboard can't be reached under a name
//! that another person controls (DNS rebinding) or be embedded in links to another host.

use std::future::{Ready, ready};

use http::StatusCode;
use http_server::{is_loopback_name, requested_host};
use poem::{Error, Request, Result};
use service_kit::ErrorBody;

/// Accepts the host of the dashboard's URL and loopback names. If the URL is unknown, accepts every host.
pub struct HostGuard {
    host: Option<String>,
    docs_url: String,
}

impl HostGuard {
    /// `host` is without a port.
    pub fn new(host: Option<&str>, docs_url: &str) -> Self {
        Self { host: host.map(canonical), docs_url: docs_url.to_owned() }
    }

    /// Returns the request, or an error response.
    pub fn check(&self, request: Request) -> Ready<Result<Request>> {
        if self.accepts(&request) {
            return ready(Ok(request));
        }
        let message = "This service does not have this host name. Use the dashboard's URL, which the operator sets with \
                       --public-url.";
        let body = ErrorBody::new("wrong_host", message, &self.docs_url);
        ready(Err(Error::from_response(service_kit::error::response(StatusCode::MISDIRECTED_REQUEST, &body))))
    }

    fn accepts(&self, request: &Request) -> bool {
        let Some(host) = &self.host else { return true };
        requested_host(request).is_some_and(|name| canonical(name) == *host || is_loopback_name(name))
    }
}

/// Names are case-insensitive and may end with a dot. An IPv6 address in a URL has brackets.
fn canonical(name: &str) -> String {
    name.trim_start_matches('[').trim_end_matches([']', '.']).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use http::header;

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
    fn every_host_is_accepted_if_the_url_is_unknown() {
        assert!(accepts(None, "evil.example"));
        assert!(accepts(None, ""));
    }
}
