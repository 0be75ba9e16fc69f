//! Extracts the database from a download: plain, gzip, tar or tar.gz, detected by content instead of file name.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, Write};

use flate2::read::MultiGzDecoder;

use super::error::{Result, UpdateError};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const TAR_BLOCK: u64 = 512;
const TAR_MAGIC_RANGE: std::ops::Range<usize> = 257..262;

/// Copies the database from `from` to `to`. Fails if more than `limit` bytes are unpacked, to stop decompression bombs.
pub(super) fn unpack(mut from: File, to: &mut impl Write, limit: u64) -> Result<()> {
    let mut magic = Vec::new();
    (&mut from).take(2).read_to_end(&mut magic)?;
    from.rewind()?;
    let unpacked: Box<dyn Read> =
        if magic == GZIP_MAGIC { Box::new(MultiGzDecoder::new(from)) } else { Box::new(from) };
    // One byte more than allowed. If it is read, the content is too large, whatever the result.
    let mut unpacked = unpacked.take(limit.saturating_add(1));
    let found = copy_database(&mut unpacked, to);
    if unpacked.limit() == 0 {
        return Err(UpdateError::TooLarge(limit));
    }
    if found.map_err(UpdateError::Archive)? { Ok(()) } else { Err(UpdateError::NoDatabase) }
}

/// Returns whether there is a database.
fn copy_database(from: &mut impl Read, to: &mut impl Write) -> io::Result<bool> {
    let mut head = Vec::new();
    from.take(TAR_BLOCK).read_to_end(&mut head)?;
    let is_tar = head.get(TAR_MAGIC_RANGE) == Some(b"ustar");
    let mut whole = Cursor::new(head).chain(from);
    if is_tar { copy_from_tar(whole, to) } else { io::copy(&mut whole, to).map(|_| true) }
}

/// Copies the first file whose name ends in `.mmdb`. Links, directories and all other entries are skipped, also extension
/// headers, which `tar` would read into memory, whatever their size. Only names over 100 bytes would need them.
fn copy_from_tar(from: impl Read, to: &mut impl Write) -> io::Result<bool> {
    let mut archive = tar::Archive::new(from);
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        if entry.header().entry_type().is_file() && entry.path_bytes().ends_with(b".mmdb") {
            io::copy(&mut entry, to)?;
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use tar::{Builder, EntryType, Header};

    use super::*;

    const CONTENT: &[u8] = b"content";

    /// Adds an entry with this type, name in its header, and content.
    fn add(archive: &mut Builder<Vec<u8>>, kind: EntryType, name: &str, content: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_path(name).unwrap();
        header.set_cksum();
        archive.append(&header, content).unwrap();
    }

    fn unpacked(archive: Builder<Vec<u8>>) -> Result<Vec<u8>, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&archive.into_inner().unwrap()).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let mut to = Vec::new();
        unpack(file, &mut to, 1 << 30).map_err(|error| format!("{:#}", anyhow::Error::new(error)))?;
        Ok(to)
    }

    #[test]
    fn extension_headers_of_any_size_are_skipped() {
        for kind in
            [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader]
        {
            let mut archive = Builder::new(Vec::new());
            add(&mut archive, kind, "first.mmdb", &[b'x'; 1 << 20]);
            add(&mut archive, EntryType::Regular, "x.mmdb", CONTENT);
            assert_eq!(unpacked(archive).unwrap(), CONTENT, "{kind:?}");
        }
    }

    #[test]
    fn links_directories_and_sparse_files_named_like_a_database_are_skipped() {
        let kinds = [EntryType::Symlink, EntryType::Link, EntryType::Directory, EntryType::Fifo];
        for kind in kinds.into_iter().chain([EntryType::GNUSparse]) {
            let mut archive = Builder::new(Vec::new());
            add(&mut archive, kind, "first.mmdb", b"");
            assert_eq!(unpacked(archive).unwrap_err(), "the archive contains no .mmdb file", "{kind:?}");
        }
    }
}
