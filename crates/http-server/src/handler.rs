//! Turns each request into a response, whose body reports when it is released.

use std::task::{Context, Poll, ready};
use std::{convert::Infallible, future::Future, io, net::IpAddr, pin::Pin, sync::Arc};

use bytes::Bytes;
use futures_util::{FutureExt, future::AbortHandle};
use http::{HeaderValue, Method, Request, StatusCode, Version, header, uri::Scheme};
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use poem::web::{LocalAddr, RemoteAddr};
use poem::{Addr, Response};

use crate::connection_info::{ConnectionInfo, RequestOrigin};
use crate::connection_state::{ConnectionSignal, ConnectionState, UnsentResponse};
use crate::limits::{MAX_HEADER_BYTES, MAX_HEADERS};
use crate::request_id::{RequestId, X_REQUEST_ID};
use crate::server::Port;
use crate::{host::host_name, registry::Pressure};

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

impl Port {
    /// Handles a request; `stream` is its HTTP/2 stream.
    pub(crate) async fn handle(
        self: Arc<Self>,
        state: Arc<ConnectionState>,
        connection: Arc<ConnectionInfo>,
        stream: Option<AbortHandle>,
        request: Request<Incoming>,
    ) -> Result<hyper::Response<ResponseBody>, Infallible> {
        let version = request.version();
        // For HEAD, hyper omits the body in HTTP/1 but not in HTTP/2, where sending it is a protocol error.
        let headers_only = version == Version::HTTP_2 && request.method() == Method::HEAD;
        let head = RequestHead::read(&request);
        let id = self.request_id(&connection, &head);
        let rejected = self.reject(&request, &head);
        // A rejected request does not wait, because its large headers would stay in memory.
        let guard = state.begin_request(rejected.is_none()).await;
        let mut response = match rejected {
            Some(response) => response,
            None => {
                let origin = RequestOrigin { connection, id: id.clone() };
                self.call(origin, request).await.unwrap_or_else(poem::Error::into_response)
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
        let mut response = self.track(&state, stream, response);
        response.headers_mut().insert(X_REQUEST_ID, id.to_header());
        drop(guard);
        Ok(response)
    }

    /// The ID that a trusted proxy sends, otherwise a new one.
    fn request_id(&self, connection: &ConnectionInfo, head: &RequestHead<'_>) -> RequestId {
        let received = head.id.1.filter(|_| head.id.0 == 1).and_then(RequestId::received);
        let is_trusted = || !connection.client_is_unknown() && (self.trusted)(connection.client().ip());
        received.filter(|_| is_trusted()).unwrap_or_else(RequestId::generate)
    }

    /// The error response to a request that no endpoint should see.
    fn reject(&self, request: &Request<Incoming>, head: &RequestHead<'_>) -> Option<Response> {
        if head.bytes > MAX_HEADER_BYTES || request.headers().len() > MAX_HEADERS {
            let (code, message) = headers_too_large();
            return Some((self.errors)(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, code, &message));
        }
        let reason = check_host(request, head.host).err()?;
        Some((self.errors)(StatusCode::BAD_REQUEST, "bad_request", reason))
    }

    /// Counts a response as unsent, and wraps its body.
    fn track(
        &self,
        state: &Arc<ConnectionState>,
        stream: Option<AbortHandle>,
        response: Response,
    ) -> hyper::Response<ResponseBody> {
        let is_shared = response.extensions().get::<SharedBody>().is_some();
        let response: hyper::Response<BoxBody<Bytes, io::Error>> = response.into();
        let length = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX >> 1);
        let unsent = state.begin_response(stream, length, if is_shared { 0 } else { length });
        if self.registry.port.is_full() {
            self.registry.evict(Pressure::UnsentBytes, None);
        }
        response.map(|inner| ResponseBody { inner, rest: Bytes::new(), response: unsent })
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

/// The code and the message of a 431.
fn headers_too_large() -> (&'static str, String) {
    let message = format!(
        "The URL and headers are too large. The limit is {MAX_HEADER_BYTES} bytes and {MAX_HEADERS} headers."
    );
    ("headers_too_large", message)
}

/// What the server itself needs of a request's headers, read in one pass: each lookup by name would compute a hash.
struct RequestHead<'a> {
    /// The size of the URL's path and query plus all header lines, each with its `": "` and line break.
    bytes: usize,
    /// All `Host` headers: how many there are, and the last one.
    host: (usize, Option<&'a HeaderValue>),
    /// All `X-Request-Id` headers.
    id: (usize, Option<&'a HeaderValue>),
}

impl<'a> RequestHead<'a> {
    fn read(request: &'a Request<Incoming>) -> Self {
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        let mut head = Self { bytes: target, host: (0, None), id: (0, None) };
        for (name, value) in request.headers() {
            head.bytes += name.as_str().len() + value.len() + 4;
            if *name == header::HOST {
                head.host = (head.host.0 + 1, Some(value));
            } else if *name == X_REQUEST_ID {
                head.id = (head.id.0 + 1, Some(value));
            }
        }
        head
    }
}

/// Checks that it is clear which host a request is for: HTTP/1.1 requires one `Host` header, and no version allows two
/// or a malformed one.
fn check_host(
    request: &Request<Incoming>,
    (hosts, host): (usize, Option<&HeaderValue>),
) -> Result<(), &'static str> {
    let authority = request.uri().authority();
    if hosts > 1 {
        Err("The request has more than one Host header.")
    } else if hosts == 0 && request.version() == Version::HTTP_11 {
        Err("The request has no Host header.")
    } else if host.is_some_and(|host| host.to_str().ok().and_then(host_name).is_none()) {
        Err("The Host header is malformed. Send a name or an address, with or without a port.")
    } else if authority.is_some_and(|authority| host_name(authority.as_str()).is_none()) {
        Err("The host in the URL is malformed. Send a name or an address, with or without a port.")
    } else {
        Ok(())
    }
}

/// Returns the replacement for a bare 4xx, which hyper writes in one piece as the last response of an HTTP/1 connection
/// when it rejects a request itself. `None` if `bytes` are something else: all of our own responses have an ID.
pub(crate) fn replace_bare_error(bytes: &[u8], errors: &ErrorResponder) -> Option<Vec<u8>> {
    let status = bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3).filter(|status| status[0] == b'4')?;
    let head = str::from_utf8(bytes).ok()?.strip_suffix("\r\n")?;
    let is_bare = head.ends_with("\r\n") && head.contains("\r\ncontent-length: 0\r\n");
    let status =
        StatusCode::from_bytes(status).ok().filter(|_| is_bare && !head.contains("\r\nx-request-id: "))?;
    let (code, message) = match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG => headers_too_large(),
        _ => ("bad_request", "The request is not valid HTTP.".to_owned()),
    };
    let mut response = errors(status, code, &message);
    // In memory, so it is ready.
    let body = response.take_body().into_bytes().now_or_never()?.ok()?;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, body.len().into());
    // The request could not be parsed, so it can't have an ID of its own.
    headers.insert(X_REQUEST_ID, RequestId::generate().to_header());
    // hyper's lines are the status, `connection: close` and the date.
    let mut replacement = head.replace("content-length: 0\r\n", "").into_bytes();
    for (name, value) in &*headers {
        replacement.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    replacement.extend(b"\r\n");
    replacement.extend(body);
    Some(replacement)
}

/// Maximum size of a piece. On HTTP/2, progress is recorded per piece.
const PIECE: usize = 16 * 1024;

/// The body of a response that is being sent.
pub(crate) struct ResponseBody {
    inner: BoxBody<Bytes, io::Error>,
    /// Data that `inner` has produced and hyper has not taken yet.
    rest: Bytes,
    response: Arc<UnsentResponse>,
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.response.on_handed_over();
    }
}

/// Data that hyper or h2 drops once it is written or discarded.
struct Piece {
    data: Bytes,
    response: Arc<UnsentResponse>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.response.on_piece_released();
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
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
            if self.inner.size_hint().exact().is_none() {
                self.response.on_more_data(self.rest.len());
            }
            if self.is_end_stream() {
                return Poll::Ready(None);
            }
        }
        let length = self.rest.len().min(PIECE);
        let piece = Piece { data: self.rest.split_to(length), response: self.response.clone() };
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

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\
                        date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";

    fn replaced(bytes: &str) -> Option<String> {
        let errors: ErrorResponder = Arc::new(|status, code, _| {
            Response::builder().status(status).header("x-cors", "*").body(code.to_owned())
        });
        replace_bare_error(bytes.as_bytes(), &errors).map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
    }

    #[test]
    fn bare_error_gets_body_and_headers() {
        let text = replaced(BARE).expect("a bare response");
        let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
        assert!(
            head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ndate: ")
        );
        for line in ["x-cors: *", "content-length: 17", "x-request-id: "] {
            assert!(head.contains(&format!("\r\n{line}")), "{head}");
        }
        assert!(!head.contains("content-length: 0"), "{head}");
        assert_eq!(body, "headers_too_large");
    }

    #[test]
    fn our_own_responses_are_not_replaced() {
        for response in [
            BARE.replace("date:", "x-request-id: a\r\ndate:"),
            BARE.replace("431 ", "200 "),
            BARE.replace("content-length: 0", "content-length: 2") + "{}",
            BARE.replace("content-length: 0\r\n", ""),
            BARE.trim_end().to_owned(),
        ] {
            assert_eq!(replaced(&response), None, "{response}");
        }
    }
}
