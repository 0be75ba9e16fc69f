//! Protects the API from web pages: rejects requests with an `Origin` header and, against DNS rebinding, requests whose
//! `Host` is not a loopback name.

use std::future::ready;
use std::net::IpAddr;

use futures_util::TryFutureExt;
use futures_util::future::Either;
use http::{StatusCode, header};
use poem::{Endpoint, Error, IntoResponse, Middleware, Request, Response, Result};
use service_kit::ErrorBody;

use super::DOCS;

#[derive(Debug, Clone, Copy)]
pub struct LoopbackGuard {
    /// Accept any `Host` (`--allow-remote`).
    pub allow_remote: bool,
}

impl LoopbackGuard {
    fn check(self, request: &Request) -> Result<(), &'static str> {
        if request.headers().contains_key(header::ORIGIN) {
            return Err("Requests from web pages (Origin header) are rejected.");
        }
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        // HTTP/2 has the host in the URI.
        let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
        if !self.allow_remote && !host.is_some_and(is_loopback) {
            return Err("The Host must be a loopback name (127.0.0.1, [::1], localhost).");
        }
        Ok(())
    }
}

/// Accepts `127.0.0.1:8082`, `[::1]`, `localhost:8082` and so on.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl<E: Endpoint> Middleware<E> for LoopbackGuard {
    type Output = Guarded<E>;

    fn transform(&self, inner: E) -> Self::Output {
        Guarded { inner, guard: *self }
    }
}

pub struct Guarded<E> {
    inner: E,
    guard: LoopbackGuard,
}

impl<E: Endpoint> Endpoint for Guarded<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        match self.guard.check(&request) {
            Ok(()) => Either::Left(self.inner.call(request).map_ok(IntoResponse::into_response)),
            Err(reason) => {
                let body = ErrorBody::new("forbidden", reason, DOCS);
                let response = service_kit::error::response(StatusCode::FORBIDDEN, &body);
                Either::Right(ready(Err(Error::from_response(response))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_are_accepted() {
        for host in ["127.0.0.1", "127.0.0.1:8082", "127.9.9.9:1", "[::1]", "[::1]:8082", "LOCALHOST:8082"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["", "example.org", "10.0.0.1:8082", "127.0.0.1.example.org", "localhost.example.org:80", "[::2]"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
