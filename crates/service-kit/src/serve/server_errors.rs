//! The errors that the server itself responds with. They replace the bare 4xx that the HTTP library sends when it
//! rejects a request before our code sees it.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use poem::Response;

use super::{
    frames::{self, DATA, END_HEADERS, END_STREAM, FRAME_HEADER, FrameScanner, HEADERS},
    limits::MAX_HEADER_BYTES,
};
use crate::{
    error::{self, ErrorBody},
    request_id::{RequestId, X_REQUEST_ID},
};

/// Creates the server's own errors, with a service's documentation URL and headers.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerErrors {
    pub(super) docs_url: String,
    pub(super) headers: HeaderMap,
}

/// A response of the HTTP library in the bytes to be sent, and what to send instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    /// Where the response starts.
    pub(super) start: usize,
    pub(super) length: usize,
    pub(super) bytes: Vec<u8>,
}

impl ServerErrors {
    pub(super) fn response(&self, status: StatusCode, message: impl Into<String>) -> Response {
        self.with_headers(error::response(status, &ErrorBody::for_status(status, message, &self.docs_url)))
    }

    /// Adds the service's headers for errors to a response.
    pub(super) fn with_headers(&self, mut response: Response) -> Response {
        response.headers_mut().extend(self.headers.clone());
        response
    }

    pub(super) fn headers_too_large(&self) -> Response {
        self.response(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, too_large())
    }

    /// Finds a bare error of hyper in HTTP/1 bytes. hyper writes it in one piece, as the last response of a connection.
    pub(super) fn replace_http1(&self, bytes: &[u8]) -> Option<Replacement> {
        let (status, lines) = bare_http1(bytes)?;
        let (headers, body) = self.fields(status);
        let mut response = Vec::with_capacity(1024);
        for line in lines {
            response.extend([line.as_bytes(), b"\r\n"].concat());
        }
        for (name, value) in &headers {
            response.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        // hyper closes the connection after such an error.
        response.extend(b"connection: close\r\n\r\n");
        response.extend(body);
        Some(Replacement { start: 0, length: bytes.len(), bytes: response })
    }

    /// Finds a bare error of h2 in HTTP/2 bytes, which continue the frames that `sent` has seen.
    pub(super) fn replace_http2(&self, sent: &FrameScanner, bytes: &[u8]) -> Option<Replacement> {
        let mut start = sent.next_frame(bytes)?;
        while let Some((header, rest)) = bytes.get(start..)?.split_first_chunk::<FRAME_HEADER>() {
            let (length, kind, flags) = (frames::payload_length(header), header[3], header[4]);
            let bare = kind == HEADERS && flags & END_STREAM != 0;
            if let Some(status) = rest.get(..length).filter(|block| bare && has_one_field(block)) {
                let stream = [header[5], header[6], header[7], header[8]];
                let bytes = self.http2_frames(stream, status);
                return Some(Replacement { start, length: FRAME_HEADER + length, bytes });
            }
            start += FRAME_HEADER + length;
        }
        None
    }

    /// The frames of a 431, the only error that h2 responds with. `status` is its encoded `:status` field.
    fn http2_frames(&self, stream: [u8; 4], status: &[u8]) -> Vec<u8> {
        let (headers, body) = self.fields(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        let mut block = status.to_vec();
        for (name, value) in &headers {
            // A literal field without indexing, which leaves the table of h2's encoder as it is.
            block.push(0);
            push_string(&mut block, name.as_str().as_bytes());
            push_string(&mut block, value.as_bytes());
        }
        let mut bytes = frames::encode(HEADERS, END_HEADERS, stream, &block);
        bytes.extend(frames::encode(DATA, END_STREAM, stream, &body));
        bytes
    }

    /// The headers and the body that replace those of the HTTP library.
    fn fields(&self, status: StatusCode) -> (HeaderMap, Vec<u8>) {
        let message = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG => too_large(),
            _ => "The request is not valid HTTP.".to_owned(),
        };
        let body = ErrorBody::for_status(status, message, &self.docs_url);
        let body = serde_json::to_vec(&body).expect("an ErrorBody contains only strings");
        let mut headers = self.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        // The request could not be parsed, so it can't have an ID of its own.
        headers.insert(X_REQUEST_ID, RequestId::generate().to_header());
        (headers, body)
    }
}

fn too_large() -> String {
    format!("The URL and headers are too large. The limit is {MAX_HEADER_BYTES} bytes and 100 headers.")
}

/// Parses a bare HTTP/1 error. Returns its status and the lines to keep: the status line and the date.
///
/// No response of ours is mistaken for one, because all of our errors have a `content-type`.
fn bare_http1(bytes: &[u8]) -> Option<(StatusCode, Vec<&str>)> {
    let start = bytes.strip_prefix(b"HTTP/1.1 4")?;
    let text = str::from_utf8(bytes.strip_suffix(b"\r\n\r\n")?).ok()?;
    let status = StatusCode::from_bytes(&[b'4', *start.first()?, *start.get(1)?]).ok()?;
    let (mut lines, mut empty) = (Vec::new(), false);
    for (index, line) in text.split("\r\n").enumerate() {
        match line.split_once(": ").map_or(line, |(name, _)| name) {
            "content-length" => empty = line.ends_with(": 0"),
            "connection" => {}
            "date" => lines.push(line),
            _ if index == 0 => lines.push(line),
            _ => return None,
        }
    }
    empty.then_some((status, lines))
}

/// Whether a header block of h2's encoder has exactly one field. All responses of hyper also have a `date`.
fn has_one_field(block: &[u8]) -> bool {
    // A block may start with changes of the table's size.
    let mut rest = block;
    while let Some((first, _)) = rest.split_first().filter(|(first, _)| **first & 0xe0 == 0x20) {
        let Some(after) = skip_integer(rest, first & 0x1f, 0x1f) else { return false };
        rest = after;
    }
    let after = match rest.first() {
        Some(first) if first & 0x80 != 0 => skip_integer(rest, first & 0x7f, 0x7f),
        // A literal with an indexed name.
        Some(first) if first & 0xc0 == 0x40 && first & 0x3f != 0 => {
            skip_integer(rest, first & 0x3f, 0x3f).and_then(skip_string)
        }
        Some(first) if first & 0xe0 == 0 && first & 0x0f != 0 => {
            skip_integer(rest, first & 0x0f, 0x0f).and_then(skip_string)
        }
        _ => None,
    };
    after.is_some_and(<[u8]>::is_empty)
}

/// Skips an HPACK integer whose first byte has `prefix` in the bits of `mask`.
fn skip_integer(bytes: &[u8], prefix: u8, mask: u8) -> Option<&[u8]> {
    let (_, rest) = bytes.split_first()?;
    if prefix != mask {
        return Some(rest);
    }
    let length = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
    rest.get(length..)
}

/// Skips an HPACK string of fewer than 127 bytes, which every status is.
fn skip_string(bytes: &[u8]) -> Option<&[u8]> {
    let (first, rest) = bytes.split_first()?;
    rest.get(usize::from(first & 0x7f)..)
}

/// Appends an HPACK string without Huffman coding.
fn push_string(block: &mut Vec<u8>, text: &[u8]) {
    match u8::try_from(text.len()) {
        Ok(length) if length < 0x7f => block.push(length),
        _ => {
            block.push(0x7f);
            let mut left = text.len() - 0x7f;
            while left >= 0x80 {
                block.push((left & 0x7f) as u8 | 0x80);
                left >>= 7;
            }
            block.push(left as u8);
        }
    }
    block.extend(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\
                        date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";

    fn errors() -> ServerErrors {
        let cors = (header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        ServerErrors { docs_url: "https://docs.example".to_owned(), headers: [cors].into_iter().collect() }
    }

    #[test]
    fn bare_http1_error_gets_body_and_headers() {
        let replaced = errors().replace_http1(BARE.as_bytes()).expect("a bare response");
        let text = String::from_utf8(replaced.bytes).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
        assert_eq!(replaced.length, BARE.len());
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\ndate: "));
        assert!(head.ends_with("\r\nconnection: close"));
        assert!(
            head.contains("access-control-allow-origin: *")
                && head.contains("content-type: application/json")
        );
        assert!(
            head.contains(&format!("content-length: {}", body.len())) && !head.contains("content-length: 0")
        );
        assert!(body.starts_with("{\"error\":\"headers_too_large\""), "{body}");
    }

    #[test]
    fn our_http1_responses_are_not_replaced() {
        for response in [
            BARE.replace("date:", "content-type: text/plain\r\ndate:"),
            BARE.replace("431 ", "200 "),
            BARE.replace("content-length: 0", "content-length: 2") + "{}",
            BARE.replace("content-length: 0\r\n", ""),
        ] {
            assert_eq!(errors().replace_http1(response.as_bytes()), None, "{response}");
        }
    }

    #[test]
    fn header_block_with_one_field_is_recognized() {
        let literal = b"\x48\x82\x64\x02";
        for block in [&literal[..], b"\xbe", b"\x3f\xe1\x1f\x48\x03431", b"\xff\x00", b"\x08\x03431"] {
            assert!(has_one_field(block), "{block:x?}");
        }
        for block in
            [&b""[..], b"\x88\xbe", b"\xbe\xbf\xc0", b"\x48\x82\x64\x02\xbe", b"\x40\x01a\x01b", b"\x48\x82"]
        {
            assert!(!has_one_field(block), "{block:x?}");
        }
    }

    #[test]
    fn bare_http2_error_is_found_between_other_frames() {
        let (stream, ping) = ([0, 0, 0, 1], frames::encode(6, 0, [0; 4], &[0; 8]));
        let bare = frames::encode(HEADERS, END_HEADERS | END_STREAM, stream, b"\x48\x03431");
        let bytes = [&ping[..], &bare, &ping].concat();
        let replaced = errors().replace_http2(&FrameScanner::default(), &bytes).expect("a bare response");
        assert_eq!((replaced.start, replaced.length), (ping.len(), bare.len()));
        assert!(replaced.bytes.ends_with(b"}"));
        let long = [b'x'; 300];
        let mut block = Vec::new();
        push_string(&mut block, &long);
        assert_eq!(block[..3], [0x7f, 0xad, 0x01], "127 + 45 + 128");
        assert_eq!(errors().replace_http2(&FrameScanner::default(), &ping), None);
    }
}
