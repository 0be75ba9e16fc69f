//! A response body in pieces that report when they are released.

use std::task::{Context, Poll, ready};
use std::{io, pin::Pin, sync::Arc};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};

use crate::connection_state::UnsentResponse;

/// Maximum size of a piece. On HTTP/2, progress is recorded per piece.
const PIECE: usize = 16 * 1024;

/// The body of a response that is being sent.
pub(crate) struct ResponseBody {
    pub(crate) inner: BoxBody<Bytes, io::Error>,
    /// Data that `inner` has produced and hyper has not taken yet.
    pub(crate) rest: Bytes,
    pub(crate) response: Arc<UnsentResponse>,
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
