//! Serves one connection from its first byte until it closes.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::{net::SocketAddr, os::fd::AsRawFd, sync::Arc, time::Duration};

use hyper::service::service_fn;
use hyper_util::{rt::TokioIo, server::graceful::GracefulConnection};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

use crate::connection_state::{ConnectionSignal, ConnectionState, EvictionClass};
use crate::tracked_stream::TrackedStream;
use crate::{connection_info::ConnectionInfo, limits, registry::Registration, server::Port};

/// How long a draining connection keeps reading, for requests that the client sent before it noticed the shutdown. One
/// without a first byte waits this long for it, and then once more for the rest.
const DRAIN_READ_DELAY: Duration = Duration::from_millis(250);

/// Time for a handshake to finish during a shutdown.
const HANDSHAKE_GRACE: Duration = Duration::from_secs(1);

/// Serves a connection until the client or the server closes it.
pub(crate) async fn serve(
    port: Arc<Port>,
    state: Arc<ConnectionState>,
    mut registration: Registration,
    socket: TcpStream,
    peer: SocketAddr,
) {
    let mut timer = pin!(sleep_until(Instant::now() + port.args.header_timeout));
    let opened = {
        // Boxed in a block, so that an open connection takes no space for its handshake.
        let mut opening = Box::pin(open(&port, &state, &mut registration, socket, peer));
        tokio::select! {
            biased;
            opened = &mut opening => opened,
            signal = next_signal(&state, timer.as_mut(), false) => {
                let grace = if state.lock().established.is_none() { HANDSHAKE_GRACE } else { DRAIN_READ_DELAY };
                match signal {
                    Some(ConnectionSignal::Drain) => timeout(grace, opening).await.ok().flatten(),
                    _ => None,
                }
            }
        }
    };
    let Some((stream, info, is_http2)) = opened else { return };
    if is_http2 {
        state.lock().http2 = true;
        let service = service_fn(|request| {
            let stream = state.new_stream();
            port.clone().handle(state.clone(), info.clone(), Some(stream), request)
        });
        let connection = limits::http2(state.clone()).serve_connection(TokioIo::new(stream), service);
        drive(pin!(connection), &state, timer).await;
    } else {
        let service = service_fn(|request| port.clone().handle(state.clone(), info.clone(), None, request));
        let connection = port.http1.serve_connection(TokioIo::new(stream), service);
        drive(pin!(connection), &state, timer).await;
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
        true => Some(handshakes.read_proxy_header(&mut socket).await?),
        false => None,
    };
    let client = proxied.as_ref().map_or(Some(peer), |header| header.client);
    // The connections of a trusted proxy carry many clients, so they count toward no network.
    if let Some(client) = client.filter(|client| !(port.trusted)(client.ip())) {
        registration.set_client(client.ip());
    }
    let descriptor = socket.as_raw_fd();
    let (socket, tls) = handshakes.start_tls(socket, port.args.header_timeout).await?;
    registration.end_handshake();
    let info = ConnectionInfo::new(peer, proxied, tls, descriptor);
    let mut stream = TrackedStream::new(socket, &info, state.clone(), port.errors.clone());
    let is_http2 = stream.detect_http2().await.ok()?;
    Some((stream, info, is_http2))
}

/// Drives hyper's connection until it ends, times out or is told to close.
async fn drive<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    state: &ConnectionState,
    mut timer: Pin<&mut Sleep>,
) {
    // Errors are ignored: the client causes them, by resets or malformed requests.
    let signal = tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        signal = next_signal(state, timer.as_mut(), false) => signal,
    };
    match signal {
        Some(ConnectionSignal::Drain) => tokio::select! {
            biased;
            _ = connection.as_mut() => return,
            _ = sleep(DRAIN_READ_DELAY) => {}
        },
        // Completes the HTTP/2 streams that the client opened before it received GOAWAY.
        None if !state.is_busy() => state.send_signal(ConnectionSignal::Drain),
        _ => return,
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        _ = connection => {}
        _ = next_signal(state, timer, true) => {}
    }
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
            // It became busy after it was selected: keep it open.
            Some(ConnectionSignal::Evict) if state.eviction_class().0 == EvictionClass::Busy => {
                state.lock().signal.take_if(|signal| *signal == ConnectionSignal::Evict);
            }
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
        if let Some(next) = state.next_deadline().filter(|next| *next < timer.deadline()) {
            timer.as_mut().reset(next);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if state.has_timed_out() {
            return Poll::Ready(());
        }
        // Without a deadline, any time will do: an earlier deadline resets the timer.
        let later = Instant::now() + Duration::from_secs(60);
        timer.as_mut().reset(state.next_deadline().unwrap_or(later));
    }
}
