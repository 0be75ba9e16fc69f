//! The tasks of HTTP/2 streams. Each can be aborted, which resets its stream.

use std::future::Future;

use futures_util::future::{AbortHandle, Abortable};
use hyper::rt::Executor;

tokio::task_local! {
    /// Aborts the stream that the current task serves.
    static STREAM: AbortHandle;
}

/// Runs each stream that hyper accepts in a task of its own.
///
/// hyper can't reset a stream whose client does not read, but h2 resets a stream when hyper's future is dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamExecutor;

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let (handle, registration) = AbortHandle::new_pair();
        tokio::spawn(STREAM.scope(handle, Abortable::new(stream, registration)));
    }
}

/// The handle of the stream that the current task serves. `None` on HTTP/1, where a connection has no streams.
pub(super) fn current() -> Option<AbortHandle> {
    STREAM.try_with(AbortHandle::clone).ok()
}
