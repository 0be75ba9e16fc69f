//! Serves one connection from its first byte until it closes.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

use super::{
    connection_info::ConnectionInfo,
    connection_state::{ConnectionSignal, ConnectionState},
    handler::RequestHandler,
    limits::Protocols,
    socket::Socket,
    tracked_stream::TrackedStream,
};
use crate::config::ServeArgs;

/// How long a draining connection keeps reading, for requests that the client sent before it noticed the shutdown. One
/// without a first byte waits this long for it, and then once more for the rest.
const DRAIN_READ_DELAY: Duration = Duration::from_millis(250);

/// After the server has begun to close a connection, the client gets this long to close its side. During a shutdown, an
/// incomplete request gets this long to finish its headers.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves a connection until the client or the server closes it.
pub(super) async fn serve(
    protocols: &Protocols,
    args: &ServeArgs,
    handler: &Arc<RequestHandler>,
    state: &Arc<ConnectionState>,
    socket: Socket,
    info: Arc<ConnectionInfo>,
) {
    let mut stream = TrackedStream::new(socket, &info, state.clone(), handler.errors.clone());
    let mut timer = pin!(sleep_until(Instant::now() + args.header_timeout));
    let Some(is_http2) =
        detect_http2(&mut stream, Monitor { state, args, draining: false }, timer.as_mut()).await
    else {
        return;
    };
    let service = service_fn(|request| handler.clone().handle(state.clone(), info.clone(), request));
    let mut connection = pin!(protocols.of(is_http2).serve_connection(TokioIo::new(stream), service));

    // Errors are ignored: the client causes them, by resets or malformed requests.
    let signal = tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        signal = Monitor { state, args, draining: false }.next(timer.as_mut()) => signal,
    };
    match signal {
        ConnectionSignal::Drain => {}
        ConnectionSignal::Evict if state.is_http2() && !state.is_sending() => {
            connection.as_mut().graceful_shutdown();
            // Completes streams that the client opened before it received GOAWAY.
            while timeout(CLOSE_TIMEOUT, connection.as_mut()).await.is_err() && state.is_busy() {
                state.reset_stalled_streams();
            }
            return;
        }
        _ => return,
    }

    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        _ = sleep(DRAIN_READ_DELAY) => {}
    }
    connection.as_mut().graceful_shutdown();
    // A shorter header timeout, so that an incomplete request does not use up the grace period.
    let args = &ServeArgs { header_timeout: CLOSE_TIMEOUT.min(args.header_timeout), ..args.clone() };
    tokio::select! {
        biased;
        _ = connection => {}
        _ = Monitor { state, args, draining: true }.next(timer) => {}
    }
}

/// Returns whether the client speaks HTTP/2, once its first bytes have arrived. `None` if the connection is to be closed
/// before that.
async fn detect_http2(
    stream: &mut TrackedStream,
    monitor: Monitor<'_>,
    timer: Pin<&mut Sleep>,
) -> Option<bool> {
    let mut detection = pin!(stream.detect_http2());
    let signal = tokio::select! {
        biased;
        is_http2 = detection.as_mut() => return is_http2.ok(),
        signal = monitor.next(timer) => signal,
    };
    match signal {
        ConnectionSignal::Drain => timeout(DRAIN_READ_DELAY, detection).await.ok()?.ok(),
        _ => None,
    }
}

/// Waits for a connection's deadline or a signal to it.
struct Monitor<'a> {
    state: &'a ConnectionState,
    args: &'a ServeArgs,
    /// Whether the connection is already draining. If so, `Drain` is ignored.
    draining: bool,
}

impl Monitor<'_> {
    /// Returns why to end the connection. One that has timed out is evicted.
    async fn next(self, mut timer: Pin<&mut Sleep>) -> ConnectionSignal {
        poll_fn(|cx| self.poll(timer.as_mut(), cx)).await
    }

    fn poll(&self, timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<ConnectionSignal> {
        self.state.waker.register(cx.waker());
        match self.state.signal() {
            Some(ConnectionSignal::Drain) if self.draining => {}
            Some(ConnectionSignal::Evict) if !self.state.is_evictable() => self.state.cancel_evict(),
            Some(signal) => return Poll::Ready(signal),
            None => {}
        }
        self.poll_deadline(timer, cx)
    }

    /// Checks the deadline, which moves with every request. To avoid resetting the timer each time, it is reset only if the
    /// deadline has moved to an earlier time, or if the timer fires before the deadline.
    fn poll_deadline(&self, mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<ConnectionSignal> {
        loop {
            let deadline = self.state.deadline(self.args);
            let next = earlier(deadline, self.state.next_stream_check());
            if let Some(next) = next.filter(|next| *next < timer.deadline()) {
                timer.as_mut().reset(next);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(ConnectionSignal::Evict);
            }
            self.state.reset_stalled_streams();
            let next = earlier(deadline, self.state.next_stream_check());
            timer.as_mut().reset(next.unwrap_or(now + self.args.idle_timeout));
        }
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    [a, b].into_iter().flatten().min()
}
