//! The JSON body of every error response.

mod catch_all;

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use http_server::ErrorResponder;
use poem::{IntoResponse, Response};
use poem_openapi::Object;
use serde::{Deserialize, Serialize};

use crate::json::SerdeJson;

pub use catch_all::{CatchAll, CatchAllEndpoint, catch_all};

/// The message of every 500 whose cause must not leave the server.
pub const INTERNAL_ERROR: &str = "Something went wrong on the server. Retry in a few seconds.";

/// Body of an error response: a code for programs, a message for people and a link to the documentation.
#[derive(Object, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[oai(rename = "ErrorResponse", skip_serializing_if_is_none)]
pub struct ErrorBody {
    /// Error code in snake_case.
    pub error: String,
    /// What happened and what to do about it.
    pub message: String,
    /// Link to the documentation of this error.
    pub docs: String,
    /// Where to request a higher limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enterprise: Option<String>,
    /// Where to sign up for an API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signup: Option<String>,
}

impl ErrorBody {
    /// Creates a body that links to the section of `docs_url` named after the code.
    pub fn new(code: &str, message: impl Into<String>, docs_url: &str) -> Self {
        Self {
            error: code.to_owned(),
            message: message.into(),
            docs: format!("{docs_url}#{code}"),
            enterprise: None,
            signup: None,
        }
    }

    /// Creates a body with the generic code of a status, for errors without a specific code.
    pub fn for_status(status: StatusCode, message: impl Into<String>, docs_url: &str) -> Self {
        Self::new(code_for(status), message, docs_url)
    }
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

/// Maps a status to a generic error code, for errors that poem or the connection handling produces and no handler does.
fn code_for(status: StatusCode) -> &'static str {
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
