//! Turns each request into a response, even if the endpoint fails or panics.

use std::{
    any::Any,
    convert::Infallible,
    fmt,
    future::{Future, ready},
    io,
    net::{IpAddr, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{FutureExt, future::Either};
use http::{HeaderValue, Method, Request, StatusCode, Version, header, uri::Scheme};
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Incoming};
use poem::{
    Addr, Response,
    endpoint::BoxEndpoint,
    web::{LocalAddr, RemoteAddr},
};

use super::{
    connection_info::ConnectionInfo,
    connection_state::{ConnectionSignal, ConnectionState, RequestGuard},
    limits::MAX_HEADER_BYTES,
    registry::ConnectionRegistry,
    response_body::ResponseBody,
    server_errors::ServerErrors,
    streams,
    unsent::{UnsentBudget, UnsentLimit},
};
use crate::{
    error,
    host::is_host,
    lifecycle::Lifecycle,
    request_id::{RequestId, X_REQUEST_ID},
    static_file::SharedBody,
};

pub(super) type HyperResponse = hyper::Response<ResponseBody>;

/// The result of a call, or the payload of its panic.
type Caught<T> = Result<T, Box<dyn Any + Send>>;

/// An extension of a response: the connection closes after it, so that the client's next request can reach another
/// instance.
#[derive(Clone, Copy, Debug)]
pub struct CloseConnection;

/// Decides which peers are trusted.
pub(super) struct TrustedPeers(pub(super) Box<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl TrustedPeers {
    pub(super) fn none() -> Self {
        Self(Box::new(|_| false))
    }
}

impl fmt::Debug for TrustedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrustedPeers")
    }
}

/// Handles the requests of one port.
pub(super) struct RequestHandler {
    pub(super) endpoint: BoxEndpoint<'static>,
    pub(super) errors: Arc<ServerErrors>,
    pub(super) lifecycle: Lifecycle,
    pub(super) local: SocketAddr,
    pub(super) registry: Arc<ConnectionRegistry>,
    pub(super) unsent: Arc<UnsentBudget>,
    pub(super) request_ids_from: TrustedPeers,
}

impl RequestHandler {
    /// Handles a request. Never fails; a panic becomes a 500.
    pub(super) async fn handle(
        self: Arc<Self>,
        state: Arc<ConnectionState>,
        info: Arc<ConnectionInfo>,
        request: Request<Incoming>,
    ) -> Result<HyperResponse, Infallible> {
        let version = request.version();
        // For HEAD, hyper omits the body in HTTP/1 but not in HTTP/2, where sending it is a protocol error.
        let headers_only = version == Version::HTTP_2 && request.method() == Method::HEAD;
        let guard = state.begin_request(version);
        let head = RequestHead::read(&request);
        let id = self.request_id(&info, &head);
        let mut response = match self.reject(&request, &head) {
            Some(response) => response,
            None => self.call(info, id.clone(), request).await.unwrap_or_else(|_| self.panic_response()),
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
        let mut response = self.send(&state, guard, response);
        response.headers_mut().insert(X_REQUEST_ID, id.to_header());
        Ok(response)
    }

    /// The ID that a trusted proxy sends, otherwise a new one.
    fn request_id(&self, info: &ConnectionInfo, head: &RequestHead<'_>) -> RequestId {
        let is_trusted =
            |_: &RequestId| !info.client_is_unknown() && (self.request_ids_from.0)(info.client().ip());
        let received = head.id.only().and_then(RequestId::received);
        received.filter(is_trusted).unwrap_or_else(RequestId::generate)
    }

    /// The error response to a request that no endpoint should see.
    fn reject(&self, request: &Request<Incoming>, head: &RequestHead<'_>) -> Option<Response> {
        if head.bytes > MAX_HEADER_BYTES {
            return Some(self.errors.headers_too_large());
        }
        let reason = check_host(request, head.host).err()?;
        Some(self.errors.response(StatusCode::BAD_REQUEST, reason))
    }

    /// Hands a response over to hyper, or an error in its place if too many responses are unread.
    fn send(&self, state: &Arc<ConnectionState>, guard: RequestGuard, response: Response) -> HyperResponse {
        let shared = response.extensions().get::<SharedBody>().is_some();
        let response: hyper::Response<BoxBody<Bytes, io::Error>> = response.into();
        let own_bytes = if shared { 0 } else { response.body().size_hint().lower() };
        let own_bytes = usize::try_from(own_bytes).unwrap_or(usize::MAX);
        let (response, unsent) = match self.unsent.reserve(state, own_bytes) {
            Ok(reservation) => (response, Some(reservation)),
            Err(limit) => {
                if limit == UnsentLimit::Port {
                    self.registry.evict_stalled();
                }
                (self.too_many_unread(limit).into(), None)
            }
        };
        let has_stream = state.is_http2() && !response.body().is_end_stream();
        let stream = if has_stream { streams::current() } else { None };
        let guard = guard.begin_response(stream);
        response.map(|body| ResponseBody::new(body, guard, unsent))
    }

    fn too_many_unread(&self, limit: UnsentLimit) -> Response {
        let message = match limit {
            UnsentLimit::Connection => {
                "Too many responses of this connection are unread. Read them, then retry."
            }
            UnsentLimit::Port => "Too many responses of this server are unread. Retry in a few seconds.",
        };
        self.errors.response(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    // An `async fn` would hold a copy of the request until the response is ready.
    fn call(
        &self,
        info: Arc<ConnectionInfo>,
        id: RequestId,
        request: Request<Incoming>,
    ) -> impl Future<Output = Caught<Response>> {
        let local = LocalAddr(Addr::SocketAddr(self.local));
        let remote = RemoteAddr(Addr::SocketAddr(info.client()));
        let scheme = if info.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let request = (request, local, remote, scheme).into();
        // Some middleware reads the connection or the ID before it returns the future.
        let call = || id.clone().enter(|| info.enter(|| self.endpoint.call(request)));
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(future) => {
                let response = future.map(|result| result.unwrap_or_else(poem::Error::into_response));
                Either::Left(id.scope(info.scope(AssertUnwindSafe(response).catch_unwind())))
            }
            Err(panic) => Either::Right(ready(Err(panic))),
        }
    }

    fn panic_response(&self) -> Response {
        self.errors.with_headers(error::internal_error(&self.errors.docs_url))
    }
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
