//! Follows the frames of an HTTP/2 client.

/// The connection preface, which an HTTP/2 client sends first.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Parts of a frame (RFC 9113, section 4.1).
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Tells how much of an unfinished header block has arrived: h2 decodes and holds its fields until the block ends.
#[derive(Debug)]
pub(crate) struct HeaderBlocks {
    /// The head of the frame that is being read, or of the previous one.
    head: [u8; HEAD],
    head_length: usize,
    /// How many bytes of the frame's payload have not arrived.
    payload: usize,
    unfinished: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockBytes {
    /// Those of the last read, and those of the unfinished block before them.
    pub(crate) read: usize,
    /// Those of the unfinished block.
    pub(crate) unfinished: usize,
}

impl HeaderBlocks {
    /// Begins before the preface, which is read like the payload of a frame.
    pub(crate) fn new() -> Self {
        Self { head: [0; HEAD], head_length: 0, payload: PREFACE.len(), unfinished: 0 }
    }

    /// Reads the connection's next bytes.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> BlockBytes {
        let mut read = self.unfinished;
        while let Some((first, rest)) = bytes.split_first() {
            if self.payload > 0 {
                let part = self.payload.min(bytes.len());
                self.payload -= part;
                if self.is_block() {
                    self.unfinished += part;
                    read += part;
                }
                bytes = &bytes[part..];
            } else {
                self.head[self.head_length] = *first;
                self.head_length = (self.head_length + 1) % HEAD;
                bytes = rest;
                if self.head_length > 0 {
                    continue;
                }
                let [high, middle, low, ..] = self.head.map(usize::from);
                self.payload = high << 16 | middle << 8 | low;
            }
            if self.payload == 0 && self.is_block() && self.head[4] & END_HEADERS != 0 {
                self.unfinished = 0;
            }
        }
        BlockBytes { read, unfinished: self.unfinished }
    }

    /// Whether the frame has a part of a header block.
    fn is_block(&self) -> bool {
        [HEADERS, CONTINUATION].contains(&self.head[3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).expect("short");
        [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// The sizes of the unfinished block after each part.
    fn sizes(parts: &[Vec<u8>]) -> Vec<usize> {
        let mut blocks = HeaderBlocks::new();
        assert_eq!(blocks.read(PREFACE), BlockBytes::default());
        parts.iter().map(|part| blocks.read(part).unfinished).collect()
    }

    #[test]
    fn finished_blocks_of_a_read_count_too() {
        let mut blocks = HeaderBlocks::new();
        blocks.read(&[&PREFACE[..], &frame(HEADERS, 0, b"ab")].concat());
        let rest = [frame(CONTINUATION, END_HEADERS, b"c"), frame(HEADERS, END_HEADERS, b"de")].concat();
        assert_eq!(blocks.read(&rest), BlockBytes { read: 5, unfinished: 0 });
    }

    #[test]
    fn block_counts_until_its_last_frame_ends() {
        let last = frame(CONTINUATION, END_HEADERS, b"cd");
        let parts =
            [frame(HEADERS, 0, b"ab"), frame(CONTINUATION, 0, b""), last[..10].to_vec(), last[10..].to_vec()];
        assert_eq!(sizes(&parts), [2, 2, 3, 0]);
    }

    #[test]
    fn frames_without_headers_do_not_count() {
        let ping = frame(6, 0, &[0; 8]);
        let parts =
            [ping[..3].to_vec(), ping[3..].to_vec(), frame(0, 0, b"data"), frame(HEADERS, END_HEADERS, b"")];
        assert_eq!(sizes(&parts), [0; 4]);
    }

    #[test]
    fn single_bytes_give_the_same_result_as_all_at_once() {
        let all =
            [frame(4, 0, b"123456"), frame(HEADERS, END_HEADERS, b"a"), frame(HEADERS, 0, b"abc")].concat();
        let singles: Vec<_> = all.iter().map(|byte| vec![*byte]).collect();
        assert_eq!(sizes(&singles).last(), Some(&3));
        assert_eq!(sizes(&[all]), [3]);
    }
}
