//! A bound on request bodies: in bytes and in time.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::Either};
use http::{StatusCode, header};
use poem::{Body, Endpoint, Error, Middleware, Request, Result, error::ReadBodyError};

/// The most bytes a body may have where nothing else is said.
pub const DEFAULT_BODY_LIMIT: usize = 64 * 1024;

/// How long a body may take to arrive: a client must not hold a request open by dripping it.
pub const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// Middleware that reads the body within its limit, or answers 413 (too large) or 408 (too slow).
///
/// Put it inside [`catch_all`](crate::catch_all), which gives its errors their body.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit {
    bytes: usize,
    deadline: Duration,
}

impl BodyLimit {
    /// A limit of that many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { bytes, deadline: BODY_DEADLINE }
    }

    /// Another deadline than [`BODY_DEADLINE`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    async fn read(&self, request: &mut Request, body: Body) -> Result<()> {
        let reading = match announced(request) {
            Some(bytes) if bytes > self.bytes as u64 => return Err(ReadBodyError::PayloadTooLarge.into()),
            // No more can come: hyper holds a client to its word.
            Some(_) => Either::Left(body.into_bytes()),
            None => Either::Right(Box::pin(body.into_bytes_limit(self.bytes))),
        };
        let read = tokio::time::timeout(self.deadline, reading).await.map_err(|_| too_slow())?;
        let bytes = read.map_err(|error| match error {
            ReadBodyError::Io(_) => cut_off(),
            error => error.into(),
        })?;
        request.extensions_mut().insert(Bounded);
        request.set_body(Body::from_bytes(bytes));
        Ok(())
    }
}

impl Default for BodyLimit {
    fn default() -> Self {
        Self::new(DEFAULT_BODY_LIMIT)
    }
}

/// Tells payloads that the body has passed its limit already.
#[derive(Clone, Copy, Debug)]
struct Bounded;

/// A request's whole body; where no [`BodyLimit`] came before, within the default limit.
pub(crate) async fn bytes_of(request: &Request, body: Body) -> Result<Bytes, ReadBodyError> {
    match request.extensions().get::<Bounded>() {
        Some(Bounded) => body.into_bytes().await,
        None => body.into_bytes_limit(DEFAULT_BODY_LIMIT).await,
    }
}

fn announced(request: &Request) -> Option<u64> {
    request.header(header::CONTENT_LENGTH)?.parse().ok()
}

fn too_slow() -> Error {
    Error::from_string("The body took too long to arrive.", StatusCode::REQUEST_TIMEOUT)
}

fn cut_off() -> Error {
    Error::from_string(
        "The body could not be read: it ends early, or its length is wrong.",
        StatusCode::BAD_REQUEST,
    )
}

impl<E: Endpoint> Middleware<E> for BodyLimit {
    type Output = BodyLimitEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        BodyLimitEndpoint { inner, limit: *self }
    }
}

/// The endpoint that [`BodyLimit`] makes.
#[derive(Debug)]
pub struct BodyLimitEndpoint<E> {
    inner: E,
    limit: BodyLimit,
}

impl<E: Endpoint> Endpoint for BodyLimitEndpoint<E> {
    type Output = E::Output;

    // Most requests have no body: reading one has its own piece of memory, and only where there is one.
    fn call(&self, mut request: Request) -> impl Future<Output = Result<Self::Output>> + Send {
        let body = request.take_body();
        if body.is_empty() {
            return Either::Left(self.inner.call(request));
        }
        let with_body = async move {
            self.limit.read(&mut request, body).await?;
            self.inner.call(request).await
        };
        Either::Right(with_body.boxed())
    }
}
