//! Authenticates clients: with `--quota-token-file`, rejects every request without the token, whatever its path.

use std::future::ready;

use futures_util::TryFutureExt;
use futures_util::future::Either;
use http::{HeaderValue, StatusCode, header};
use poem::{Endpoint, Error, IntoResponse, Middleware, Request, Response, Result};
use quota_client::QuotaToken;
use service_kit::ErrorBody;

use super::DOCS;

#[derive(Debug, Clone)]
pub struct TokenGuard {
    /// `None` accepts every request.
    pub token: Option<QuotaToken>,
}

impl TokenGuard {
    fn accepts(&self, request: &Request) -> bool {
        self.token.as_ref().is_none_or(|token| token.matches(request.headers()))
    }
}

impl<E: Endpoint> Middleware<E> for TokenGuard {
    type Output = Guarded<E>;

    fn transform(&self, inner: E) -> Self::Output {
        Guarded { inner, guard: self.clone() }
    }
}

pub struct Guarded<E> {
    inner: E,
    guard: TokenGuard,
}

impl<E: Endpoint> Endpoint for Guarded<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        match self.guard.accepts(&request) {
            true => Either::Left(self.inner.call(request).map_ok(IntoResponse::into_response)),
            false => Either::Right(ready(Err(Error::from_response(unauthorized())))),
        }
    }
}

fn unauthorized() -> Response {
    let message =
        "The token of this quota-svc is missing or wrong. Set --quota-token-file to the file with its token.";
    let body = ErrorBody::new("unauthorized", message, DOCS);
    let mut response = service_kit::error::response(StatusCode::UNAUTHORIZED, &body);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}
