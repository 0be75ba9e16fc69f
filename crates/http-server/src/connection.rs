//! Serves one connection from its first byte until it closes.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    os::fd::AsRawFd,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::service::service_fn;
use hyper_util::{rt::TokioIo, server::graceful::GracefulConnection};
use tokio::{
    net::TcpStream,
    time::{Instant, Sleep, sleep, sleep_until, timeout},
};

use crate::{
    args::ServeArgs,
    connection_info::ConnectionInfo,
    connection_state::{ConnectionSignal, ConnectionState},
    limits,
    registry::Registration,
    server::Port,
    tracked_stream::TrackedStream,
};

/// How long a draining connection keeps reading, for requests that the client sent before it noticed the shutdown. One
/// without a first byte waits this long for it, and then once more for the rest.
const DRAIN_READ_DELAY: Duration = Duration::from_millis(250);

/// Time for a handshake to finish during a shutdown.
const HANDSHAKE_GRACE: Duration = Duration::from_secs(1);

/// After the server has begun to close a connection, the client gets this long to close its side. During a shutdown, an
/// incomplete request gets this long to finish its headers.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves a connection until the client or the server closes it.
pub(crate) async fn serve(
    port: Arc<Port>,
    state: Arc<ConnectionState>,
    mut registration: Registration,
    socket: TcpStream,
    peer: SocketAddr,
) {
    let args = &port.args;
    let mut timer = pin!(sleep_until(Instant::now() + args.header_timeout));
    let monitor = Monitor { state: &state, args, draining: false };
    let opening = open(&port, &state, &mut registration, socket, peer);
    // Boxed, so that an open connection takes no space for its handshake.
    let Some((stream, info, is_http2)) = monitor.opened(Box::pin(opening), timer.as_mut()).await else {
        return;
    };
    let handler = &port.handler;
    if is_http2 {
        state.set_http2();
        let service = service_fn(|request| {
            let stream = state.new_stream();
            handler.clone().handle(state.clone(), info.clone(), Some(stream), request)
        });
        let connection = limits::http2(state.clone()).serve_connection(TokioIo::new(stream), service);
        drive(pin!(connection), monitor, timer).await;
    } else {
        let service =
            service_fn(|request| handler.clone().handle(state.clone(), info.clone(), None, request));
        let connection = port.http1.serve_connection(TokioIo::new(stream), service);
        drive(pin!(connection), monitor, timer).await;
    }
}

/// Does the handshake, and finds out whether the client speaks HTTP/2.
async fn open(
    port: &Port,
    state: &Arc<ConnectionState>,
    registration: &mut Registration,
    mut socket: TcpStream,
    peer: SocketAddr,
) -> Option<(TrackedStream, Arc<ConnectionInfo>, bool)> {
    let handshakes = &port.handshakes;
    let proxied = match handshakes.proxy_protocol {
        true => Some(handshakes.read_proxy_header(port.name, &mut socket).await?),
        false => None,
    };
    let client = proxied.as_ref().map_or(Some(peer), |header| header.client);
    // Many clients share the connections of a proxy.
    if let Some(client) = client.filter(|client| !(port.handler.trusted)(client.ip())) {
        registration.set_client(client.ip());
    }
    let (socket, tls) = handshakes.start_tls(port.name, socket, port.args.header_timeout).await?;
    registration.end_handshake();
    let info = ConnectionInfo::new(peer, proxied, tls, socket.as_raw_fd());
    let mut stream = TrackedStream::new(socket, &info, state.clone(), port.handler.errors.clone());
    let is_http2 = stream.detect_http2().await.ok()?;
    Some((stream, info, is_http2))
}

/// Drives a connection of hyper until it ends, times out or is told to close.
async fn drive<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    monitor: Monitor<'_>,
    mut timer: Pin<&mut Sleep>,
) {
    // Errors are ignored: the client causes them, by resets or malformed requests.
    let signal = tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        signal = monitor.next(timer.as_mut()) => signal,
    };
    if signal != ConnectionSignal::Drain {
        if signal == ConnectionSignal::Evict && !monitor.state.is_busy() {
            close_idle(connection, monitor.state).await;
        }
        return;
    }
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        _ = sleep(DRAIN_READ_DELAY) => {}
    }
    connection.as_mut().graceful_shutdown();
    // A shorter header timeout, so that an incomplete request does not use up the grace period.
    let header_timeout = CLOSE_TIMEOUT.min(monitor.args.header_timeout);
    let args = &ServeArgs { header_timeout, ..monitor.args.clone() };
    tokio::select! {
        biased;
        _ = connection => {}
        _ = Monitor { args, draining: true, ..monitor }.next(timer) => {}
    }
}

/// Closes an idle connection: on HTTP/2 with GOAWAY. If it has timed out, completes the streams that the client opened
/// before it received GOAWAY; if it was evicted, others need its resources now.
async fn close_idle<C: GracefulConnection>(mut connection: Pin<&mut C>, state: &ConnectionState) {
    connection.as_mut().graceful_shutdown();
    if state.signal() == Some(ConnectionSignal::Evict) {
        let _ = poll_fn(|cx| Poll::Ready(connection.as_mut().poll(cx))).await;
        return;
    }
    while timeout(CLOSE_TIMEOUT, connection.as_mut()).await.is_err()
        && state.is_busy()
        && !state.end_overdue_responses()
    {}
}

/// Waits for a connection's deadline or a signal to it.
#[derive(Clone, Copy)]
struct Monitor<'a> {
    state: &'a ConnectionState,
    args: &'a ServeArgs,
    /// Whether the connection is already draining. If so, `Drain` is ignored.
    draining: bool,
}

impl Monitor<'_> {
    /// Waits for a connection to open. `None` if it is closed before that.
    async fn opened<T>(
        self,
        mut opening: impl Future<Output = Option<T>> + Unpin,
        timer: Pin<&mut Sleep>,
    ) -> Option<T> {
        let signal = tokio::select! {
            biased;
            opened = &mut opening => return opened,
            signal = self.next(timer) => signal,
        };
        let grace = if self.state.is_handshaking() { HANDSHAKE_GRACE } else { DRAIN_READ_DELAY };
        match signal {
            ConnectionSignal::Drain => timeout(grace, opening).await.ok()?,
            _ => None,
        }
    }

    /// Returns why to end the connection. One that has timed out is evicted.
    async fn next(self, mut timer: Pin<&mut Sleep>) -> ConnectionSignal {
        poll_fn(|cx| self.poll(timer.as_mut(), cx)).await
    }

    fn poll(&self, timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<ConnectionSignal> {
        self.state.waker.register(cx.waker());
        match self.state.signal() {
            Some(ConnectionSignal::Drain) if self.draining => {}
            Some(ConnectionSignal::Evict) if self.state.eviction_class().is_none() => {
                self.state.cancel_evict()
            }
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
            let next = earlier(deadline, self.state.next_response_deadline());
            if let Some(next) = next.filter(|next| *next < timer.deadline()) {
                timer.as_mut().reset(next);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) || self.state.end_overdue_responses() {
                return Poll::Ready(ConnectionSignal::Evict);
            }
            let next = earlier(deadline, self.state.next_response_deadline());
            timer.as_mut().reset(next.unwrap_or(now + self.args.idle_timeout));
        }
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    [a, b].into_iter().flatten().min()
}
