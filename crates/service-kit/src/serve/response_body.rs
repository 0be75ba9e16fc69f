//! A response body in small pieces, so that the server sees how fast the client reads it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};

use super::{connection_state::ResponseGuard, unsent::UnsentReservation};

/// The size of a piece on HTTP/1, where progress is measured at the socket.
const HTTP1_PIECE: usize = 16 * 1024;

/// The size of a piece on HTTP/2, where progress is measured by the pieces that the client's window lets through. It
/// doubles while the client is fast, up to the maximum, and becomes the minimum when the client is slow.
const HTTP2_PIECE_FIRST: usize = 1024;
const HTTP2_PIECE_MIN: usize = 64;
const HTTP2_PIECE_MAX: usize = 8 * 1024;

/// The body of a response that is being sent.
///
/// hyper hands a whole piece to h2 as soon as the client's window has room for one byte, and after the last piece it
/// drops the body and gives up control of the stream. On HTTP/2 the last piece is therefore a single byte: once it
/// has been handed over, the window has room for the whole response.
pub(super) struct ResponseBody {
    inner: BoxBody<Bytes, io::Error>,
    /// Data that `inner` has produced and that is not handed over yet.
    rest: Bytes,
    /// The size of the last piece on HTTP/2.
    piece: usize,
    guard: ResponseGuard,
    /// Counts the response as unsent until it is dropped.
    _unsent: Option<UnsentReservation>,
}

impl ResponseBody {
    pub(super) fn new(
        inner: BoxBody<Bytes, io::Error>,
        guard: ResponseGuard,
        unsent: Option<UnsentReservation>,
    ) -> Self {
        Self { inner, rest: Bytes::new(), piece: HTTP2_PIECE_FIRST / 2, guard, _unsent: unsent }
    }

    /// Takes the next piece of `rest`.
    fn take_piece(&mut self) -> Bytes {
        let fast = self.guard.on_progress();
        let length = self.rest.len();
        if !self.guard.is_http2() {
            return self.rest.split_to(length.min(HTTP1_PIECE));
        }
        self.piece = if fast { (self.piece * 2).min(HTTP2_PIECE_MAX) } else { HTTP2_PIECE_MIN };
        let last = length <= self.piece && self.inner.is_end_stream();
        self.rest.split_to(if last && length > 1 { length - 1 } else { length.min(self.piece) })
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
            if self.rest.is_empty() && self.inner.is_end_stream() {
                return Poll::Ready(None);
            }
        }
        Poll::Ready(Some(Ok(Frame::data(self.take_piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use futures_util::FutureExt;
    use http::Version;
    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::serve::connection_state::ConnectionState;

    fn body(bytes: usize, version: Version) -> ResponseBody {
        let state = Arc::new(ConnectionState::new(Duration::from_secs(30)));
        let inner = Full::new(Bytes::from(vec![b'x'; bytes])).map_err(|never| match never {}).boxed();
        ResponseBody::new(inner, state.begin_request(version).begin_response(None), None)
    }

    /// The lengths of all pieces.
    fn pieces(mut body: ResponseBody) -> Vec<usize> {
        let mut pieces = Vec::new();
        while !body.is_end_stream() {
            let frame = body.frame().now_or_never().expect("data is ready").expect("not ended");
            pieces.push(frame.expect("no error").into_data().expect("data").len());
        }
        pieces
    }

    #[test]
    fn http2_pieces_grow_and_end_with_one_byte() {
        assert_eq!(pieces(body(20_000, Version::HTTP_2)), [1024, 2048, 4096, 8192, 4639, 1]);
        assert_eq!(pieces(body(600, Version::HTTP_2)), [599, 1]);
        assert_eq!(pieces(body(1, Version::HTTP_2)), [1]);
    }

    #[test]
    fn http1_pieces_are_16_kib() {
        assert_eq!(pieces(body(40_000, Version::HTTP_11)), [16_384, 16_384, 7_232]);
        assert_eq!(pieces(body(600, Version::HTTP_11)), [600]);
    }

    #[test]
    fn size_hint_stays_exact_while_data_is_taken() {
        let mut body = body(40_000, Version::HTTP_11);
        assert_eq!(body.size_hint().exact(), Some(40_000));
        let _ = body.frame().now_or_never();
        assert_eq!(body.size_hint().exact(), Some(40_000 - 16_384));
    }
}
