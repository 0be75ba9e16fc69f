//! Turns each request into a response, even if the endpoint fails or panics.

use std::{
    any::Any,
    convert::Infallible,
    future::{Future, ready},
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{FutureExt, future::Either};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version, header, uri::Scheme};
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use poem::{
    Addr, Response,
    endpoint::BoxEndpoint,
    web::{LocalAddr, RemoteAddr},
};

use super::{connection_state::ConnectionState, limits::MAX_HEADER_BYTES};
use crate::{
    error::{self, ErrorBody},
    lifecycle::Lifecycle,
    panic,
};

pub(super) type HyperResponse = hyper::Response<BoxBody<Bytes, io::Error>>;

/// The result of a call, or the payload of its panic.
type Caught<T> = Result<T, Box<dyn Any + Send>>;

/// Handles the requests of one port.
pub(super) struct RequestHandler {
    pub(super) endpoint: BoxEndpoint<'static>,
    pub(super) docs_url: String,
    pub(super) error_headers: HeaderMap,
    pub(super) lifecycle: Lifecycle,
    pub(super) local: SocketAddr,
}

impl RequestHandler {
    /// Handles a request. Never fails; a panic becomes a 500.
    pub(super) async fn handle(
        self: Arc<Self>,
        state: Arc<ConnectionState>,
        peer: SocketAddr,
        request: Request<Incoming>,
    ) -> Result<HyperResponse, Infallible> {
        let version = request.version();
        // For HEAD, hyper omits the body in HTTP/1 but not in HTTP/2, where sending it is a protocol error.
        let headers_only = version == Version::HTTP_2 && request.method() == Method::HEAD;
        let _guard = state.begin_request(version);
        let mut response = match header_bytes(&request) > MAX_HEADER_BYTES {
            true => self.with_error_headers(headers_too_large(&self.docs_url)),
            false => self.call(peer, request).await.unwrap_or_else(|_| self.panic_response()),
        };
        // Makes HTTP/1 clients reconnect, to another instance. HTTP/2 uses GOAWAY for this.
        if version != Version::HTTP_2 && self.lifecycle.is_shutting_down() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        if headers_only {
            response.take_body();
        }
        Ok(response.into())
    }

    // An `async fn` would hold a copy of the request until the response is ready.
    fn call(&self, peer: SocketAddr, request: Request<Incoming>) -> impl Future<Output = Caught<Response>> {
        let local = LocalAddr(Addr::SocketAddr(self.local));
        let remote = RemoteAddr(Addr::SocketAddr(peer));
        let request = (request, local, remote, Scheme::HTTP).into();
        let call = || self.endpoint.call(request);
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(future) => {
                let response = future.map(|result| result.unwrap_or_else(poem::Error::into_response));
                Either::Left(AssertUnwindSafe(response).catch_unwind())
            }
            Err(panic) => Either::Right(ready(Err(panic))),
        }
    }

    fn panic_response(&self) -> Response {
        self.with_error_headers(panic::internal_error(&self.docs_url))
    }

    fn with_error_headers(&self, mut response: Response) -> Response {
        response.headers_mut().extend(self.error_headers.clone());
        response
    }
}

/// The size of the URL's path and query plus all header lines, each with its `": "` and line break.
fn header_bytes(request: &Request<Incoming>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let line = |(name, value): (&http::HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    target + request.headers().iter().map(line).sum::<usize>()
}

fn headers_too_large(docs_url: &str) -> Response {
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    let message = format!("The URL and headers are too large. The limit is {MAX_HEADER_BYTES} bytes.");
    error::response(status, &ErrorBody::for_status(status, message, docs_url))
}
