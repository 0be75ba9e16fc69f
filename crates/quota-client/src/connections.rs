//! HTTP/1.1 connections to quota-svc, with hyper. Every lookup waits for a call over one of them: a client such as reqwest would
//! parse the URL and set up redirects, retries and timeouts in each call.

use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout};

use crate::error::{ClientError, Result, Source};
use crate::token::QuotaToken;

const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Below the server's idle timeout, so that the client closes first and no request hits a closing connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) enum Address {
    /// Host name or IP address, and port.
    Tcp(String, u16),
    Socket(PathBuf),
}

/// The connections to one quota-svc. Keeps those that are not in use, at most as many as there were calls at the same time.
pub(crate) struct Connections {
    pub(crate) address: Address,
    /// Maximum response size in bytes.
    max_response: usize,
    idle: Mutex<Vec<Connection>>,
}

impl Connections {
    pub(crate) fn new(address: Address, max_response: usize) -> Self {
        Self { address, max_response, idle: Mutex::default() }
    }

    /// Sends a request with the token, and again if quota-svc rejects the token and the file has a new one. Returns the body of the
    /// response; a status other than 2xx is an error. Only connecting has a timeout.
    pub(crate) async fn call(&self, token: Option<&QuotaToken>, request: impl Fn() -> Call) -> Result<Bytes> {
        loop {
            let mut request = request();
            let Some(token) = token else { return self.send(request).await };
            let sent = token.header();
            request.headers_mut().insert(AUTHORIZATION, sent.clone());
            let result = self.send(request).await;
            let is_unauthorized = result.as_ref().is_err_and(|error| error.status() == Some(401));
            if !is_unauthorized || !token.has_replaced(&sent) {
                return result;
            }
        }
    }

    async fn send(&self, mut request: Call) -> Result<Bytes> {
        loop {
            let (mut connection, is_new) = match self.take_idle() {
                Some(connection) => (connection, false),
                None => (self.connect().await?, true),
            };
            match connection.exchange(request, self.max_response).await {
                Ok((status, body)) => {
                    self.keep(connection);
                    return match status.is_success() {
                        true => Ok(body),
                        false => Err(ClientError::from_response(status.as_u16(), &body)),
                    };
                }
                Err(Failure::NotSent(_)) if is_new => {
                    return Err(ClientError::Unreachable("the connection was closed".into()));
                }
                // quota-svc has closed the idle connection.
                Err(Failure::NotSent(unsent)) => request = *unsent,
                Err(Failure::Other(error)) => return Err(error),
            }
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // The connection that was used last is on top. If it has expired, so have the others.
        idle.pop().filter(|connection| connection.last_used.elapsed() < IDLE_TIMEOUT)
    }

    /// Keeps the connection for the next call, and closes those that have expired.
    fn keep(&self, mut connection: Connection) {
        let now = Instant::now();
        connection.last_used = now;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|unused| now.duration_since(unused.last_used) < IDLE_TIMEOUT);
        idle.push(connection);
    }

    async fn connect(&self) -> Result<Connection> {
        let connect = async {
            match &self.address {
                Address::Tcp(host, port) => {
                    let stream = TcpStream::connect((&**host, *port)).await?;
                    stream.set_nodelay(true)?;
                    Connection::over(stream).await
                }
                Address::Socket(path) => Connection::over(UnixStream::connect(path).await?).await,
            }
        };
        let connected = timeout(CONNECT_TIMEOUT, connect).await.unwrap_or_else(|elapsed| Err(elapsed.into()));
        connected.map_err(ClientError::Unreachable)
    }
}

pub(crate) type Call = Request<Full<Bytes>>;

enum Failure {
    /// Nothing was sent. Contains the request.
    NotSent(Box<Call>),
    Other(ClientError),
}

struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// Reads and writes, but only while a call polls it: this saves a task of its own and the wake-ups between the two.
    /// `None` after the connection has ended.
    io: Option<BoxFuture<'static, ()>>,
    last_used: Instant,
}

impl Connection {
    async fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Self, Source> {
        let (requests, io) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { requests, io: Some(io.map(drop).boxed()), last_used: Instant::now() })
    }

    async fn exchange(&mut self, request: Call, limit: usize) -> Result<(StatusCode, Bytes), Failure> {
        let Self { requests, io, .. } = self;
        let mut response = pin!(send_and_read(requests, request, limit));
        poll_fn(|context| {
            // In the first round the connection notices if quota-svc has closed it, or becomes ready for the request; in
            // the second it writes the request.
            for _ in 0..2 {
                poll_io(io, context);
                if let Poll::Ready(response) = response.as_mut().poll(context) {
                    return Poll::Ready(response);
                }
            }
            poll_io(io, context);
            response.as_mut().poll(context)
        })
        .await
    }
}

/// Reads and writes. Drops a connection that has ended, which wakes the waiting request with the error.
fn poll_io(io: &mut Option<BoxFuture<'static, ()>>, context: &mut Context<'_>) {
    if io.as_mut().is_some_and(|running| running.as_mut().poll(context).is_ready()) {
        *io = None;
    }
}

async fn send_and_read(
    requests: &mut SendRequest<Full<Bytes>>,
    request: Call,
    limit: usize,
) -> Result<(StatusCode, Bytes), Failure> {
    if requests.ready().await.is_err() {
        return Err(Failure::NotSent(Box::new(request)));
    }
    let interrupted = |error| Failure::Other(ClientError::Interrupted(Box::new(error)));
    let response =
        requests.try_send_request(request).await.map_err(|mut error| match error.take_message() {
            Some(request) => Failure::NotSent(Box::new(request)),
            None => interrupted(error.into_error()),
        })?;
    let (head, mut incoming) = response.into_parts();
    let mut body = Bytes::new();
    while let Some(frame) = incoming.frame().await {
        let Ok(data) = frame.map_err(interrupted)?.into_data() else { continue };
        if body.len() + data.len() > limit {
            return Err(Failure::Other(ClientError::Protocol(format!("more than {limit} bytes"))));
        }
        // Most responses arrive in one piece, which needs no copy.
        body = if body.is_empty() { data } else { [body, data].concat().into() };
    }
    Ok((head.status, body))
}
