//! Serves one connection from its first byte until it closes.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::{net::SocketAddr, os::fd::AsRawFd, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::server::conn::{http1, http2};
use hyper::{rt::Executor, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

use crate::connection_state::{ConnectionState, Resource};
use crate::limits::{HTTP1_BUFFER, HTTP2_WINDOW, MAX_HEADER_LIST};
use crate::{connection_info::ConnectionInfo, handler, port::Port};
use crate::{registry::Registration, tracked_stream::TrackedStream};

/// How long a draining connection keeps reading, for requests that the client sent before it noticed the shutdown. One
/// without a first byte waits this long for it, and then once more for the rest.
const DRAIN_READ_DELAY: Duration = Duration::from_millis(250);

/// Time for a handshake to finish during a shutdown.
const HANDSHAKE_GRACE: Duration = Duration::from_secs(1);

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// HTTP/2 streams that hyper has begun. The connection's task runs them, so that eviction releases their memory at once:
/// tasks of their own would keep it until they are scheduled, after those of many other connections.
#[derive(Clone, Default)]
struct NewStreams(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for NewStreams {
    fn execute(&self, stream: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(stream));
    }
}

pub(crate) async fn serve(port: Arc<Port>, registration: Registration, socket: TcpStream, peer: SocketAddr) {
    let state = &registration.state;
    let mut timer = pin!(sleep_until(Instant::now() + port.args.header_timeout));
    let opened = {
        // Boxed in a block, so that an open connection takes no space for its handshake.
        let mut opening = Box::pin(open(&port, &registration, socket, peer));
        tokio::select! {
            biased;
            opened = &mut opening => opened,
            _ = must_stop(state, timer.as_mut(), false) => {
                let is_in_handshake = state.uses(Resource::Handshakes) > 0;
                let grace = if is_in_handshake { HANDSHAKE_GRACE } else { DRAIN_READ_DELAY };
                if state.is_draining() { timeout(grace, opening).await.ok().flatten() } else { None }
            }
        }
    };
    let Some((stream, info, is_http2)) = opened else { return };
    let service = service_fn(|request| handler::handle(&port, state, &info, request));
    if is_http2 {
        state.lock().http2 = true;
        let streams = NewStreams::default();
        let connection = http2::Builder::new(streams.clone())
            .timer(TokioTimer::new())
            .max_concurrent_streams(32)
            // h2 responds to larger requests itself.
            .max_header_list_size(MAX_HEADER_LIST)
            // Request bodies that are received and not read.
            .initial_stream_window_size(64 * 1024)
            .initial_connection_window_size(HTTP2_WINDOW)
            // Streams that a client resets before the server has accepted them ("rapid reset"), and streams that the server
            // resets because of client errors ("MadeYouReset"), which include those above the limit that a client opens
            // before it knows the limit. If there are more, the connection is closed.
            .max_pending_accept_reset_streams(20)
            .max_local_error_reset_streams(500)
            // What h2 takes from hyper for each stream before it is written.
            .max_send_buf_size(16 * 1024)
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10))
            .serve_connection(TokioIo::new(stream), service);
        drive(pin!(connection), Some((streams, FuturesUnordered::new())), state, timer).await;
    } else {
        let connection = http1::Builder::new()
            // The timeouts are in `connection_state`.
            .header_read_timeout(None)
            // Higher than our limit, so that most oversized requests reach our code; `error` replaces the 431 that hyper
            // sends to the others.
            .max_buf_size(HTTP1_BUFFER)
            // Lets a client close its side after it has sent a request. It also avoids a second read buffer per request,
            // which hyper would use to notice an early disconnect.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), service);
        drive(pin!(connection), None, state, timer).await;
    }
}

/// Does the handshake, and finds out whether the client speaks HTTP/2.
async fn open(
    port: &Arc<Port>,
    registration: &Registration,
    mut socket: TcpStream,
    peer: SocketAddr,
) -> Option<(TrackedStream, Arc<ConnectionInfo>, bool)> {
    let proxied = match port.proxy_protocol {
        true => Some(port.read_proxy_header(&mut socket).await?),
        false => None,
    };
    let client = proxied.as_ref().and_then(|header| port.untrusted(header.client?.ip()));
    if client.is_some_and(|client| !registration.set_client(client)) {
        return None;
    }
    let descriptor = Mutex::new(Some(socket.as_raw_fd()));
    let (socket, tls) = port.start_tls(socket).await?;
    registration.state.update(|activity| activity.established = Some(Instant::now()));
    let info = Arc::new(ConnectionInfo { peer, proxied, tls, socket: descriptor });
    let mut stream = TrackedStream::new(socket, &info, &registration.state, port);
    let is_http2 = stream.detect_http2().await.ok()?;
    Some((stream, info, is_http2))
}

/// Runs hyper's connection and its streams until it ends or must close. Errors are ignored: the client causes them.
async fn drive<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    mut streams: Option<(NewStreams, FuturesUnordered<Stream>)>,
    state: &ConnectionState,
    mut timer: Pin<&mut Sleep>,
) {
    let mut poll = |mut connection: Pin<&mut C>, cx: &mut Context<'_>| loop {
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some((new, running)) = &mut streams else { return Poll::Pending };
        running.extend(new.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
        let mut has_ended = false;
        while let Poll::Ready(Some(())) = running.poll_next_unpin(cx) {
            has_ended = true;
        }
        // Otherwise there is something to send.
        if !has_ended {
            return Poll::Pending;
        }
    };
    tokio::select! {
        biased;
        _ = poll_fn(|cx| poll(connection.as_mut(), cx)) => return,
        _ = must_stop(state, timer.as_mut(), false) => {}
    }
    if state.is_draining() {
        tokio::select! {
            biased;
            _ = poll_fn(|cx| poll(connection.as_mut(), cx)) => return,
            _ = sleep(DRAIN_READ_DELAY) => {}
        }
    } else if state.lock().is_idle() && !state.is_closed() {
        // Completes the HTTP/2 streams that the client opened before it received GOAWAY.
        state.drain();
    } else {
        return;
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        _ = poll_fn(|cx| poll(connection.as_mut(), cx)) => {}
        _ = must_stop(state, timer, true) => {}
    }
}

/// Waits until the connection must close. If it does not drain yet, also until it must.
async fn must_stop(state: &ConnectionState, mut timer: Pin<&mut Sleep>, drains: bool) {
    poll_fn(|cx| {
        state.waker.register(cx.waker());
        if state.lock().must_stop(drains) {
            return Poll::Ready(());
        }
        loop {
            // It moves with every request. The timer moves only to an earlier time, or if it fires before the deadline.
            let deadline = state.deadline();
            if let Some(deadline) = deadline.filter(|deadline| *deadline < timer.deadline()) {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(cx));
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(());
            }
            // Without a deadline, any time will do: an earlier deadline resets the timer.
            timer.as_mut().reset(deadline.unwrap_or(now + Duration::from_secs(60)));
        }
    })
    .await;
}
