//! Host names: parses `Host` headers and the authority of a URL (without userinfo), and serves several services on one
//! port, each under its own host names.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use poem::{Endpoint, Request, Response, Result, endpoint::BoxEndpoint};

use crate::{connection_info::RequestOrigin, error::ErrorResponder};

/// The code of a 421.
pub const WRONG_HOST: &str = "wrong_host";
const MESSAGE: &str = "This host name is not served here, or the connection was opened for another host name. Check the \
                       URL, and use a new connection.";

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

/// The host that a request is for, without port and final dot: that of the URL (always in HTTP/2), otherwise of the header.
pub fn requested_host(request: &Request) -> Option<&str> {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let host = host_name(authority.or_else(|| request.header(header::HOST))?)?;
    Some(host.strip_suffix('.').unwrap_or(host))
}

/// Whether a request is for this host or a loopback name. A web page that reaches it by DNS rebinding names another one.
pub fn is_for_host(request: &Request, host: &str) -> bool {
    requested_host(request).is_some_and(|name| name.eq_ignore_ascii_case(host) || is_loopback_name(name))
}

/// Whether all hosts that a request names, in the URL and in headers, are loopback names such as `[::1]` or `localhost:80`.
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

/// The 421 for a host that is not served.
pub fn wrong_host(errors: &ErrorResponder) -> Response {
    let mut response = errors(StatusCode::MISDIRECTED_REQUEST, WRONG_HOST, MESSAGE);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Passes each request to the service of its host. Responds with 421 if there is none, and if the connection was opened
/// (by SNI) for another host.
///
/// Without the second check, a client could reach a service through a connection that a firewall or proxy allowed only for
/// another service. Browsers repeat the request on a new connection. It separates the names of a service, too: their
/// addresses may be of different families, and the service may need to know which.
pub struct HostRouter {
    /// Each host with the endpoint of its service.
    hosts: Vec<(String, Arc<BoxEndpoint<'static>>)>,
    wrong_host: Arc<BoxEndpoint<'static>>,
}

impl HostRouter {
    /// Creates a router without hosts. `wrong_host` responds to requests for unknown ones.
    pub fn new(wrong_host: BoxEndpoint<'static>) -> Self {
        Self { hosts: Vec::new(), wrong_host: Arc::new(wrong_host) }
    }

    /// Serves requests for these hosts.
    pub fn hosts(
        mut self,
        names: impl IntoIterator<Item = impl Into<String>>,
        endpoint: BoxEndpoint<'static>,
    ) -> Self {
        let endpoint = Arc::new(endpoint);
        self.hosts.extend(names.into_iter().map(|name| (name.into(), endpoint.clone())));
        self
    }

    /// Names hosts that another port serves. Connections for them get 421 here.
    pub fn elsewhere(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hosts.extend(names.into_iter().map(|name| (name.into(), self.wrong_host.clone())));
        self
    }

    /// The endpoint for a host on a connection with this SNI. An unknown SNI is ignored: it may be a proxy's own name.
    fn find(&self, host: &str, server_name: Option<&str>) -> &BoxEndpoint<'static> {
        let index_of = |name: &str| self.hosts.iter().position(|(host, _)| host.eq_ignore_ascii_case(name));
        let (index, connection) = (index_of(host), server_name.and_then(index_of));
        let index = index.filter(|index| connection.is_none_or(|connection| connection == *index));
        index.map_or(&self.wrong_host, |index| &self.hosts[index].1)
    }
}

impl Endpoint for HostRouter {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        let tls = RequestOrigin::of(&request).and_then(|origin| origin.connection.tls.as_ref());
        let server_name = tls.and_then(|tls| tls.server_name.as_deref());
        let endpoint = self.find(requested_host(&request).unwrap_or_default(), server_name);
        endpoint.call(request)
    }
}

#[cfg(test)]
mod tests {
    use poem::{EndpointExt, endpoint::make_sync};

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

    fn router() -> HostRouter {
        let service = |name: &'static str| make_sync(move |_| name).map_to_response().boxed();
        let errors: ErrorResponder =
            Arc::new(|status, code, _| Response::builder().status(status).body(code.to_owned()));
        HostRouter::new(make_sync(move |_| wrong_host(&errors)).boxed())
            .hosts(["ip.example", "ipv4.ip.example"], service("api"))
            .hosts(["keys.example"], service("dashboard"))
            .elsewhere(["other.example"])
    }

    async fn body(response: Response) -> String {
        response.into_body().into_string().await.expect("a readable body")
    }

    #[tokio::test]
    async fn host_and_sni_select_the_service() {
        let router = router();
        for (host, server_name, want) in [
            ("ip.example", None, Some("api")),
            ("IP.Example", Some("ip.example"), Some("api")),
            ("keys.example", Some("keys.example"), Some("dashboard")),
            ("keys.example", Some("KEYS.example"), Some("dashboard")),
            ("keys.example", Some("proxied.internal"), Some("dashboard")),
            ("keys.example", Some("ip.example"), None),
            ("ip.example", Some("keys.example"), None),
            ("ip.example", Some("other.example"), None),
            ("ipv4.ip.example", None, Some("api")),
            ("IPv4.ip.example", Some("ipv4.ip.example"), Some("api")),
            ("ipv4.ip.example", Some("ip.example"), None),
            ("ip.example", Some("ipv4.ip.example"), None),
            ("other.example", Some("other.example"), None),
            ("other.example", None, None),
            ("xip.example", Some("ip.example"), None),
            ("ip.example.evil.example", None, None),
            ("localhost", None, None),
            ("", None, None),
        ] {
            let response = router.find(host, server_name).call(Request::default()).await;
            let found = body(response.expect("a response")).await;
            assert_eq!(found, want.unwrap_or(WRONG_HOST), "{host} {server_name:?}");
        }
    }

    #[tokio::test]
    async fn unknown_or_missing_host_gets_421() {
        let router = router();
        for request in [
            Request::builder().header(header::HOST, "evil.example"),
            Request::builder().uri_str("https://evil.example/").header(header::HOST, "ip.example"),
            Request::builder(),
        ] {
            let response = router.call(request.finish()).await.expect("a response");
            assert_eq!(response.status(), 421);
            assert_eq!(response.headers()["cache-control"], "no-store");
            assert_eq!(body(response).await, "wrong_host");
        }
        for host in ["keys.example:443", "keys.example."] {
            let request = Request::builder().header(header::HOST, host).finish();
            assert_eq!(body(router.call(request).await.expect("a response")).await, "dashboard", "{host}");
        }
    }
}
