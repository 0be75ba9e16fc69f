//! Serves one connection from its first byte until it closes.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::{net::SocketAddr, os::fd::AsRawFd, sync::Arc, time::Duration};

use hyper::service::service_fn;
use hyper_util::{rt::TokioIo, server::graceful::GracefulConnection};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

use crate::connection_state::{ConnectionSignal, ConnectionState};
use crate::registry::Registration;
use crate::{connection_info::ConnectionInfo, handler, limits, port::Port};
use crate::{streams::Streams, tracked_stream::TrackedStream};

/// How long a draining connection keeps reading, for requests that the client sent before it noticed the shutdown. One
/// without a first byte waits this long for it, and then once more for the rest.
const DRAIN_READ_DELAY: Duration = Duration::from_millis(250);

/// Time for a handshake to finish during a shutdown.
const HANDSHAKE_GRACE: Duration = Duration::from_secs(1);

/// Serves a connection until the client or the server closes it.
pub(crate) async fn serve(port: Arc<Port>, registration: Registration, socket: TcpStream, peer: SocketAddr) {
    let state = &registration.state;
    let mut timer = pin!(sleep_until(Instant::now() + port.args.header_timeout));
    let opened = {
        // Boxed in a block, so that an open connection takes no space for its handshake.
        let mut opening = Box::pin(open(&port, &registration, socket, peer));
        tokio::select! {
            biased;
            opened = &mut opening => opened,
            signal = next_signal(state, timer.as_mut(), false) => {
                let grace = if state.is_in_handshake() { HANDSHAKE_GRACE } else { DRAIN_READ_DELAY };
                match signal {
                    Some(ConnectionSignal::Drain) => timeout(grace, opening).await.ok().flatten(),
                    _ => None,
                }
            }
        }
    };
    let Some((stream, info, is_http2)) = opened else { return };
    let service = service_fn(|request| handler::handle(&port, state, &info, request));
    if is_http2 {
        state.lock().http2 = true;
        let streams = Streams::default();
        let connection = limits::http2(streams.new.clone()).serve_connection(TokioIo::new(stream), service);
        drive(pin!(connection), Some(streams), state, timer).await;
    } else {
        let connection = port.http1.serve_connection(TokioIo::new(stream), service);
        drive(pin!(connection), None, state, timer).await;
    }
}

/// Does the handshake, and finds out whether the client speaks HTTP/2.
async fn open(
    port: &Port,
    registration: &Registration,
    mut socket: TcpStream,
    peer: SocketAddr,
) -> Option<(TrackedStream, Arc<ConnectionInfo>, bool)> {
    let handshakes = &port.handshakes;
    let proxied = match handshakes.proxy_protocol {
        true => Some(handshakes.read_proxy_header(&mut socket).await?),
        false => None,
    };
    let client = proxied.as_ref().and_then(|header| port.untrusted(header.client?.ip()));
    if client.is_some_and(|client| !registration.set_client(client)) {
        return None;
    }
    let descriptor = socket.as_raw_fd();
    let (socket, tls) = handshakes.start_tls(socket, port.args.header_timeout).await?;
    registration.state.end_handshake();
    let info = ConnectionInfo::new(peer, proxied, tls, descriptor);
    let mut stream = TrackedStream::new(socket, &info, registration, port.errors.clone());
    let is_http2 = stream.detect_http2().await.ok()?;
    Some((stream, info, is_http2))
}

/// Drives hyper's connection until it ends, times out or is told to close.
async fn drive<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    mut streams: Option<Streams>,
    state: &ConnectionState,
    mut timer: Pin<&mut Sleep>,
) {
    let signal = tokio::select! {
        biased;
        _ = run(connection.as_mut(), &mut streams) => return,
        signal = next_signal(state, timer.as_mut(), false) => signal,
    };
    match signal {
        Some(ConnectionSignal::Drain) => tokio::select! {
            biased;
            _ = run(connection.as_mut(), &mut streams) => return,
            _ = sleep(DRAIN_READ_DELAY) => {}
        },
        // Completes the HTTP/2 streams that the client opened before it received GOAWAY.
        None if state.is_idle() => state.send_signal(ConnectionSignal::Drain),
        _ => return,
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        _ = run(connection, &mut streams) => {}
        _ = next_signal(state, timer, true) => {}
    }
}

/// Runs hyper's connection and its streams until it ends. Errors are ignored: the client causes them, by resets or malformed
/// requests.
async fn run<C: GracefulConnection>(mut connection: Pin<&mut C>, streams: &mut Option<Streams>) {
    poll_fn(|cx| {
        loop {
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if !streams.as_mut().is_some_and(|streams| streams.poll(cx)) {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// Waits for a signal to the connection, or for its deadline: then the result is `None`. While `draining`, further drain
/// signals are ignored.
async fn next_signal(
    state: &ConnectionState,
    mut timer: Pin<&mut Sleep>,
    draining: bool,
) -> Option<ConnectionSignal> {
    poll_fn(|cx| {
        state.waker.register(cx.waker());
        let signal = state.lock().signal;
        match signal {
            Some(ConnectionSignal::Drain) if draining => {}
            Some(signal) => return Poll::Ready(Some(signal)),
            None => {}
        }
        poll_deadline(state, timer.as_mut(), cx).map(|()| None)
    })
    .await
}

/// Waits for the deadline, which moves with every request. To avoid resetting the timer each time, it is reset only if the
/// deadline has moved to an earlier time, or if the timer fires before the deadline.
fn poll_deadline(state: &ConnectionState, mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        if let Some(next) = state.deadline().filter(|next| *next < timer.deadline()) {
            timer.as_mut().reset(next);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let (now, next) = (Instant::now(), state.deadline());
        if next.is_some_and(|next| next <= now) {
            return Poll::Ready(());
        }
        // Without a deadline, any time will do: an earlier deadline resets the timer.
        timer.as_mut().reset(next.unwrap_or(now + Duration::from_secs(60)));
    }
}
