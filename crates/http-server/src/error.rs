//! The server's own error responses, and the replacement of the ones that hyper writes by itself.

use std::sync::Arc;

use futures_util::FutureExt;
use http::{StatusCode, header};
use poem::Response;

use crate::connection_info::{RequestId, X_REQUEST_ID};
use crate::limits::{MAX_HEADER_BYTES, MAX_HEADERS};

/// Creates the server's own error responses from a status, a code for programs and a message for people.
pub type ErrorResponder = Arc<dyn Fn(StatusCode, &str, &str) -> Response + Send + Sync>;

/// The error response to a request with too large a URL or headers.
pub(crate) fn headers_too_large(errors: &ErrorResponder, status: StatusCode) -> Response {
    let limit = format!("The limit is {MAX_HEADER_BYTES} bytes and {MAX_HEADERS} headers.");
    errors(status, "headers_too_large", &format!("The URL and headers are too large. {limit}"))
}

/// Returns the replacement for a bare 4xx, which hyper writes in one piece as the last response of an HTTP/1 connection
/// when it rejects a request itself. `None` if `bytes` are something else: all of our own responses have an ID.
pub(crate) fn replace_bare_error(bytes: &[u8], errors: &ErrorResponder) -> Option<Vec<u8>> {
    let status = bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3).filter(|status| status[0] == b'4')?;
    let status = StatusCode::from_bytes(status).ok()?;
    let head = str::from_utf8(bytes).ok()?.strip_suffix("\r\n").filter(|head| head.ends_with("\r\n"))?;
    let is_bare = head.contains("\r\ncontent-length: 0\r\n") && !head.contains("\r\nx-request-id: ");
    let mut response = match status {
        _ if !is_bare => return None,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG => {
            headers_too_large(errors, status)
        }
        _ => errors(status, "bad_request", "The request is not valid HTTP."),
    };
    // In memory, so it is ready.
    let body = response.take_body().into_bytes().now_or_never()?.ok()?;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, body.len().into());
    // The request could not be parsed, so it can't have an ID of its own.
    headers.insert(X_REQUEST_ID, RequestId::generate().to_header());
    // hyper's lines are the status, `connection: close` and the date.
    let mut replacement = head.replace("content-length: 0\r\n", "").into_bytes();
    for (name, value) in &*headers {
        replacement.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    Some([&replacement[..], b"\r\n", &body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\
                        date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";

    fn replaced(bytes: &str) -> Option<String> {
        let errors: ErrorResponder = Arc::new(|status, code, _| {
            Response::builder().status(status).header("x-cors", "*").body(code.to_owned())
        });
        replace_bare_error(bytes.as_bytes(), &errors).map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
    }

    #[test]
    fn bare_error_gets_body_and_headers() {
        let text = replaced(BARE).expect("a bare response");
        let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
        assert!(
            head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ndate: ")
        );
        for line in ["x-cors: *", "content-length: 17", "x-request-id: "] {
            assert!(head.contains(&format!("\r\n{line}")), "{head}");
        }
        assert!(!head.contains("content-length: 0"), "{head}");
        assert_eq!(body, "headers_too_large");
    }

    #[test]
    fn our_own_responses_are_not_replaced() {
        for response in [
            BARE.replace("date:", "x-request-id: a\r\ndate:"),
            BARE.replace("431 ", "200 "),
            BARE.replace("content-length: 0", "content-length: 2") + "{}",
            BARE.replace("content-length: 0\r\n", ""),
            BARE.trim_end().to_owned(),
        ] {
            assert_eq!(replaced(&response), None, "{response}");
        }
    }
}
