//! Serves several services on one port, each under its own host name.

use std::future::Future;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use poem::{Endpoint, EndpointExt, Request, Response, Result, endpoint::BoxEndpoint};

use crate::{
    body::BodyLimit,
    error::{self, ErrorBody, catch_all},
    host::requested_host,
    request_telemetry::{RequestTelemetry, named},
    serve::ConnectionInfo,
};

const CODE: &str = "wrong_host";
const MESSAGE: &str = "This host name is not served here, or the connection was opened for another host name. Check the \
                       URL, and use a new connection.";

/// Passes each request to the service of its host. Responds with 421 if there is none, and if the connection was opened
/// (by SNI) for the host of another service.
///
/// Without the second check, a client could reach a service through a connection that a firewall or proxy
/// allowed only for another service. Browsers repeat the request on a new connection.
pub struct HostRouter {
    hosts: Vec<Host>,
    endpoints: Vec<BoxEndpoint<'static>>,
    wrong_host: BoxEndpoint<'static>,
}

struct Host {
    name: String,
    /// Index of the service's endpoint. `None` if another port serves it.
    endpoint: Option<usize>,
}

impl HostRouter {
    /// Creates a router without hosts. Its errors link to `docs_url`.
    pub fn new(docs_url: &str, telemetry: RequestTelemetry) -> Self {
        let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let headers: HeaderMap = [no_store].into_iter().collect();
        let errors = catch_all(docs_url).headers(headers.clone());
        let body = ErrorBody::new(CODE, MESSAGE, docs_url);
        let respond = move |_: &Request| {
            let mut response = error::response(StatusCode::MISDIRECTED_REQUEST, &body);
            response.headers_mut().extend(headers.clone());
            response
        };
        let wrong_host = named(CODE, respond).with(BodyLimit::default()).with(errors).with(telemetry);
        Self { hosts: Vec::new(), endpoints: Vec::new(), wrong_host: wrong_host.boxed() }
    }

    /// Serves requests for this host.
    pub fn host(mut self, name: &str, endpoint: BoxEndpoint<'static>) -> Self {
        self.hosts.push(Host { name: name.to_owned(), endpoint: Some(self.endpoints.len()) });
        self.endpoints.push(endpoint);
        self
    }

    /// Serves requests for this host by the service that was added last. A connection for one name of a service is not
    /// used for another: their addresses may be of different families, and the service may need to know which.
    pub fn also(mut self, name: &str) -> Self {
        self.hosts.push(Host { name: name.to_owned(), endpoint: self.endpoints.len().checked_sub(1) });
        self
    }

    /// Names a host that another port serves. Connections for it get 421 here.
    pub fn elsewhere(mut self, name: &str) -> Self {
        self.hosts.push(Host { name: name.to_owned(), endpoint: None });
        self
    }

    fn endpoint(&self, request: &Request) -> Option<&BoxEndpoint<'static>> {
        let connection = ConnectionInfo::current();
        let tls = connection.as_ref().and_then(|connection| connection.tls.as_ref());
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
        self.hosts[index].endpoint.map(|endpoint| &self.endpoints[endpoint])
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name.eq_ignore_ascii_case(name))
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
    use poem::endpoint::make_sync;

    use super::*;
    use crate::telemetry::Telemetry;

    fn router() -> HostRouter {
        let service = |name: &'static str| make_sync(move |_| name).map_to_response().boxed();
        HostRouter::new("https://docs.example", RequestTelemetry::new(&Telemetry::for_tests(), "test"))
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
    async fn unknown_or_missing_host_gets_421_with_error_body() {
        let router = router();
        for request in [
            Request::builder().header(header::HOST, "evil.example"),
            Request::builder().uri_str("https://evil.example/").header(header::HOST, "ip.example"),
            Request::builder(),
        ] {
            let response = router.call(request.finish()).await.expect("a response");
            assert_eq!(response.status(), 421);
            assert_eq!(response.headers()["cache-control"], "no-store");
            let error: ErrorBody = serde_json::from_str(&body(response).await).expect("an error body");
            assert_eq!(
                (error.error.as_str(), error.docs.as_str()),
                ("wrong_host", "https://docs.example#wrong_host")
            );
        }
        for host in ["keys.example:443", "keys.example."] {
            let request = Request::builder().header(header::HOST, host).finish();
            assert_eq!(body(router.call(request).await.expect("a response")).await, "dashboard", "{host}");
        }
    }
}
