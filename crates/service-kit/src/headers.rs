//! Headers that many responses have in common.

use std::future::{Ready, ready};

use http::HeaderMap;
use poem::{Error, Response, Result};

/// Adds each of the headers that a response does not have yet. For poem's `after`.
pub fn add_missing_headers(result: Result<Response>, headers: &HeaderMap) -> Ready<Result<Response>> {
    let mut response = result.unwrap_or_else(Error::into_response);
    for (name, value) in headers {
        response.headers_mut().entry(name).or_insert_with(|| value.clone());
    }
    ready(Ok(response))
}
