//! The JSON body of every error response, also of the framework's errors (404, 405, invalid parameters, 413) and panics.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_server::ErrorResponder;
use poem::{
    Endpoint, Error, IntoResponse, Middleware, Request, Response, Result, error::MethodNotAllowedError,
    middleware::make,
};
use poem_openapi::Object;
use serde::{Deserialize, Serialize};

use crate::json::SerdeJson;

/// The message of every 5xx whose cause must not leave the server.
pub const INTERNAL_ERROR: &str = "Something went wrong on the server. Retry in a few seconds.";

/// Body of an error response: a code for programs, a message for people and a link to the documentation.
#[derive(Object, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[oai(rename = "ErrorResponse")]
pub struct ErrorBody {
    /// Error code in snake_case.
    pub error: String,
    /// What happened and what to do about it.
    pub message: String,
    /// Link to the documentation of this error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub docs: String,
    /// Where to request a higher limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enterprise: Option<String>,
    /// Where to sign up for an API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signup: Option<String>,
}

impl ErrorBody {
    /// Creates a body that links to the section of `docs_url` named after the code, or to nothing if that is empty.
    pub fn new(code: &str, message: impl Into<String>, docs_url: &str) -> Self {
        let docs = if docs_url.is_empty() { String::new() } else { format!("{docs_url}#{code}") };
        Self { error: code.to_owned(), message: message.into(), docs, enterprise: None, signup: None }
    }
}

/// Capitalizes the first letter of a message and ends it with one period.
pub fn sentence(message: &str) -> String {
    let mut chars = message.trim_end_matches('.').chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str() + "."
}

/// Creates a JSON error response.
pub fn response(status: StatusCode, body: &ErrorBody) -> Response {
    let mut response = SerdeJson(body).into_response();
    response.set_status(status);
    response
}

/// Creates the error responses of a server, with this documentation URL and these headers.
pub fn responder(docs_url: impl Into<String>, headers: &HeaderMap) -> ErrorResponder {
    let (docs_url, headers) = (docs_url.into(), headers.clone());
    Arc::new(move |status, code, message| {
        let mut response = response(status, &ErrorBody::new(code, message, &docs_url));
        response.headers_mut().extend(headers.clone());
        response
    })
}

/// Maps a status to a generic error code, for errors that do not come from a handler but from poem or the connection.
pub fn code_for(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::REQUEST_TIMEOUT => "request_timeout",
        StatusCode::PAYLOAD_TOO_LARGE => "payload_too_large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported_media_type",
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "headers_too_large",
        status if status.is_server_error() => "internal_error",
        _ => "bad_request",
    }
}

/// The header `Allow` of a 405, as data of the error.
#[derive(Clone)]
struct Allow(HeaderValue);

/// The error of a path that supports only the methods in `allow`. poem's own error does not list them; [`catch_all`] then
/// takes them for `GET, HEAD`.
pub fn method_not_allowed(allow: HeaderValue) -> Error {
    let mut error = Error::from(MethodNotAllowedError);
    error.set_data(Allow(allow));
    error
}

/// Middleware that turns errors and panics into responses, see [`responder`]. An error that already
/// contains a response passes through unchanged.
pub fn catch_all<E: Endpoint>(errors: ErrorResponder) -> impl Middleware<E, Output = CatchAll<E>> {
    make(move |inner| CatchAll { inner, errors: errors.clone() })
}

/// An endpoint wrapped by [`catch_all`].
pub struct CatchAll<E> {
    inner: E,
    errors: ErrorResponder,
}

fn error_response(errors: &ErrorResponder, error: Error) -> Response {
    if error.is_from_response() {
        return error.into_response();
    }
    let status = error.status();
    let mut response = errors(status, code_for(status), &message(&error, status));
    // Keeps data attached to the error, such as the operation ID.
    *response.extensions_mut() = std::mem::take(error.into_response().extensions_mut());
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let allow = response.extensions_mut().remove().map(|Allow(methods)| methods);
        let allow = allow.unwrap_or(HeaderValue::from_static("GET, HEAD"));
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

const INTERNAL: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

/// The message for the client. The cause of a server error goes only to the log.
fn message(error: &Error, status: StatusCode) -> String {
    match status {
        StatusCode::NOT_FOUND => "This path does not exist. Check the URL.".to_owned(),
        StatusCode::METHOD_NOT_ALLOWED => "This path does not support this HTTP method.".to_owned(),
        StatusCode::PAYLOAD_TOO_LARGE => "The request body is too large.".to_owned(),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            "Send the body with its `Content-Type`, usually `application/json`.".to_owned()
        }
        status if status.is_server_error() => {
            tracing::error!(%status, %error, "request failed");
            INTERNAL_ERROR.to_owned()
        }
        _ => error.to_string(),
    }
}

impl<E: Endpoint> Endpoint for CatchAll<E> {
    type Output = Response;

    fn call(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        // Unwind safe: the request's own state is dropped with it, and shared state is behind locks that tolerate
        // poisoning.
        AssertUnwindSafe(self.inner.call(request)).catch_unwind().map(|caught| {
            Ok(match caught {
                Ok(Ok(output)) => output.into_response(),
                Ok(Err(error)) => error_response(&self.errors, error),
                // The panic hook has logged it.
                Err(_) => (self.errors)(INTERNAL, code_for(INTERNAL), INTERNAL_ERROR),
            })
        })
    }
}

/// Adds each of the headers that a response does not have yet.
pub fn add_missing_headers(mut response: Response, headers: &HeaderMap) -> Response {
    for (name, value) in headers {
        response.headers_mut().entry(name).or_insert_with(|| value.clone());
    }
    response
}
