//! Turns each request into a response, even if the endpoint fails or panics.

use std::{
    any::Any,
    convert::Infallible,
    future::{Future, ready},
    io,
    net::{IpAddr, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{AbortHandle, Either},
};
use http::{HeaderValue, Method, Request, StatusCode, Version, header, uri::Scheme};
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Incoming};
use poem::{
    Addr, Response,
    endpoint::BoxEndpoint,
    web::{LocalAddr, RemoteAddr},
};

use crate::{
    connection_info::{ConnectionInfo, RequestOrigin},
    connection_state::{ConnectionSignal, ConnectionState},
    host::is_host,
    lifecycle::Lifecycle,
    limits::MAX_HEADER_BYTES,
    registry::{ConnectionRegistry, PORT_UNSENT_LIMIT, Pressure},
    request_id::{RequestId, X_REQUEST_ID},
    response_body::{BodyMemory, ResponseBody},
};

pub(crate) type HyperResponse = hyper::Response<ResponseBody>;

/// The result of a call, or the payload of its panic.
type Caught<T> = Result<T, Box<dyn Any + Send>>;

/// Decides which peers are trusted.
pub type TrustedPeers = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Creates the server's own error responses from a status, a code for programs and a message for people.
pub type ErrorResponder = Arc<dyn Fn(StatusCode, &str, &str) -> Response + Send + Sync>;

/// An extension of a response: the connection closes after it, so that the client's next request can reach another
/// instance.
#[derive(Clone, Copy, Debug)]
pub struct CloseConnection;

/// An extension of a response whose body is shared with other responses, so that it takes no memory of its own.
#[derive(Clone, Copy, Debug)]
pub struct SharedBody;

/// Handles the requests of one port.
pub(crate) struct RequestHandler {
    pub(crate) endpoint: BoxEndpoint<'static>,
    pub(crate) errors: ErrorResponder,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) local: SocketAddr,
    pub(crate) registry: Arc<ConnectionRegistry>,
    pub(crate) trusted: TrustedPeers,
}

impl RequestHandler {
    /// Handles a request; `stream` is its HTTP/2 stream. Never fails; a panic becomes a 500.
    pub(crate) async fn handle(
        self: Arc<Self>,
        state: Arc<ConnectionState>,
        connection: Arc<ConnectionInfo>,
        stream: Option<AbortHandle>,
        request: Request<Incoming>,
    ) -> Result<HyperResponse, Infallible> {
        let version = request.version();
        // For HEAD, hyper omits the body in HTTP/1 but not in HTTP/2, where sending it is a protocol error.
        let headers_only = version == Version::HTTP_2 && request.method() == Method::HEAD;
        let guard = state.begin_request().await;
        let head = RequestHead::read(&request);
        let id = self.request_id(&connection, &head);
        let mut response = match self.reject(&request, &head) {
            Some(response) => response,
            None => {
                let origin = RequestOrigin { connection, id: id.clone() };
                self.call(origin, request).await.unwrap_or_else(|_| self.panic_response())
            }
        };
        // Makes clients reconnect, to another instance: by a header in HTTP/1, by GOAWAY in HTTP/2. At a shutdown all
        // connections get that signal.
        let close = response.extensions().get::<CloseConnection>().is_some();
        match version {
            Version::HTTP_2 if close => state.send_signal(ConnectionSignal::Drain),
            Version::HTTP_2 => {}
            _ if close || self.lifecycle.is_shutting_down() => {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        if headers_only {
            response.take_body();
        }
        let mut response = self.send(&state, stream, response);
        response.headers_mut().insert(X_REQUEST_ID, id.to_header());
        drop(guard);
        Ok(response)
    }

    /// The ID that a trusted proxy sends, otherwise a new one.
    fn request_id(&self, connection: &ConnectionInfo, head: &RequestHead<'_>) -> RequestId {
        let is_trusted =
            |_: &RequestId| !connection.client_is_unknown() && (self.trusted)(connection.client().ip());
        let received = head.id.only().and_then(RequestId::received);
        received.filter(is_trusted).unwrap_or_else(RequestId::generate)
    }

    /// The error response to a request that no endpoint should see.
    fn reject(&self, request: &Request<Incoming>, head: &RequestHead<'_>) -> Option<Response> {
        if head.bytes > MAX_HEADER_BYTES {
            let (code, message) = headers_too_large();
            return Some((self.errors)(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, code, &message));
        }
        let reason = check_host(request, head.host).err()?;
        Some((self.errors)(StatusCode::BAD_REQUEST, "bad_request", reason))
    }

    /// Hands a response over to hyper.
    fn send(
        &self,
        state: &Arc<ConnectionState>,
        stream: Option<AbortHandle>,
        response: Response,
    ) -> HyperResponse {
        let shared = response.extensions().get::<SharedBody>().is_some();
        let response: hyper::Response<BoxBody<Bytes, io::Error>> = response.into();
        let size = response.body().size_hint();
        let memory = match size.exact() {
            _ if shared => BodyMemory::Shared,
            Some(_) => BodyMemory::Known,
            None => BodyMemory::Streamed,
        };
        let length = usize::try_from(size.lower()).unwrap_or(usize::MAX >> 1);
        let own_bytes = if memory == BodyMemory::Known { length } else { 0 };
        let unsent = state.begin_response(stream, length, own_bytes);
        if self.registry.unsent() > PORT_UNSENT_LIMIT {
            self.registry.evict(Pressure::UnsentBytes);
        }
        response.map(|body| ResponseBody::new(body, memory, unsent))
    }

    // An `async fn` would hold a copy of the request until the response is ready.
    fn call(
        &self,
        origin: RequestOrigin,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Caught<Response>> {
        let local = LocalAddr(Addr::SocketAddr(self.local));
        let remote = RemoteAddr(Addr::SocketAddr(origin.connection.client()));
        let scheme = if origin.connection.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        request.extensions_mut().insert(origin);
        let request = (request, local, remote, scheme).into();
        match catch_unwind(AssertUnwindSafe(|| self.endpoint.call(request))) {
            Ok(future) => {
                let response = future.map(|result| result.unwrap_or_else(poem::Error::into_response));
                Either::Left(AssertUnwindSafe(response).catch_unwind())
            }
            Err(panic) => Either::Right(ready(Err(panic))),
        }
    }

    fn panic_response(&self) -> Response {
        let message = "Something went wrong on the server. Retry in a few seconds.";
        (self.errors)(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }
}

/// The code and the message of a 431.
pub(crate) fn headers_too_large() -> (&'static str, String) {
    let message =
        format!("The URL and headers are too large. The limit is {MAX_HEADER_BYTES} bytes and 100 headers.");
    ("headers_too_large", message)
}

/// What the server itself needs of a request's headers, read in one pass: each lookup by name would compute a hash.
struct RequestHead<'a> {
    /// The size of the URL's path and query plus all header lines, each with its `": "` and line break.
    bytes: usize,
    host: Values<'a>,
    id: Values<'a>,
}

/// The values of a header that may occur only once.
#[derive(Clone, Copy)]
enum Values<'a> {
    None,
    One(&'a HeaderValue),
    Several,
}

impl<'a> Values<'a> {
    fn add(&mut self, value: &'a HeaderValue) {
        *self = match self {
            Self::None => Self::One(value),
            Self::One(_) | Self::Several => Self::Several,
        };
    }

    fn only(self) -> Option<&'a HeaderValue> {
        match self {
            Self::One(value) => Some(value),
            Self::None | Self::Several => None,
        }
    }
}

impl<'a> RequestHead<'a> {
    fn read(request: &'a Request<Incoming>) -> Self {
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        let mut head = Self { bytes: target, host: Values::None, id: Values::None };
        for (name, value) in request.headers() {
            head.bytes += name.as_str().len() + value.len() + 4;
            if *name == header::HOST {
                head.host.add(value);
            } else if *name == X_REQUEST_ID {
                head.id.add(value);
            }
        }
        head
    }
}

/// Checks that it is clear which host a request is for: HTTP/1.1 requires one `Host` header, and no version allows two
/// or a malformed one.
fn check_host(request: &Request<Incoming>, host: Values<'_>) -> Result<(), &'static str> {
    match host {
        Values::Several => return Err("The request has more than one Host header."),
        Values::None if request.version() == Version::HTTP_11 => {
            return Err("The request has no Host header.");
        }
        Values::One(host) if !is_host(host.as_bytes()) => {
            return Err("The Host header is malformed. Send a name or an address, with or without a port.");
        }
        Values::None | Values::One(_) => {}
    }
    if request.uri().authority().is_some_and(|authority| !is_host(authority.as_str().as_bytes())) {
        return Err("The host in the URL is malformed. Send a name or an address, with or without a port.");
    }
    Ok(())
}
