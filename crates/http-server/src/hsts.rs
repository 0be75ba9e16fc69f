//! `Strict-Transport-Security`: tells browsers to use only HTTPS for a host that is public under an https URL.

use http::{HeaderName, HeaderValue, Uri, header::STRICT_TRANSPORT_SECURITY};

/// One year. Without `includeSubDomains` and `preload`: other services may share the domain.
const VALUE: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Returns the header for responses of a service with this public URL. `None` for plain HTTP, and for `localhost` and IP
/// addresses: a browser would apply the header to every program that uses the same name.
pub fn header_for(public_url: &str) -> Option<(HeaderName, HeaderValue)> {
    let uri: Uri = public_url.trim().parse().ok()?;
    let host = uri.host()?.trim_end_matches('.').to_ascii_lowercase();
    let is_local = host == "localhost" || host.ends_with(".localhost");
    let is_address = host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok();
    let applies = uri.scheme_str() == Some("https") && !is_local && !is_address;
    applies.then_some((STRICT_TRANSPORT_SECURITY, VALUE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_set_for_https_names_only() {
        for url in ["https://ip.example", "https://ip.example:8443/base", "HTTPS://IP.example/"] {
            assert_eq!(header_for(url).expect("a header").1, "max-age=31536000", "{url}");
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
            assert_eq!(header_for(url), None, "{url}");
        }
    }
}
