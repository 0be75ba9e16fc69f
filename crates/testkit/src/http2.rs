//! Raw HTTP/2 frames, for requests that no client library would send.

/// What a client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Types and flags of frames.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const SETTINGS: u8 = 4;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Maximum payload of a frame, unless the receiver allows more.
pub const MAX_PAYLOAD: usize = 16 * 1024;

/// A frame.
///
/// # Panics
/// If the payload has more than 16 MiB.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short payload").to_be_bytes();
    assert_eq!(length[0], 0, "the length has 24 bits");
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// SETTINGS with the bytes of a response that the server may send on each stream.
#[must_use]
pub fn initial_window(bytes: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 4], &bytes.to_be_bytes()[..]].concat())
}

/// A connection's first bytes: the preface and [`initial_window`].
#[must_use]
pub fn preface(window: u32) -> Vec<u8> {
    [PREFACE, &initial_window(window)].concat()
}

/// The ID of a connection's request with this position.
#[must_use]
pub fn stream(position: u32) -> u32 {
    2 * position + 1
}

/// HEADERS of a GET request for localhost, with further header fields in HPACK. Without `ends`, a body follows.
///
/// # Panics
/// If the path has more than 126 bytes.
#[must_use]
pub fn get(stream: u32, path: &str, fields: &[u8], ends: bool) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("short path");
    assert!(length < 127, "the length is in one byte");
    // GET, http, :authority "localhost", :path; literals without indexing.
    let block = [b"\x82\x86\x01\x09localhost\x04", &[length][..], path.as_bytes(), fields].concat();
    frame(HEADERS, END_HEADERS | if ends { END_STREAM } else { 0 }, stream, &block)
}

/// WINDOW_UPDATE of one byte.
#[must_use]
pub fn one_byte_more(stream: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes())
}

/// A connection preface and `count` requests, each canceled immediately (rapid reset).
#[must_use]
pub fn rapid_resets(count: u32) -> Vec<u8> {
    let mut bytes = preface(65_535);
    for stream in (0..count).map(stream) {
        bytes.extend(get(stream, "/", &[], true));
        // CANCEL.
        bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    bytes
}

/// The error code of the first GOAWAY frame in `bytes`.
#[must_use]
pub fn goaway_code(mut bytes: &[u8]) -> Option<[u8; 4]> {
    while let [a, b, c, kind, _flags, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        if *kind == GOAWAY {
            return payload.get(4..8)?.try_into().ok();
        }
        bytes = rest;
    }
    None
}
