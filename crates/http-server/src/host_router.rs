//! Serves several services on one port, each under its own host name.

use std::{future::Future, sync::Arc};

use http::{HeaderValue, StatusCode, header};
use poem::{Endpoint, Request, Response, Result, endpoint::BoxEndpoint};

use crate::{connection_info::RequestOrigin, error::ErrorResponder, host::requested_host};

/// The code of a 421.
pub const WRONG_HOST: &str = "wrong_host";
const MESSAGE: &str = "This host name is not served here, or the connection was opened for another host name. Check the \
                       URL, and use a new connection.";

/// The 421 for a host that is not served.
pub fn wrong_host(errors: &ErrorResponder) -> Response {
    let mut response = errors(StatusCode::MISDIRECTED_REQUEST, WRONG_HOST, MESSAGE);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Passes each request to the service of its host. Responds with 421 if there is none, and if the connection was opened
/// (by SNI) for the host of another service.
///
/// Without the second check, a client could reach a service through a connection that a firewall or proxy
/// allowed only for another service. Browsers repeat the request on a new connection.
pub struct HostRouter {
    /// Each host with the endpoint of its service. `None` if another port serves it.
    hosts: Vec<(String, Option<Arc<BoxEndpoint<'static>>>)>,
    wrong_host: BoxEndpoint<'static>,
}

impl HostRouter {
    /// Creates a router without hosts. `wrong_host` responds to requests for unknown ones.
    pub fn new(wrong_host: BoxEndpoint<'static>) -> Self {
        Self { hosts: Vec::new(), wrong_host }
    }

    /// Serves requests for this host.
    pub fn host(mut self, name: &str, endpoint: BoxEndpoint<'static>) -> Self {
        self.hosts.push((name.to_owned(), Some(Arc::new(endpoint))));
        self
    }

    /// Serves requests for this host by the service that was added last. A connection for one name of a service is not
    /// used for another: their addresses may be of different families, and the service may need to know which.
    pub fn also(mut self, name: &str) -> Self {
        let last = self.hosts.iter().rev().find_map(|(_, endpoint)| endpoint.clone());
        self.hosts.push((name.to_owned(), last));
        self
    }

    /// Names a host that another port serves. Connections for it get 421 here.
    pub fn elsewhere(mut self, name: &str) -> Self {
        self.hosts.push((name.to_owned(), None));
        self
    }

    fn endpoint(&self, request: &Request) -> Option<&BoxEndpoint<'static>> {
        let tls = RequestOrigin::of(request).and_then(|origin| origin.connection.tls.as_ref());
        self.find(requested_host(request)?, tls.and_then(|tls| tls.server_name.as_deref()))
    }

    /// The endpoint for a host on a connection with this SNI. An unknown SNI is ignored: a proxy may send its own name for
    /// this machine.
    fn find(&self, host: &str, server_name: Option<&str>) -> Option<&BoxEndpoint<'static>> {
        let index = self.index_of(host)?;
        let connection = server_name.and_then(|name| self.index_of(name));
        if connection.is_some_and(|connection| connection != index) {
            return None;
        }
        self.hosts[index].1.as_deref()
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|(host, _)| host.eq_ignore_ascii_case(name))
    }
}

impl Endpoint for HostRouter {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        self.endpoint(&request).unwrap_or(&self.wrong_host).call(request)
    }
}

#[cfg(test)]
mod tests {
    use poem::{EndpointExt, endpoint::make_sync};

    use super::*;

    fn router() -> HostRouter {
        let service = |name: &'static str| make_sync(move |_| name).map_to_response().boxed();
        let errors: ErrorResponder =
            Arc::new(|status, code, _| Response::builder().status(status).body(code.to_owned()));
        HostRouter::new(make_sync(move |_| wrong_host(&errors)).boxed())
            .host("ip.example", service("api"))
            .also("ipv4.ip.example")
            .host("keys.example", service("dashboard"))
            .elsewhere("other.example")
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
            let found = match router.find(host, server_name) {
                Some(endpoint) => {
                    Some(body(endpoint.call(Request::default()).await.expect("a response")).await)
                }
                None => None,
            };
            assert_eq!(found.as_deref(), want, "{host} {server_name:?}");
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
