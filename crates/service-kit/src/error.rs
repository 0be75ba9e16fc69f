//! The body of every error, and how to answer with it.

mod catch_all;

use http::{HeaderValue, StatusCode, header};
use poem::Response;
use poem_openapi::Object;
use serde::{Deserialize, Serialize};

pub use catch_all::{CatchAll, CatchAllEndpoint, catch_all};

/// What an error answers: a code for programs, a message for people, a link to more.
#[derive(Object, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[oai(rename = "ErrorResponse", skip_serializing_if_is_none)]
pub struct ErrorBody {
    /// The error's code, in snake_case.
    pub error: String,
    /// What happened and what to do, in a sentence.
    pub message: String,
    /// Link to the section of the documentation about this error.
    pub docs: String,
    /// Where to ask for a higher limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enterprise: Option<String>,
    /// Where to sign up for a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signup: Option<String>,
}

impl ErrorBody {
    /// A body whose link is the code's section of the documentation at `docs_url`.
    pub fn new(code: &str, message: impl Into<String>, docs_url: &str) -> Self {
        Self {
            error: code.to_owned(),
            message: message.into(),
            docs: format!("{docs_url}#{code}"),
            enterprise: None,
            signup: None,
        }
    }

    /// The body for a status that no code of ours made more precise.
    pub fn for_status(status: StatusCode, message: impl Into<String>, docs_url: &str) -> Self {
        Self::new(code_for(status), message, docs_url)
    }
}

/// An error as a response: the status, `application/json`, the body.
pub fn response(status: StatusCode, body: &ErrorBody) -> Response {
    let bytes = serde_json::to_vec(body).expect("an ErrorBody is strings only");
    let mut response = Response::builder().status(status).body(bytes);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The code of a status that the framework or the server answers by itself.
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
