//! Finds the frames in the bytes that the server sends on an HTTP/2 connection.

/// The length of a frame's header.
pub(super) const FRAME_HEADER: usize = 9;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// Follows the frames of a byte stream that arrives in arbitrary parts.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameScanner {
    /// The bytes of an incomplete frame header.
    header: [u8; FRAME_HEADER],
    /// How many bytes of `header` are known.
    known: usize,
    /// How many bytes of the current frame's payload are still to come.
    payload: usize,
}

impl FrameScanner {
    /// Advances over `bytes`. Returns whether any of them belong to a response: to a HEADERS or DATA frame.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) -> bool {
        let mut response = false;
        while !bytes.is_empty() {
            if self.payload > 0 {
                response |= is_response(self.header[3]);
                let skipped = self.payload.min(bytes.len());
                self.payload -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let taken = (FRAME_HEADER - self.known).min(bytes.len());
            self.header[self.known..self.known + taken].copy_from_slice(&bytes[..taken]);
            self.known += taken;
            bytes = &bytes[taken..];
            if self.known == FRAME_HEADER {
                self.known = 0;
                self.payload = payload_length(&self.header);
                response |= is_response(self.header[3]);
            }
        }
        response
    }

    /// The position in `bytes` of the first frame that starts there; `bytes` continue the stream.
    pub(super) fn next_frame(&self, bytes: &[u8]) -> Option<usize> {
        (self.known == 0 && self.payload <= bytes.len()).then_some(self.payload)
    }
}

fn is_response(kind: u8) -> bool {
    matches!(kind, DATA | HEADERS)
}

/// The length of the payload that follows a frame header.
pub(super) fn payload_length(header: &[u8; FRAME_HEADER]) -> usize {
    u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize
}

/// Encodes a frame.
pub(super) fn encode(kind: u8, flags: u8, stream: [u8; 4], payload: &[u8]) -> Vec<u8> {
    // Our payloads are far below the 16 KiB that every client accepts.
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream);
    frame.extend(payload);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    #[test]
    fn only_headers_and_data_count_as_response_in_any_split() {
        let ping = encode(PING, 1, [0; 4], &[0; 8]);
        let data = encode(DATA, 0, [0, 0, 0, 1], b"abc");
        for size in 1..30 {
            let mut scanner = FrameScanner::default();
            assert!(!ping.chunks(size).any(|part| scanner.advance(part)), "{size}");
            assert!(data.chunks(size).map(|part| scanner.advance(part)).last() == Some(true), "{size}");
            assert!(!ping.chunks(size).any(|part| scanner.advance(part)), "{size}");
        }
    }

    #[test]
    fn next_frame_is_found_after_a_partial_payload() {
        let mut scanner = FrameScanner::default();
        let data = encode(DATA, 0, [0, 0, 0, 1], b"abcdef");
        assert_eq!(scanner.next_frame(&data), Some(0));
        scanner.advance(&data[..11]);
        assert_eq!(scanner.next_frame(&data[11..]), Some(4));
        assert_eq!(scanner.next_frame(&data[11..13]), None);
    }
}
