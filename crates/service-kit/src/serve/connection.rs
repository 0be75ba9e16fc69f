//! One connection from its first byte to its close.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use tokio::{
    net::TcpStream,
    time::{Instant, Sleep, sleep, sleep_until, timeout},
};

use super::{
    activity::{Activity, Order},
    answer::Answers,
    limits::Limits,
    stream::Watched,
};

/// At the stop, a request that the client had sent before it could know is still read and answered.
const LAST_CHANCE: Duration = Duration::from_millis(250);

/// A client that is told to go has this long to close its side, or to finish its headers.
const GOODBYE: Duration = Duration::from_secs(1);

/// Why a connection's normal course ends.
enum Interrupt {
    Overdue,
    Yield,
    Stop,
    Abort,
}

/// Serves a connection until either side ends it.
pub(super) async fn serve(
    protocols: &Builder<TokioExecutor>,
    limits: &Limits,
    answers: &Arc<Answers>,
    activity: &Arc<Activity>,
    (socket, peer): (TcpStream, SocketAddr),
) {
    let service = service_fn(|request| answers.clone().answer(activity.clone(), peer, request));
    let io = TokioIo::new(Watched { socket, activity: activity.clone() });
    let mut connection = pin!(protocols.serve_connection(io, service));
    let mut timer = pin!(sleep_until(Instant::now() + limits.header_timeout));

    // Errors are the client's (resets, nonsense) and of no use to anyone here.
    let interrupt = tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        interrupt = Watch { activity, limits, stopping: false }.next(timer.as_mut()) => interrupt,
    };
    match interrupt {
        Interrupt::Stop => {}
        Interrupt::Overdue | Interrupt::Yield if activity.is_http2() => {
            connection.as_mut().graceful_shutdown();
            // A stream that came before the client heard of it is still answered.
            while timeout(GOODBYE, connection.as_mut()).await.is_err() && activity.is_busy() {}
            return;
        }
        _ => return,
    }

    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        _ = sleep(LAST_CHANCE) => {}
    }
    connection.as_mut().graceful_shutdown();
    // What has sent half a request and no more must not use up the grace.
    let limits = &Limits { header_timeout: GOODBYE.min(limits.header_timeout), ..limits.clone() };
    tokio::select! {
        biased;
        _ = connection => {}
        _ = Watch { activity, limits, stopping: true }.next(timer) => {}
    }
}

/// Watches a connection's deadline and orders.
struct Watch<'a> {
    activity: &'a Activity,
    limits: &'a Limits,
    /// Then an order to stop is no news.
    stopping: bool,
}

impl Watch<'_> {
    async fn next(self, mut timer: Pin<&mut Sleep>) -> Interrupt {
        poll_fn(|cx| self.poll(timer.as_mut(), cx)).await
    }

    fn poll(&self, timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<Interrupt> {
        self.activity.waker.register(cx.waker());
        match self.activity.order() {
            Some(Order::Abort) => return Poll::Ready(Interrupt::Abort),
            Some(Order::Stop) if !self.stopping => return Poll::Ready(Interrupt::Stop),
            Some(Order::Yield) if self.activity.is_busy() => self.activity.stay(),
            Some(Order::Yield) => return Poll::Ready(Interrupt::Yield),
            _ => {}
        }
        self.poll_overdue(timer, cx)
    }

    /// The timer is moved only when it fires too early or would fire too late, not on each request.
    fn poll_overdue(&self, mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<Interrupt> {
        loop {
            let due = self.activity.deadline(self.limits);
            if let Some(due) = due.filter(|due| *due < timer.deadline()) {
                timer.as_mut().reset(due);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if due.is_some_and(|due| due <= now) {
                return Poll::Ready(Interrupt::Overdue);
            }
            timer.as_mut().reset(due.unwrap_or(now + self.limits.idle_timeout));
        }
    }
}
