//! Limits the size of request bodies and the time in which they must arrive.

use std::{future::Future, time::Duration};

use futures_util::{FutureExt, future::Either};
use http::{StatusCode, header};
use poem::{Body, Endpoint, Error, Middleware, Request, Result, error::ReadBodyError};

/// The default maximum size of a body in bytes.
pub const DEFAULT_BODY_LIMIT: usize = 64 * 1024;

/// The default maximum time for a body to arrive, so that a slow client can't hold a request open.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);

const TIMED_OUT: &str = "The request body did not arrive in time.";
const UNREADABLE: &str = "The request body could not be read: it is incomplete or its length is wrong.";

/// Middleware that reads the whole body. Responds with 413 if it is too large and with 408 if it is too slow.
///
/// Must be inside [`catch_all`](crate::catch_all), which turns its errors into JSON responses.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit {
    /// The maximum size in bytes.
    pub bytes: usize,
    /// The maximum time for the body to arrive.
    pub timeout: Duration,
}

impl BodyLimit {
    /// Limits bodies to `bytes` bytes, which must arrive in [`BODY_TIMEOUT`].
    pub fn new(bytes: usize) -> Self {
        Self { bytes, timeout: BODY_TIMEOUT }
    }

    async fn read(&self, request: &mut Request, body: Body) -> Result<()> {
        let content_length: Option<u64> =
            request.header(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
        let reading = match content_length {
            Some(bytes) if bytes > self.bytes as u64 => return Err(ReadBodyError::PayloadTooLarge.into()),
            // Needs no limit: hyper reads no more than Content-Length.
            Some(_) => Either::Left(body.into_bytes()),
            None => Either::Right(Box::pin(body.into_bytes_limit(self.bytes))),
        };
        let (text, status) = match tokio::time::timeout(self.timeout, reading).await {
            Ok(Ok(bytes)) => {
                request.set_body(Body::from_bytes(bytes));
                return Ok(());
            }
            Ok(Err(ReadBodyError::Io(_))) => (UNREADABLE, StatusCode::BAD_REQUEST),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => (TIMED_OUT, StatusCode::REQUEST_TIMEOUT),
        };
        Err(Error::from_string(text, status))
    }
}

impl Default for BodyLimit {
    fn default() -> Self {
        Self::new(DEFAULT_BODY_LIMIT)
    }
}

impl<E: Endpoint> Middleware<E> for BodyLimit {
    type Output = BodyLimitEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        BodyLimitEndpoint { inner, limit: *self }
    }
}

/// An endpoint wrapped by [`BodyLimit`].
#[derive(Debug)]
pub struct BodyLimitEndpoint<E> {
    inner: E,
    limit: BodyLimit,
}

impl<E: Endpoint> Endpoint for BodyLimitEndpoint<E> {
    type Output = E::Output;

    // Boxes the future that reads a body: otherwise requests without a body would also reserve space for it.
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
