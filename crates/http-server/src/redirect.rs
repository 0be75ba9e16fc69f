//! Redirects plain HTTP to the https URL of a service, and keeps browsers on HTTPS (HSTS).

use anyhow::{Context, ensure};
use http::{HeaderName, HeaderValue, StatusCode, header};
use poem::{Request, Response};
use url::Url;

use crate::error::ErrorResponder;
use crate::handler::CloseConnection;
use crate::host::requested_host;

const MESSAGE: &str = "Use the https URL in the Location header. If this request contained an API key, a password or a \
                       cookie, it crossed the network unencrypted: consider it compromised and replace it.";

/// The https URL of a service.
#[derive(Clone)]
pub struct RedirectTarget {
    /// The URL without a trailing slash: paths are appended to it.
    base: String,
    /// The host in it, without brackets.
    host: String,
    /// Creates the errors of the service.
    pub errors: ErrorResponder,
}

impl RedirectTarget {
    /// Redirects to `url`, the value of `flag`, with responses like `errors`. Fails if it is not an https URL.
    pub fn new(flag: &str, url: &str, errors: ErrorResponder) -> anyhow::Result<Self> {
        let parsed = Url::parse(url).with_context(|| format!("{flag} is not a valid URL: {url}"))?;
        ensure!(
            parsed.scheme() == "https",
            "--redirect-listen requires an https:// URL in {flag}, not {url}"
        );
        Ok(Self {
            base: parsed.as_str().trim_end_matches('/').to_owned(),
            host: parsed.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            errors,
        })
    }

    fn is(&self, host: &str) -> bool {
        host.eq_ignore_ascii_case(&self.host)
    }

    fn respond(&self, request: &Request) -> Response {
        let mut response = (self.errors)(StatusCode::PERMANENT_REDIRECT, "https_required", MESSAGE);
        let headers = response.headers_mut();
        // RFC 6797 forbids HSTS on plain HTTP.
        headers.remove(header::STRICT_TRANSPORT_SECURITY);
        headers.extend(self.location(request).map(|location| (header::LOCATION, location)));
        // The client continues on another port.
        response.set_data(CloseConnection);
        response
    }

    /// The same path and query under the configured URL. Nothing else of the request is used: with the host of the request,
    /// anyone could make this service redirect to another one.
    fn location(&self, request: &Request) -> Option<HeaderValue> {
        let uri = request.uri();
        // The target of a request need not be a path: `OPTIONS *`, `CONNECT host:port`.
        let path = if uri.path().starts_with('/') { uri.path() } else { "/" };
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        // Both may contain bytes that are not ASCII.
        HeaderValue::from_bytes(format!("{}{path}{query}", self.base).as_bytes()).ok()
    }
}

/// Redirects a request to the first target with its host, or else to the first of all.
pub fn redirect(targets: &[RedirectTarget], request: &Request) -> Option<Response> {
    let named = requested_host(request).and_then(|host| targets.iter().find(|target| target.is(host)));
    Some(named.or(targets.first())?.respond(request))
}

/// Returns `Strict-Transport-Security`, which makes browsers use only HTTPS, for a service with this public URL. `None` for
/// plain HTTP, and for `localhost` and IP addresses: a browser would apply it to every program of the same name.
pub fn hsts_header(public_url: &str) -> Option<(HeaderName, HeaderValue)> {
    let url = Url::parse(public_url).ok().filter(|url| url.scheme() == "https")?;
    let host = url.domain()?.trim_end_matches('.');
    let is_local = host == "localhost" || host.ends_with(".localhost");
    // One year. Without `includeSubDomains` and `preload`: other services may share the domain.
    let value = HeaderValue::from_static("max-age=31536000");
    (!is_local).then_some((header::STRICT_TRANSPORT_SECURITY, value))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn errors() -> ErrorResponder {
        Arc::new(|_, _, _| Response::default())
    }

    fn target(url: &str) -> RedirectTarget {
        RedirectTarget::new("--base-url", url, errors()).expect("https")
    }

    fn location(url: &str, request_target: &str) -> String {
        let request = Request::builder().uri(request_target.parse().expect("valid target")).finish();
        let location = target(url).location(&request).expect("a valid header");
        String::from_utf8(location.as_bytes().to_vec()).expect("UTF-8")
    }

    #[test]
    fn location_is_path_and_query_under_the_configured_url() {
        for (url, request_target, want) in [
            ("https://ip.example", "/", "https://ip.example/"),
            ("https://ip.example/", "/api/v1/ip?a=b&c=%2F", "https://ip.example/api/v1/ip?a=b&c=%2F"),
            ("https://ip.example:8443/lookup", "/docs", "https://ip.example:8443/lookup/docs"),
            ("https://[2001:db8::1]:8443", "/", "https://[2001:db8::1]:8443/"),
            ("https://ip.example", "//evil.example/", "https://ip.example//evil.example/"),
            ("https://ip.example", "/\\evil.example", "https://ip.example/\\evil.example"),
            ("https://ip.example", "http://evil.example/x?y", "https://ip.example/x?y"),
            ("https://ip.example", "http://evil.example", "https://ip.example/"),
            ("https://ip.example", "http://evil.example?y", "https://ip.example/?y"),
            ("https://ip.example", "*", "https://ip.example/"),
            ("https://ip.example", ".evil.example:443", "https://ip.example/"),
        ] {
            assert_eq!(location(url, request_target), want, "{request_target}");
        }
    }

    #[test]
    fn only_https_targets_are_accepted() {
        for url in ["http://ip.example", "ip.example", "ftp://ip.example", ""] {
            let error = RedirectTarget::new("--base-url", url, errors()).err().expect(url);
            assert!(error.to_string().contains("--base-url"), "{error}");
        }
    }

    #[test]
    fn host_is_compared_without_port_case_and_final_dot() {
        let by_header = |host: &str| Request::builder().uri_str("/").header(header::HOST, host).finish();
        for host in ["keys.example", "KEYS.example:80", "keys.example."] {
            let request = by_header(host);
            assert!(
                requested_host(&request).is_some_and(|host| target("https://keys.example:8443").is(host))
            );
        }
        for host in ["xkeys.example", "keys.example.evil.example", "keys.example:80:80", ""] {
            let request = by_header(host);
            assert!(
                !requested_host(&request).is_some_and(|host| target("https://keys.example").is(host)),
                "{host}"
            );
        }
        let request = by_header("[2001:db8::1]:80");
        assert!(requested_host(&request).is_some_and(|host| target("https://[2001:db8::1]").is(host)));
        let absolute = Request::builder().uri_str("http://keys.example/").header(header::HOST, "a.example");
        assert_eq!(requested_host(&absolute.finish()), Some("keys.example"));
    }

    #[test]
    fn hsts_is_set_for_https_names_only() {
        for url in ["https://ip.example", "https://ip.example:8443/base", "HTTPS://IP.example/"] {
            assert_eq!(hsts_header(url).expect("a header").1, "max-age=31536000", "{url}");
        }
        for url in [
            "http://ip.example",
            "https://localhost:8443",
            "https://LOCALHOST.",
            "https://dashboard.localhost:8443",
            "https://192.0.2.1",
            "https://[2001:db8::1]:8443",
            "/relative",
            "",
        ] {
            assert_eq!(hsts_header(url), None, "{url}");
        }
    }
}
