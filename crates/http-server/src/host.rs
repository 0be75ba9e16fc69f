//! Parses `Host` headers and the authority of a URL (without userinfo).

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use http::header;
use poem::Request;

/// The host in `name`, `name:port`, `[address]` or `[address]:port`: a name, or an address without brackets. It may be
/// empty, as RFC 3986 allows. `None` if the text is anything else, so that no part of a malformed value is taken for the
/// host.
pub fn host_name(text: &str) -> Option<&str> {
    text.get(name_range(text.as_bytes())?)
}

/// Whether a value has a [`host_name`]. Runs for each request, so it reads every byte only once.
pub(crate) fn is_host(value: &[u8]) -> bool {
    name_range(value).is_some()
}

fn name_range(value: &[u8]) -> Option<Range<usize>> {
    let (name, suffix) = match value {
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == b']')?;
            str::from_utf8(&rest[..end]).ok()?.parse::<Ipv6Addr>().ok()?;
            (1..end + 1, &rest[end + 1..])
        }
        _ => {
            let end = value.iter().position(|byte| !NAME_BYTES[usize::from(*byte)]).unwrap_or(value.len());
            (0..end, &value[end..])
        }
    };
    is_port_suffix(suffix).then_some(name)
}

/// Whether the suffix is empty, or a colon and a port number. A colon alone is allowed by RFC 3986.
fn is_port_suffix(suffix: &[u8]) -> bool {
    let digit = |port: u16, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u16::from(byte - b'0'))?;
        port.checked_mul(10)?.checked_add(digit)
    };
    match suffix {
        [] => true,
        [b':', port @ ..] => port.iter().try_fold(0, digit).is_some(),
        _ => false,
    }
}

/// Whether a byte may occur in a `reg-name` of RFC 3986.
const NAME_BYTES: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let (others, mut index) = (b"-._~%!$&'()*+,;=", 0);
    while index < others.len() {
        table[others[index] as usize] = true;
        index += 1;
    }
    table
};

/// The host that a request is for, without port and final dot: in HTTP/2 and in absolute URLs part of the URL, otherwise
/// a header.
pub fn requested_host(request: &Request) -> Option<&str> {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let host = host_name(authority.or_else(|| request.header(header::HOST))?)?;
    Some(host.strip_suffix('.').unwrap_or(host))
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
    hosts.peek().is_some() && hosts.all(is_loopback)
}

fn is_loopback(host: &str) -> bool {
    host_name(host).is_some_and(is_loopback_name)
}

/// Whether a name from [`host_name`] is `localhost` or a loopback address.
pub fn is_loopback_name(name: &str) -> bool {
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
            assert!(is_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn only_bytes_of_rfc_3986_occur_in_names() {
        for byte in 0..=u8::MAX {
            let allowed = byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte);
            assert_eq!(is_host(&[byte]), allowed || byte == b':', "{byte}");
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
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn only_loopback_hosts_count_as_loopback() {
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
