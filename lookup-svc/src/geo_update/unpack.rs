//! Extracts the database from a download: plain, gzip, tar or tar.gz, detected by content instead of file name.

use std::fs::File;
use std::io::{self, Cursor, Read, Write};

use flate2::read::MultiGzDecoder;

use super::UpdateError;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const TAR_BLOCK: u64 = 512;
const TAR_MAGIC_RANGE: std::ops::Range<usize> = 257..262;

/// Copies the database from `from` to `to`. Fails if more than `limit` bytes are unpacked, to stop decompression bombs.
pub(super) fn unpack(mut from: File, to: &mut impl Write, limit: u64) -> Result<(), UpdateError> {
    let mut magic = [0; 2];
    let read = read_up_to(&mut from, &mut magic).map_err(UpdateError::Archive)?;
    let whole = Cursor::new(magic).take(read as u64).chain(from);
    if magic == GZIP_MAGIC {
        unpack_limited(MultiGzDecoder::new(whole), to, limit)
    } else {
        unpack_limited(whole, to, limit)
    }
}

fn unpack_limited(from: impl Read, to: &mut impl Write, limit: u64) -> Result<(), UpdateError> {
    let mut from = LimitedReader { from, left: limit.saturating_add(1) };
    let result = copy_database(&mut from, to);
    // `tar` may wrap the error of `LimitedReader`, so the error does not show its cause. No bytes left means: the limit.
    match from.left {
        0 if result.is_err() => Err(UpdateError::TooLarge(limit)),
        _ => result,
    }
}

fn copy_database(from: &mut impl Read, to: &mut impl Write) -> Result<(), UpdateError> {
    let mut head = Vec::new();
    from.take(TAR_BLOCK).read_to_end(&mut head).map_err(UpdateError::Archive)?;
    let is_tar = head.get(TAR_MAGIC_RANGE) == Some(b"ustar");
    let mut whole = Cursor::new(head).chain(from);
    if !is_tar {
        io::copy(&mut whole, to).map_err(UpdateError::Archive)?;
        return Ok(());
    }
    for entry in tar::Archive::new(whole).entries().map_err(UpdateError::Archive)? {
        let mut entry = entry.map_err(UpdateError::Archive)?;
        let is_database = entry.path_bytes().ends_with(b".mmdb");
        if is_database && entry.header().entry_type().is_file() {
            io::copy(&mut entry, to).map_err(UpdateError::Archive)?;
            return Ok(());
        }
    }
    Err(UpdateError::NoDatabase)
}

fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Returns an error when more than the limit is read, unlike `Take`, which would return end of file.
struct LimitedReader<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::other("too large"));
        }
        let count = self.from.read(buffer)?;
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }
}
