//! An API's operations without what stands between them and a request.

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

/// The operations of an API by path and method, for paths without parameters that many requests take.
///
/// Neither `OpenApiService`, which collects every query into strings first, nor `Route`, which has a piece of memory
/// for each path and each method that it passes: together they cost more than an operation does.
pub struct Operations(Vec<Operation>);

struct Operation {
    path: String,
    method: Method,
    endpoint: BoxEndpoint<'static>,
}

impl Operations {
    /// The operations of `api`, whose paths begin with `prefix`.
    pub fn new(api: impl OpenApi, prefix: &str) -> Self {
        let mut paths = HashMap::new();
        api.add_routes(&mut paths);
        let of_path = |(path, methods): (String, HashMap<_, _>)| {
            methods.into_iter().map(move |(method, endpoint)| Operation {
                path: format!("{prefix}{path}"),
                method,
                endpoint,
            })
        };
        Self(paths.into_iter().flat_map(of_path).collect())
    }

    fn find(&self, request: &Request) -> Result<&dyn DynEndpoint<Output = Response>> {
        let mut here = self.0.iter().filter(|operation| operation.path == request.uri().path()).peekable();
        here.peek().ok_or(NotFoundError)?;
        let found = here.find(|operation| operation.method == *request.method());
        Ok(&*found.ok_or(MethodNotAllowedError)?.endpoint)
    }
}

impl Endpoint for Operations {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        match self.find(&request) {
            Ok(endpoint) => Either::Left(endpoint.call(request)),
            Err(error) => Either::Right(ready(Err(error))),
        }
    }
}
