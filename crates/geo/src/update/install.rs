//! Updates one database: download, verification, unpacking and installation in the target directory.

use std::fs::{File, Permissions, TryLockError};
use std::io::{self, Cursor, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base::atomic_file;
use data_encoding::HEXLOWER;
use flate2::read::MultiGzDecoder;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::download::{Downloader, Version};
use super::{Result, UpdateError, UpdateResult};
use crate::verify;

const TEMP_PREFIX: &str = ".geo-update-";
const LOCK_FILE: &str = ".geo-update.lock";
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const TAR_BLOCK: u64 = 512;
const TAR_MAGIC_RANGE: std::ops::Range<usize> = 257..262;

pub(super) struct TargetDir {
    path: PathBuf,
    /// The lock file, locked until drop. A process that holds the lock may delete all existing temporary files: their
    /// processes are gone.
    _lock: File,
}

/// Metadata of an installed file, stored next to it in a hidden file. Contains no URL and no secret.
#[derive(Debug, Serialize, Deserialize)]
struct InstallInfo {
    /// SHA-256 of the URL: a file from another URL is never treated as unchanged.
    url_sha256: String,
    /// SHA-256 of the download, which may be an archive.
    download_sha256: String,
    installed_sha256: String,
    #[serde(flatten)]
    version: Version,
}

impl TargetDir {
    /// Creates the directory if needed, takes the lock and deletes the temporary files of a killed process.
    pub(super) fn open(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path)?;
        let lock = File::create(path.join(LOCK_FILE))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(UpdateError::Locked),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes()) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(TargetDir { path: path.to_owned(), _lock: lock })
    }

    /// Creates a temporary file on the same file system. It is deleted on drop unless installed.
    fn temp_file(&self) -> Result<NamedTempFile> {
        Ok(tempfile::Builder::new().prefix(TEMP_PREFIX).suffix(".part").tempfile_in(&self.path)?)
    }

    /// Installs a complete file by rename: readers see either the old or the new file.
    fn install(&self, file: NamedTempFile, name: &str) -> Result<()> {
        // The service that reads the file often runs as another user.
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        Ok(atomic_file::commit(file, &self.path.join(name))?)
    }

    /// Reads the info of an installed file. `None` if it is missing, or if the file has changed since the installation.
    fn install_info(&self, name: &str) -> Option<InstallInfo> {
        let text = std::fs::read(self.path.join(format!(".{name}.json"))).ok()?;
        let info: InstallInfo = serde_json::from_slice(&text).ok()?;
        let installed = file_sha256(&self.path.join(name)).ok()?;
        (installed == info.installed_sha256).then_some(info)
    }

    fn write_install_info(&self, name: &str, info: &InstallInfo) -> Result<()> {
        let mut file = self.temp_file()?;
        file.write_all(&serde_json::to_vec(info).map_err(io::Error::other)?)?;
        self.install(file, &format!(".{name}.json"))
    }
}

/// Downloads and installs one database, unless the installed file is current.
pub(super) async fn refresh(mut downloader: Downloader<'_>, target_dir: &TargetDir) -> Result<UpdateResult> {
    let item = downloader.item;
    let info = target_dir.install_info(&item.target);
    let part = target_dir.temp_file()?;
    let mut attempt = 0;
    let (checksum, fetched) = loop {
        match fetch(&mut downloader, info.as_ref(), &part).await {
            Ok(result) => break result,
            Err(error) => downloader.wait_before_retry(&mut attempt, error).await?,
        }
    };
    let Some((url, version)) = fetched else {
        downloader.progress.line(&format!("{}: unchanged", item.label));
        return Ok(UpdateResult::Unchanged);
    };
    let (mut file, limit) = (target_dir.temp_file()?, downloader.args.max_size);
    // On a blocking thread, because unpacking and verifying take seconds of CPU time.
    let unpacking = tokio::task::spawn_blocking(move || {
        let download_sha256 = unpack_verified(&part, checksum, &mut file, limit)?;
        Ok::<_, UpdateError>((file_sha256(file.path())?, file, download_sha256))
    });
    let (installed_sha256, file, download_sha256) = unpacking.await.map_err(UpdateError::Panicked)??;
    let info = InstallInfo { url_sha256: url_sha256(url), download_sha256, installed_sha256, version };
    // Written first, so that a failure leaves the installed file unchanged. Info that does not match the installed file
    // is ignored.
    target_dir.write_install_info(&item.target, &info)?;
    target_dir.install(file, &item.target)?;
    downloader.progress.line(&format!("{}: installed {}", item.label, item.target));
    Ok(UpdateResult::Installed)
}

/// The expected checksum, if one is known, and the first candidate that exists, downloaded from the beginning. No candidate if
/// the installed version is current.
async fn fetch<'i>(
    downloader: &mut Downloader<'i>,
    info: Option<&InstallInfo>,
    part: &NamedTempFile,
) -> Result<(Option<String>, Option<(&'i Url, Version)>)> {
    let checksum = downloader.expected_checksum().await?;
    if info.is_some_and(|info| checksum.as_ref() == Some(&info.download_sha256)) {
        return Ok((checksum, None));
    }
    // If a known checksum differs from that of the installed file, the download must be unconditional, so that the server
    // can't respond with 304 and leave the wrong file installed.
    let info = info.filter(|_| checksum.is_none());
    let mut file = tokio::fs::File::from_std(part.reopen()?);
    for url in &downloader.item.candidates {
        let installed = info.filter(|info| info.url_sha256 == url_sha256(url)).map(|info| &info.version);
        match downloader.download(url, installed, &mut file).await {
            Ok(version) => return Ok((checksum, version.map(|version| (url, version)))),
            Err(UpdateError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Err(UpdateError::NotFound)
}

/// Compares the checksum, if one is known, unpacks the download into `to` and verifies the database. Returns the SHA-256
/// of the download. `limit` is the maximum size of the unpacked file.
fn unpack_verified(
    part: &NamedTempFile,
    checksum: Option<String>,
    to: &mut NamedTempFile,
    limit: u64,
) -> Result<String> {
    let download_sha256 = file_sha256(part.path())?;
    if checksum.is_some_and(|sum| sum != download_sha256) {
        return Err(UpdateError::Checksum);
    }
    let mut packed = part.reopen()?;
    if starts_with_html(&mut packed)? {
        return Err(UpdateError::WebPage);
    }
    unpack(packed, to, limit)?;
    verify(to.path()).map_err(UpdateError::Unusable)?;
    Ok(download_sha256)
}

fn starts_with_html(file: &mut File) -> Result<bool> {
    let mut head = Vec::new();
    file.take(256).read_to_end(&mut head)?;
    file.rewind()?;
    let head = String::from_utf8_lossy(&head).trim_start().to_ascii_lowercase();
    Ok(head.starts_with("<!doctype") || head.starts_with("<html"))
}

fn url_sha256(url: &Url) -> String {
    HEXLOWER.encode(&Sha256::digest(url.as_str()))
}

fn file_sha256(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(HEXLOWER.encode(&hasher.finalize())),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// Copies the database from `from` to `to`. Fails if more than `limit` bytes are unpacked, to stop decompression bombs.
fn unpack(mut from: File, to: &mut impl Write, limit: u64) -> Result<()> {
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
