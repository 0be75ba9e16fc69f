//! Dispatches requests straight to the operations of an API, bypassing poem's router.

use std::{
    collections::HashMap,
    future::{Future, ready},
};

use futures_util::future::Either;
use http::Method;
use poem::{
    Endpoint, Request, Response, Result,
    endpoint::{BoxEndpoint, DynEndpoint},
    error::{MethodNotAllowedError, NotFoundError},
};
use poem_openapi::OpenApi;

/// The operations of an API by path and method, for busy paths without parameters.
///
/// Replaces `OpenApiService` and `Route`. `OpenApiService` copies every query into strings first; `Route` allocates
/// for each path and method that it matches. Together they cost more than the operation itself.
pub struct DirectRouter(Vec<RouteEntry>);

struct RouteEntry {
    path: String,
    method: Method,
    endpoint: BoxEndpoint<'static>,
}

impl DirectRouter {
    /// Routes to the operations of `api`, with `prefix` in front of each path.
    pub fn new(api: impl OpenApi, prefix: &str) -> Self {
        let mut paths = HashMap::new();
        api.add_routes(&mut paths);
        let entries = |(path, methods): (String, HashMap<_, _>)| {
            methods.into_iter().map(move |(method, endpoint)| RouteEntry {
                path: format!("{prefix}{path}"),
                method,
                endpoint,
            })
        };
        Self(paths.into_iter().flat_map(entries).collect())
    }

    fn find(&self, request: &Request) -> Result<&dyn DynEndpoint<Output = Response>> {
        let mut matching = self.0.iter().filter(|entry| entry.path == request.uri().path()).peekable();
        matching.peek().ok_or(NotFoundError)?;
        let entry = matching.find(|entry| entry.method == *request.method());
        Ok(&*entry.ok_or(MethodNotAllowedError)?.endpoint)
    }
}

impl Endpoint for DirectRouter {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        match self.find(&request) {
            Ok(endpoint) => Either::Left(endpoint.call(request)),
            Err(error) => Either::Right(ready(Err(error))),
        }
    }
}
