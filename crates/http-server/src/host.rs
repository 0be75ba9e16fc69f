//! Parses `Host` headers and the authority of a URL (without userinfo).

use std::net::{IpAddr, Ipv6Addr};

use http::header;
use poem::Request;

/// The host in `name`, `name:port`, `[address]` or `[address]:port`: a name, or an address without brackets. It may be
/// empty, as RFC 3986 allows. `None` if the text is anything else, so that no part of a malformed value is taken for the
/// host.
///
/// Runs for each request. `http::uri::Authority` would copy the text, and accepts userinfo and ports that are no numbers.
pub(crate) fn host_name(text: &str) -> Option<&str> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (address, port)
        }
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            // The characters of a `reg-name` of RFC 3986.
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte);
            name.bytes().all(is_allowed).then_some((name, port))?
        }
    };
    let is_number = |digits: &str| digits.parse::<u16>().is_ok() && !digits.starts_with('+');
    // RFC 3986 allows a colon alone.
    (matches!(port, "" | ":") || port.strip_prefix(':').is_some_and(is_number)).then_some(name)
}

/// The host that a request is for, without port and final dot: in HTTP/2 and in absolute URLs part of the URL, otherwise
/// a header.
pub fn requested_host(request: &Request) -> Option<&str> {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let host = host_name(authority.or_else(|| request.header(header::HOST))?)?;
    Some(host.strip_suffix('.').unwrap_or(host))
}

/// Whether a request is for this host, or for a loopback name. For services that a web page could otherwise reach under a
/// name that its owner controls (DNS rebinding).
pub fn is_for_host(request: &Request, host: &str) -> bool {
    requested_host(request).is_some_and(|name| name.eq_ignore_ascii_case(host) || is_loopback_name(name))
}

/// Whether all hosts that a request names are loopback names: `127.0.0.1:8082`, `[::1]`, `localhost:8082` and so on. HTTP/2
/// has the host in the URI, and a request may name it there and in the header.
///
/// For ports that only processes of the same machine may use: a web page can reach them by DNS rebinding, but its browser
/// then sends the name of the page's host.
pub fn is_for_loopback(request: &Request) -> bool {
    let headers = request.headers().get_all(header::HOST).into_iter().map(|host| host.to_str().unwrap_or(""));
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let mut hosts = headers.chain(authority).peekable();
    hosts.peek().is_some() && hosts.all(|host| host_name(host).is_some_and(is_loopback_name))
}

/// Whether a name from [`host_name`] is `localhost` or a loopback address.
fn is_loopback_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_hosts_have_a_name() {
        for (host, name) in [
            ("localhost", "localhost"),
            ("localhost:8082", "localhost"),
            ("localhost:", "localhost"),
            ("10.0.0.1:65535", "10.0.0.1"),
            ("[::1]", "::1"),
            ("[::1]:8082", "::1"),
            ("a_b.example", "a_b.example"),
            ("", ""),
        ] {
            assert_eq!(host_name(host), Some(name), "{host}");
        }
    }

    #[test]
    fn only_bytes_of_rfc_3986_occur_in_names() {
        for byte in 0..128_u8 {
            let allowed = byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:".contains(&byte);
            assert_eq!(host_name(&char::from(byte).to_string()).is_some(), allowed, "{byte}");
        }
    }

    #[test]
    fn malformed_hosts_have_no_name() {
        for host in [
            "localhost:8082.evil.example",
            "localhost:80:80",
            "localhost:65536",
            "localhost:+1",
            "[::1].evil.example",
            "[::1]x:80",
            "[::1",
            "[localhost]",
            "::1",
            "user@localhost",
            "localhost/path",
            "local host",
            "ü.example",
        ] {
            assert_eq!(host_name(host), None, "{host}");
        }
    }

    #[test]
    fn only_loopback_hosts_count_as_loopback() {
        for host in ["127.0.0.1", "127.0.0.1:8082", "127.9.9.9:1", "[::1]", "[::1]:8082", "LOCALHOST:8082"] {
            assert!(host_name(host).is_some_and(is_loopback_name), "{host}");
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
            assert!(!host_name(host).is_some_and(is_loopback_name), "{host}");
        }
    }

    #[test]
    fn only_the_given_host_and_loopback_names_are_accepted() {
        let is_for = |host: &str, given: &str| {
            is_for_host(&Request::builder().header(header::HOST, host).finish(), given)
        };
        for host in [
            "keys.example",
            "Keys.Example:443",
            "keys.example.:8443",
            "keys.example:",
            "localhost:8081",
            "127.9.9.9",
            "[::1]:8081",
        ] {
            assert!(is_for(host, "keys.example"), "{host}");
        }
        for host in [
            "evil.example",
            "keys.example.evil.example",
            "localhost.evil.example",
            "localhost:8081.evil.example",
            "keys.example:80x",
            "192.0.2.1",
            ":8081",
            "",
        ] {
            assert!(!is_for(host, "keys.example"), "{host}");
        }
        assert!(is_for("[2001:db8::1]:8081", "2001:db8::1"));
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
