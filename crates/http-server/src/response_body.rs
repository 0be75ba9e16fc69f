//! A response body in pieces that count as unsent until they are written to the socket.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};

use crate::connection_state::UnsentBytes;

/// Maximum size of a piece. On HTTP/2, a client makes progress with each piece that is written.
const PIECE: usize = 16 * 1024;

/// Who owns the memory of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyMemory {
    /// The response, and its length is known.
    Known,
    /// The response, but its length is not known in advance.
    Streamed,
    /// A static file, whose data is shared by all responses.
    Shared,
}

/// The body of a response that is being sent.
pub(crate) struct ResponseBody {
    inner: BoxBody<Bytes, io::Error>,
    /// Data that `inner` has produced and hyper has not taken yet.
    rest: Bytes,
    memory: BodyMemory,
    /// The count of what hyper has not taken yet.
    unsent: UnsentBytes,
}

impl ResponseBody {
    pub(crate) fn new(inner: BoxBody<Bytes, io::Error>, memory: BodyMemory, unsent: UnsentBytes) -> Self {
        Self { inner, rest: Bytes::new(), memory, unsent }
    }

    /// Takes the next piece of `rest`, with its count.
    fn take_piece(&mut self) -> Bytes {
        let data = self.rest.split_to(self.rest.len().min(PIECE));
        let bytes = match self.memory {
            // The last piece, with the overhead.
            _ if self.is_end_stream() => usize::MAX,
            BodyMemory::Shared => 0,
            BodyMemory::Known | BodyMemory::Streamed => data.len(),
        };
        let unsent = self.unsent.split(bytes);
        Bytes::from_owner(Piece { data, _unsent: unsent })
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // hyper has passed all data to h2, and its future has ended.
        self.unsent.hand_over();
    }
}

/// Data that counts as unsent until hyper or h2 drops it.
struct Piece {
    data: Bytes,
    _unsent: UnsentBytes,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
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
            if self.memory == BodyMemory::Streamed {
                let bytes = self.rest.len();
                self.unsent.extend(bytes);
            }
            if self.is_end_stream() {
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
