//! Turns each request into a response, whose body reports when it is released.

use std::future::{Future, pending};
use std::task::{Context, Poll, ready};
use std::{convert::Infallible, io, pin::Pin, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Version, header, uri::Scheme};
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use poem::web::{LocalAddr, RemoteAddr};
use poem::{Addr, Response};

use crate::connection_info::{ConnectionInfo, RequestId, RequestOrigin, X_REQUEST_ID};
use crate::connection_state::{ConnectionState, UnfinishedRequest};
use crate::error::headers_too_large;
use crate::limits::{MAX_HEADER_BYTES, MAX_HEADERS};
use crate::{host::host_name, port::Port};

/// An extension of a response: the connection closes after it, so that the next request can reach another instance.
#[derive(Clone, Copy, Debug)]
pub struct CloseConnection;

/// An extension of a response whose body is shared with other responses, so that it takes no memory of its own.
#[derive(Clone, Copy, Debug)]
pub struct SharedBody;

/// Handles a request, which counts from this call on.
pub(crate) fn handle(
    port: &Arc<Port>,
    state: &Arc<ConnectionState>,
    connection: &Arc<ConnectionInfo>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<hyper::Response<ResponseBody>, Infallible>> + use<> {
    let header_bytes = header_bytes(&request);
    let mut unfinished = state.on_request(header_bytes, request.headers().len());
    let is_evicted = port.registry.relieve(state);
    let id = port.request_id(connection, &request);
    let rejected = port.reject(&request, header_bytes);
    let is_http2 = request.version() == Version::HTTP_2;
    let origin = RequestOrigin { connection: connection.clone(), id: id.clone() };
    let (port, state) = (port.clone(), state.clone());
    // For HEAD, hyper omits the body in HTTP/1 but not in HTTP/2, where sending it is a protocol error.
    let headers_only = is_http2 && request.method() == Method::HEAD;
    // The headers of a connection that has just been evicted are released here, before the future runs.
    let request = (!is_evicted).then_some(request);
    async move {
        // The connection's task drops this future when it sees the signal.
        let Some(request) = request.filter(|_| unfinished.begin()) else { return pending().await };
        let mut response = match rejected {
            Some(response) => response,
            None => port.call(origin, request).await.unwrap_or_else(poem::Error::into_response),
        };
        // Makes clients reconnect: by a header in HTTP/1, by GOAWAY in HTTP/2, which all connections get at a shutdown.
        let close = response.extensions().get::<CloseConnection>().is_some();
        if !is_http2 && (close || port.lifecycle.is_shutting_down()) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        } else if close {
            state.drain();
        }
        if headers_only {
            response.take_body();
        }
        response.headers_mut().insert(X_REQUEST_ID, id.to_header());
        let is_shared = response.extensions().get::<SharedBody>().is_some();
        let response: hyper::Response<BoxBody<Bytes, io::Error>> = response.into();
        let length = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX >> 1);
        unfinished.respond(if is_shared { 0 } else { length });
        port.registry.relieve(&state);
        let request = Arc::new(unfinished);
        Ok(response.map(|inner| ResponseBody { inner, rest: Bytes::new(), request }))
    }
}

impl Port {
    /// The ID that a trusted proxy sends, otherwise a new one.
    fn request_id(&self, connection: &ConnectionInfo, request: &Request<Incoming>) -> RequestId {
        let mut ids = request.headers().get_all(X_REQUEST_ID).iter();
        let received = ids.next().filter(|_| ids.next().is_none()).and_then(RequestId::received);
        let is_trusted = || !connection.client_is_unknown() && (self.trusted)(connection.client().ip());
        received.filter(|_| is_trusted()).unwrap_or_else(RequestId::generate)
    }

    /// The error response to a request that no endpoint should see.
    fn reject(&self, request: &Request<Incoming>, header_bytes: usize) -> Option<Response> {
        if header_bytes > MAX_HEADER_BYTES || request.headers().len() > MAX_HEADERS {
            return Some(headers_too_large(&self.errors, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        }
        let reason = check_host(request).err()?;
        Some((self.errors)(StatusCode::BAD_REQUEST, "bad_request", reason))
    }

    // An `async fn` would hold a copy of the request until the response is ready.
    fn call(
        &self,
        origin: RequestOrigin,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = poem::Result<Response>> {
        let local = LocalAddr(Addr::SocketAddr(self.addr));
        let remote = RemoteAddr(Addr::SocketAddr(origin.connection.client()));
        let scheme = if origin.connection.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        request.extensions_mut().insert(origin);
        self.endpoint.call((request, local, remote, scheme).into())
    }
}

/// The size of the URL's path and query plus all header lines, each with its `": "` and line break.
fn header_bytes(request: &Request<Incoming>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let lines = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    target + lines.sum::<usize>()
}

/// Checks that the host is clear: HTTP/1.1 requires a `Host` header, and no version allows two or a malformed one.
fn check_host(request: &Request<Incoming>) -> Result<(), &'static str> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    let authority = request.uri().authority();
    if second.is_some() {
        Err("The request has more than one Host header.")
    } else if host.is_none() && request.version() == Version::HTTP_11 {
        Err("The request has no Host header.")
    } else if host.is_some_and(|host| host.to_str().ok().and_then(host_name).is_none()) {
        Err("The Host header is malformed. Send a name or an address, with or without a port.")
    } else if authority.is_some_and(|authority| host_name(authority.as_str()).is_none()) {
        Err("The host in the URL is malformed. Send a name or an address, with or without a port.")
    } else {
        Ok(())
    }
}

/// Maximum size of a piece. On HTTP/2, progress is recorded per piece.
const PIECE: usize = 16 * 1024;

/// The body of a response that is being sent.
pub(crate) struct ResponseBody {
    inner: BoxBody<Bytes, io::Error>,
    /// Data that `inner` has produced and hyper has not taken yet.
    rest: Bytes,
    request: Arc<UnfinishedRequest>,
}

/// Data that hyper or h2 drops once it is written or discarded.
struct Piece {
    data: Bytes,
    request: Arc<UnfinishedRequest>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.request.on_progress();
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) if frame.is_data() => self.rest = frame.into_data().unwrap_or_default(),
                trailers_or_end => return Poll::Ready(trailers_or_end),
            }
            self.request.on_progress();
            if self.is_end_stream() {
                return Poll::Ready(None);
            }
        }
        let length = self.rest.len().min(PIECE);
        let piece = Piece { data: self.rest.split_to(length), request: self.request.clone() };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    /// hyper reads it before it takes the first piece.
    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
