//! Raw HTTP/2 frames, for requests that no client library would send.

/// A connection preface and `count` requests, each canceled immediately (rapid reset).
#[must_use]
pub fn rapid_resets(count: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in (0..count).map(|n| (2 * n + 1).to_be_bytes()) {
        // HEADERS with END_HEADERS and END_STREAM: GET, http, /, authority "localhost".
        bytes.extend([0, 0, 14, 1, 5].iter().chain(&stream).chain(b"\x82\x86\x84\x41\x09localhost"));
        // RST_STREAM with CANCEL.
        bytes.extend([0, 0, 4, 3, 0].iter().chain(&stream).chain(&[0, 0, 0, 8]));
    }
    bytes
}

/// The error code of the first GOAWAY frame in `bytes`.
#[must_use]
pub fn goaway_code(mut bytes: &[u8]) -> Option<[u8; 4]> {
    while let [a, b, c, kind, _flags, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        if *kind == 7 {
            return payload.get(4..8)?.try_into().ok();
        }
        bytes = rest;
    }
    None
}
