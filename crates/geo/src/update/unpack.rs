//! Extracts the database from a download: plain, gzip, tar or tar.gz, detected by content instead of file name.

use std::fs::File;
use std::io::{self, Cursor, Read, Write};

use flate2::read::MultiGzDecoder;
use tar::{Entry, EntryType};

use super::error::{Result, UpdateError};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const TAR_BLOCK: u64 = 512;
const TAR_MAGIC_RANGE: std::ops::Range<usize> = 257..262;

/// Maximum size of an extension header: a GNU long name, or the PAX attributes of one entry. Both are read into memory.
const MAX_EXTENSION_SIZE: u64 = 64 << 10;

/// Copies the database from `from` to `to`. Fails if more than `limit` bytes are unpacked, to stop decompression bombs.
pub(super) fn unpack(mut from: File, to: &mut impl Write, limit: u64) -> Result<()> {
    let mut magic = Vec::new();
    (&mut from).take(2).read_to_end(&mut magic).map_err(UpdateError::Archive)?;
    let is_gzip = magic == GZIP_MAGIC;
    let whole = Cursor::new(magic).chain(from);
    if is_gzip {
        unpack_limited(MultiGzDecoder::new(whole), to, limit)
    } else {
        unpack_limited(whole, to, limit)
    }
}

fn unpack_limited(from: impl Read, to: &mut impl Write, limit: u64) -> Result<()> {
    // One byte more than allowed. If it is read, the content is too large, whatever the result.
    let mut from = from.take(limit.saturating_add(1));
    let result = copy_database(&mut from, to);
    if from.limit() == 0 { Err(UpdateError::TooLarge(limit)) } else { result }
}

fn copy_database(from: &mut impl Read, to: &mut impl Write) -> Result<()> {
    let mut head = Vec::new();
    from.take(TAR_BLOCK).read_to_end(&mut head).map_err(UpdateError::Archive)?;
    let is_tar = head.get(TAR_MAGIC_RANGE) == Some(b"ustar");
    let mut whole = Cursor::new(head).chain(from);
    if !is_tar {
        io::copy(&mut whole, to).map_err(UpdateError::Archive)?;
        return Ok(());
    }
    match copy_from_tar(whole, to) {
        Ok(true) => Ok(()),
        Ok(false) => Err(UpdateError::NoDatabase),
        Err(error) => Err(UpdateError::Archive(error)),
    }
}

/// Copies the first file whose name ends in `.mmdb`. Returns whether there is one. Links, directories and all other
/// entries are skipped.
///
/// Reads raw entries, because `tar` would otherwise read extension headers and sparse maps of any size into memory.
fn copy_from_tar(from: impl Read, to: &mut impl Write) -> io::Result<bool> {
    let mut archive = tar::Archive::new(from);
    // The name from the extension headers that precede an entry.
    let mut long_name = None;
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        match entry.header().entry_type() {
            EntryType::GNULongName => {
                check_extension_size(&entry)?;
                let mut name = Vec::new();
                entry.read_to_end(&mut name)?;
                long_name = Some(name.strip_suffix(b"\0").map(<[u8]>::to_vec).unwrap_or(name));
            }
            EntryType::XHeader => long_name = pax_name(&mut entry)?.or(long_name),
            // Describe an entry's link target or the whole archive; neither matters here.
            EntryType::GNULongLink | EntryType::XGlobalHeader => {}
            EntryType::GNUSparse => return Err(invalid("the archive contains a sparse file")),
            kind => {
                let name = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
                if kind.is_file() && name.ends_with(b".mmdb") {
                    io::copy(&mut entry, to)?;
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// The name in a PAX extension header. Its other attributes do not matter, except for the size, which would replace the
/// size of the next entry: only files of 8 GiB and more need it.
fn pax_name(entry: &mut Entry<'_, impl Read>) -> io::Result<Option<Vec<u8>>> {
    check_extension_size(entry)?;
    let mut name = None;
    for attribute in entry.pax_extensions()?.into_iter().flatten() {
        let attribute = attribute?;
        match attribute.key_bytes() {
            b"path" => name = Some(attribute.value_bytes().to_vec()),
            b"size" => return Err(invalid("an extension header changes the size of a file")),
            _ => {}
        }
    }
    Ok(name)
}

fn check_extension_size(entry: &Entry<'_, impl Read>) -> io::Result<()> {
    if entry.size() <= MAX_EXTENSION_SIZE {
        return Ok(());
    }
    let size = entry.size();
    Err(invalid(format!("an extension header has {size} bytes, more than {MAX_EXTENSION_SIZE}")))
}

fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

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

    /// The result for an archive with one extension header and a file.
    fn with_extension(kind: EntryType, extension: &[u8], name: &str) -> Result<Vec<u8>, String> {
        let mut archive = Builder::new(Vec::new());
        add(&mut archive, kind, "extension", extension);
        add(&mut archive, EntryType::Regular, name, CONTENT);
        unpacked(archive)
    }

    fn pax(key: &str, value: &str) -> Vec<u8> {
        let rest = format!(" {key}={value}\n");
        // The length includes its own digits.
        let length =
            (1..6).map(|digits| digits + rest.len()).find(|n| n.to_string().len() + rest.len() == *n);
        format!("{}{rest}", length.unwrap()).into_bytes()
    }

    #[test]
    fn names_in_extension_headers_are_used() {
        let long = "d/".repeat(200) + "x.mmdb";
        let gnu = format!("{long}\0");
        assert_eq!(with_extension(EntryType::GNULongName, gnu.as_bytes(), "x.md").unwrap(), CONTENT);
        assert_eq!(with_extension(EntryType::XHeader, &pax("path", &long), "x.md").unwrap(), CONTENT);
        assert_eq!(with_extension(EntryType::XHeader, &pax("mtime", "1"), "x.mmdb").unwrap(), CONTENT);
        let renamed = with_extension(EntryType::XHeader, &pax("path", "x.md"), "x.mmdb");
        assert_eq!(renamed.unwrap_err(), "the archive contains no .mmdb file");
    }

    #[test]
    fn name_in_extension_header_applies_to_one_entry() {
        let mut archive = Builder::new(Vec::new());
        add(&mut archive, EntryType::GNULongName, "extension", b"x.mmdb\0");
        add(&mut archive, EntryType::Symlink, "link", b"");
        add(&mut archive, EntryType::Regular, "x.md", CONTENT);
        assert_eq!(unpacked(archive).unwrap_err(), "the archive contains no .mmdb file");
    }

    #[test]
    fn oversized_extension_header_is_rejected() {
        for kind in [EntryType::GNULongName, EntryType::XHeader] {
            let error = with_extension(kind, &[b'x'; 65_537], "x.mmdb").unwrap_err();
            let expected = "can't unpack the archive: an extension header has 65537 bytes, more than 65536";
            assert_eq!(error, expected, "{kind:?}");
        }
    }

    #[test]
    fn unused_extension_headers_of_any_size_are_skipped() {
        for kind in [EntryType::GNULongLink, EntryType::XGlobalHeader] {
            assert_eq!(with_extension(kind, &[b'x'; 1 << 20], "x.mmdb").unwrap(), CONTENT, "{kind:?}");
        }
    }

    #[test]
    fn links_and_directories_named_like_a_database_are_skipped() {
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Directory, EntryType::Fifo] {
            let mut archive = Builder::new(Vec::new());
            add(&mut archive, kind, "first.mmdb", b"");
            assert_eq!(unpacked(archive).unwrap_err(), "the archive contains no .mmdb file", "{kind:?}");
        }
    }

    #[test]
    fn sparse_file_and_changed_size_are_rejected() {
        let mut archive = Builder::new(Vec::new());
        add(&mut archive, EntryType::GNUSparse, "x.mmdb", CONTENT);
        assert!(unpacked(archive).unwrap_err().contains("sparse file"));
        let size = with_extension(EntryType::XHeader, &pax("size", "9999999999"), "x.mmdb");
        assert!(size.unwrap_err().contains("changes the size"));
    }
}
