//! Charge calls over HTTP/1.1 connections of their own, with hyper. Every lookup waits for one. reqwest, which makes all
//! other calls, parses the URL and sets up redirects, retries and timeouts in each call.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use quota_api::{BATCH_TYPE, Charge, Verdict, decode_verdicts, encode_charges};
use reqwest::Url;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::is_unauthorized;
use super::transport::{CONNECT_TIMEOUT, IDLE_TIMEOUT};
use crate::charges::ChargeService;
use crate::error::{ClientError, Result};
use crate::token::QuotaToken;

/// Maximum response size in bytes; 256 verdicts need 6.25 KiB.
const MAX_RESPONSE: usize = 64 << 10;

#[derive(Clone, Debug)]
pub(super) struct ChargeTarget {
    /// Host name or IP address to connect to.
    host: String,
    port: u16,
    head: Request<()>,
}

impl ChargeTarget {
    /// Takes the URL of the API's root.
    pub(super) fn new(base: &Url) -> Result<Self> {
        let invalid = || ClientError::BaseUrl("its host or path can't be used");
        let host = base.host_str().ok_or_else(invalid)?;
        let authority = base.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let mut head = Request::new(());
        *head.method_mut() = Method::POST;
        *head.uri_mut() = format!("{}/charges", base.path()).parse().map_err(|_| invalid())?;
        let headers = head.headers_mut();
        headers.insert(HOST, HeaderValue::try_from(authority).map_err(|_| invalid())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(BATCH_TYPE));
        let host = host.trim_matches(['[', ']']).to_owned();
        Ok(Self { host, port: base.port_or_known_default().unwrap_or(80), head })
    }
}

/// Makes charge calls. Keeps the connections that are not in use, at most as many as there were calls at the same time.
pub(crate) struct ChargeCalls {
    target: ChargeTarget,
    token: Option<QuotaToken>,
    idle: Mutex<Vec<Connection>>,
}

impl ChargeCalls {
    pub(super) fn new(target: ChargeTarget, token: Option<QuotaToken>) -> Self {
        Self { target, token, idle: Mutex::default() }
    }

    /// Sends an encoded batch with its trace context. Only connecting has a timeout.
    async fn call(&self, body: Bytes, trace: Option<HeaderMap>) -> Result<Vec<Verdict>> {
        loop {
            let mut request = self.target.head.clone().map(|()| Full::new(body.clone()));
            if let Some(trace) = &trace {
                request.headers_mut().extend(trace.clone());
            }
            let Some(token) = &self.token else { return self.send(request).await };
            let sent = token.header();
            request.headers_mut().insert(AUTHORIZATION, sent.clone());
            let result = self.send(request).await;
            if !is_unauthorized(&result) || !token.has_replaced(&sent) {
                return result;
            }
        }
    }

    async fn send(&self, mut request: Call) -> Result<Vec<Verdict>> {
        loop {
            let (mut connection, is_new) = match self.take_idle() {
                Some(connection) => (connection, false),
                None => (self.connect().await?, true),
            };
            match connection.exchange(request).await {
                Ok(response) => return self.finish(connection, response),
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
        let connection = idle.pop().filter(|connection| connection.last_used.elapsed() < IDLE_TIMEOUT);
        if connection.is_none() {
            idle.clear();
        }
        connection
    }

    /// Keeps the connection for the next call and parses the response. A status other than 2xx is an error.
    fn finish(&self, mut connection: Connection, (status, body): RawResponse) -> Result<Vec<Verdict>> {
        connection.last_used = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // After a peak, the connections at the bottom are not needed anymore.
        let is_expired =
            |unused: &Connection| connection.last_used.duration_since(unused.last_used) >= IDLE_TIMEOUT;
        let expired = idle.iter().take_while(|unused| is_expired(unused)).count();
        idle.drain(..expired);
        idle.push(connection);
        drop(idle);
        match status.is_success() {
            true => parse_verdicts(&body),
            false => Err(ClientError::from_response(status.as_u16(), &body)),
        }
    }

    async fn connect(&self) -> Result<Connection> {
        let connected =
            timeout(CONNECT_TIMEOUT, TcpStream::connect((&*self.target.host, self.target.port))).await;
        let stream = connected.map_err(unreachable)?.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let (requests, io) = http1::handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
        Ok(Connection { requests, io: Some(Box::new(io)), last_used: Instant::now() })
    }
}

impl ChargeService for ChargeCalls {
    fn charge(&self, charges: Vec<Charge>, trace: Option<HeaderMap>) -> BoxFuture<'_, Result<Vec<Verdict>>> {
        self.call(encode_charges(&charges).into(), trace).boxed()
    }
}

pub(super) fn parse_verdicts(body: &[u8]) -> Result<Vec<Verdict>> {
    decode_verdicts(body).ok_or_else(|| ClientError::Protocol("malformed verdicts".to_owned()))
}

type Call = Request<Full<Bytes>>;
type Io = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;
type RawResponse = (StatusCode, Bytes);

enum Failure {
    /// Nothing was sent. Contains the request.
    NotSent(Box<Call>),
    Other(ClientError),
}

struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// Reads and writes, but only while a call polls it: this saves a task of its own and the wake-ups between the two.
    /// `None` after the connection has ended. Boxed, because every call moves the connection out of the list and back.
    io: Option<Box<Io>>,
    last_used: Instant,
}

impl Connection {
    async fn exchange(&mut self, request: Call) -> Result<RawResponse, Failure> {
        let Self { requests, io, .. } = self;
        let mut response = pin!(send_and_read(requests, request));
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
fn poll_io(io: &mut Option<Box<Io>>, context: &mut Context<'_>) {
    if let Some(running) = io
        && Pin::new(running).poll(context).is_ready()
    {
        *io = None;
    }
}

async fn send_and_read(
    requests: &mut SendRequest<Full<Bytes>>,
    request: Call,
) -> Result<RawResponse, Failure> {
    if requests.ready().await.is_err() {
        return Err(Failure::NotSent(Box::new(request)));
    }
    let response = match requests.try_send_request(request).await {
        Ok(response) => response,
        Err(mut error) => {
            return Err(match error.take_message() {
                Some(request) => Failure::NotSent(Box::new(request)),
                None => interrupted(error.into_error()),
            });
        }
    };
    let (head, mut incoming) = response.into_parts();
    let mut body = Bytes::new();
    while let Some(frame) = incoming.frame().await {
        let Ok(data) = frame.map_err(interrupted)?.into_data() else { continue };
        if body.len() + data.len() > MAX_RESPONSE {
            let message = format!("more than {MAX_RESPONSE} bytes");
            return Err(Failure::Other(ClientError::Protocol(message)));
        }
        // Most responses arrive in one piece, which needs no copy.
        body = if body.is_empty() { data } else { [body, data].concat().into() };
    }
    Ok((head.status, body))
}

fn unreachable(error: impl std::error::Error + Send + Sync + 'static) -> ClientError {
    ClientError::Unreachable(Box::new(error))
}

fn interrupted(error: hyper::Error) -> Failure {
    Failure::Other(ClientError::Interrupted(Box::new(error)))
}
