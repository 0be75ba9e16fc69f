//! One request to one response, whatever happens in between.

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

use super::{activity::Activity, limits::MAX_HEADER_BYTES};
use crate::{
    error::{self, ErrorBody},
    lifecycle::Lifecycle,
    panic,
};

/// What hyper sends.
pub(super) type HyperResponse = hyper::Response<BoxBody<Bytes, io::Error>>;

/// What came of a call that may panic.
type Caught<T> = Result<T, Box<dyn Any + Send>>;

/// The service behind a port.
pub(super) struct Answers {
    pub(super) endpoint: BoxEndpoint<'static>,
    pub(super) docs_url: String,
    pub(super) error_headers: HeaderMap,
    pub(super) lifecycle: Lifecycle,
    pub(super) local: SocketAddr,
}

impl Answers {
    /// Answers a request; never fails, and a panic is a 500.
    pub(super) async fn answer(
        self: Arc<Self>,
        activity: Arc<Activity>,
        peer: SocketAddr,
        request: Request<Incoming>,
    ) -> Result<HyperResponse, Infallible> {
        let version = request.version();
        // To HEAD hyper sends no body in HTTP/1, but it does in HTTP/2, where that is an error.
        let headers_only = version == Version::HTTP_2 && request.method() == Method::HEAD;
        let _busy = activity.begin(version);
        let mut response = match header_bytes(&request) > MAX_HEADER_BYTES {
            true => self.own(headers_too_large(&self.docs_url)),
            false => self.call(peer, request).await.unwrap_or_else(|_| self.own_panic()),
        };
        // HTTP/2 has GOAWAY for this; an HTTP/1 client learns it here and reconnects elsewhere in time.
        if version != Version::HTTP_2 && self.lifecycle.is_draining() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        if headers_only {
            response.take_body();
        }
        Ok(response.into())
    }

    /// Not an `async fn`: one would keep a copy of the request for as long as it is being answered.
    fn call(&self, peer: SocketAddr, request: Request<Incoming>) -> impl Future<Output = Caught<Response>> {
        let local = LocalAddr(Addr::SocketAddr(self.local));
        let remote = RemoteAddr(Addr::SocketAddr(peer));
        let request = (request, local, remote, Scheme::HTTP).into();
        let begin = || self.endpoint.call(request);
        match catch_unwind(AssertUnwindSafe(begin)) {
            Ok(answer) => {
                let response = answer.map(|answer| answer.unwrap_or_else(poem::Error::into_response));
                Either::Left(AssertUnwindSafe(response).catch_unwind())
            }
            Err(panic) => Either::Right(ready(Err(panic))),
        }
    }

    fn own_panic(&self) -> Response {
        self.own(panic::internal_error(&self.docs_url))
    }

    fn own(&self, mut response: Response) -> Response {
        response.headers_mut().extend(self.error_headers.clone());
        response
    }
}

fn header_bytes(request: &Request<Incoming>) -> usize {
    // An address is short wherever there is no query; `": "` and the line's end count too.
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let line = |(name, value): (&http::HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    target + request.headers().iter().map(line).sum::<usize>()
}

fn headers_too_large(docs_url: &str) -> Response {
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    let words = format!("The request's address and headers may have {MAX_HEADER_BYTES} bytes together.");
    error::response(status, &ErrorBody::for_status(status, words, docs_url))
}
