//! The streams of an HTTP/2 connection.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::rt::Executor;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Streams that hyper has begun and the connection's task does not run yet.
#[derive(Clone, Default)]
pub(crate) struct NewStreams(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for NewStreams {
    fn execute(&self, stream: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(stream));
    }
}

/// Runs the streams of a connection in its task, so that eviction releases their memory at once. Separate tasks would keep
/// it until they are scheduled, after those of many other connections.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) new: NewStreams,
    running: FuturesUnordered<Stream>,
}

impl Streams {
    /// Continues the streams. Returns whether one has ended, so that there is something to send.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.running.extend(self.new.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
        let mut has_ended = false;
        while let Poll::Ready(Some(())) = self.running.poll_next_unpin(cx) {
            has_ended = true;
        }
        has_ended
    }
}
