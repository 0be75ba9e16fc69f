//! One watched file: reads it while it may be replaced or written at any time, detects changes, and holds the last
//! valid content.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::mem::discriminant;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base::huge_pages::with_huge_pages;

use crate::GeoError;
use crate::memory::MemoryLimit;

/// Smaller files would fill few huge pages, and the processor caches most of what they need.
const MIN_SIZE_FOR_HUGE_PAGES: u64 = 4 << 20;

/// A file with its last valid content, which stays in use if the file is removed or becomes invalid.
pub(crate) struct WatchedFile<T> {
    pub(crate) path: PathBuf,
    /// The last content that loaded without an error.
    pub(crate) last_good: Option<T>,
    /// Whether the file existed at the last check.
    pub(crate) present: bool,
    last_stamp: Option<Stamp>,
    /// Whether the file was fresh when it was read (see `Stamp::is_fresh`). If so, the next check reads it again even
    /// if its stamp is the same.
    recheck: bool,
    /// Hash of the bytes that `last_good` was loaded from.
    content_hash: Option<u64>,
    /// Why the file's present content could not be loaded.
    last_error: Option<GeoError>,
}

/// The result of checking one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileCheck {
    Unchanged,
    Loaded,
    Rejected,
    /// The file was present at the previous check.
    Removed,
}

impl<T> WatchedFile<T> {
    pub(crate) fn new(path: PathBuf) -> Self {
        WatchedFile {
            path,
            last_good: None,
            present: true,
            last_stamp: None,
            recheck: false,
            content_hash: None,
            last_error: None,
        }
    }

    /// The error of a file that was never loaded.
    pub(crate) fn start_error(&mut self) -> GeoError {
        let reason = Box::new(self.last_error.take().unwrap_or(GeoError::NotFound));
        GeoError::NothingLoaded { path: self.path.clone(), reason }
    }

    /// The name and the reason, if the file's present content was rejected.
    pub(crate) fn rejection(&self) -> Option<String> {
        let error = self.last_error.as_ref().filter(|_| self.present)?;
        Some(format!("{} {error}", self.path.file_name()?.display()))
    }

    /// Checks the file once. Calls `load` to parse the content only if it has changed.
    pub(crate) fn check(
        &mut self,
        limit: u64,
        memory: &MemoryLimit,
        load: impl FnOnce(&Path, Vec<u8>) -> Result<T, GeoError>,
    ) -> FileCheck {
        let stamp = match Stamp::of(&self.path) {
            Ok(stamp) => stamp,
            Err(error) => return self.missing(error),
        };
        self.present = true;
        let same_stamp = self.last_stamp == Some(stamp);
        let fits_now = || {
            let lacked_memory = matches!(self.last_error, Some(GeoError::NotEnoughMemory { .. }));
            lacked_memory && memory.require_for(stamp.size).is_ok()
        };
        if same_stamp && !self.recheck && !fits_now() {
            return FileCheck::Unchanged;
        }
        self.recheck = stamp.is_fresh(SystemTime::now());
        self.last_stamp = Some(stamp);
        match self.read(limit, memory, load) {
            Ok(result) => {
                self.last_error = None;
                result
            }
            Err(error) => self.rejected(error, same_stamp),
        }
    }

    fn read(
        &mut self,
        limit: u64,
        memory: &MemoryLimit,
        load: impl FnOnce(&Path, Vec<u8>) -> Result<T, GeoError>,
    ) -> Result<FileCheck, GeoError> {
        let mut file = open(&self.path)?;
        // Hashed in small parts, so that a file with the same content needs no memory.
        if self.content_hash.is_some() && self.content_hash == Some(content_hash((&file).take(limit))?) {
            return Ok(FileCheck::Unchanged);
        }
        memory.require_for(file.metadata()?.len())?;
        file.rewind()?;
        let (bytes, stamp) = read(file, limit)?;
        self.last_stamp = Some(stamp);
        let hash = content_hash(&*bytes)?;
        self.last_good = Some(load(&self.path, bytes)?);
        self.content_hash = Some(hash);
        tracing::info!(file = %self.path.display(), "geo file loaded");
        Ok(FileCheck::Loaded)
    }

    /// Logs and counts a rejection once per change of the file, not when a file with the same stamp is read again and
    /// rejected for the same reason.
    fn rejected(&mut self, error: GeoError, same_stamp: bool) -> FileCheck {
        let still_written = matches!(error, GeoError::ChangedDuringRead);
        let same_reason =
            self.last_error.as_ref().is_some_and(|last| discriminant(last) == discriminant(&error));
        let repeated = same_stamp && same_reason;
        if still_written {
            // That is not an error; the next check reads the file again.
            self.last_stamp = None;
        } else if !repeated {
            let keeps_previous = self.last_good.is_some();
            tracing::warn!(file = %self.path.display(), %error, keeps_previous, "geo file rejected");
        }
        self.last_error = Some(error);
        if still_written || repeated { FileCheck::Unchanged } else { FileCheck::Rejected }
    }

    /// The caller logs the removal of a loaded file with `log_removal`, because only the caller knows whether another
    /// file replaces it.
    fn missing(&mut self, error: GeoError) -> FileCheck {
        let was_present = std::mem::replace(&mut self.present, false);
        let was_loaded = self.last_good.is_some();
        if was_present && !was_loaded {
            tracing::warn!(file = %self.path.display(), %error, "geo file can't be loaded");
        }
        self.last_stamp = None;
        self.last_error = Some(error);
        if was_present && was_loaded { FileCheck::Removed } else { FileCheck::Unchanged }
    }
}

/// Logs that a loaded file was removed, and whether its data stays in use.
pub(crate) fn log_removal(path: &Path, keeps_previous: bool) {
    let file = path.display();
    match keeps_previous {
        true => tracing::warn!(%file, keeps_previous, "geo file removed"),
        false => tracing::info!(%file, "geo file replaced by another one"),
    }
}

/// Detects changed content. Not cryptographic.
fn content_hash(mut content: impl Read) -> io::Result<u64> {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match content.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            count => hasher.write(&buffer[..count]),
        }
    }
}

/// File metadata from `stat`. If any part differs, the file must be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(path: &Path) -> Result<Self, GeoError> {
        Ok(Stamp::from(&std::fs::metadata(path)?))
    }

    /// Whether an open file's content did not change between the two stamps: they have the same size and mtime. Ignores
    /// the ctime, because it also changes when another file is renamed over the path, and the open file then keeps its
    /// content.
    fn same_bytes(&self, later: &Self) -> bool {
        (self.size, self.modified) == (later.size, later.modified)
    }

    /// Whether the file was changed in the last 2 s. File times have a resolution of some milliseconds, so
    /// another write could leave the same stamp. A fresh file must be read again later.
    pub(crate) fn is_fresh(&self, now: SystemTime) -> bool {
        let seconds = u64::try_from(self.changed.0.max(self.modified.0)).unwrap_or(0);
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        now.duration_since(changed).is_ok_and(|age| age < Duration::from_secs(2))
    }
}

impl From<&Metadata> for Stamp {
    fn from(meta: &Metadata) -> Self {
        Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Opens a regular file.
pub(crate) fn open(path: &Path) -> Result<File, GeoError> {
    // Opening a pipe would block.
    if std::fs::metadata(path)?.is_file() { Ok(File::open(path)?) } else { Err(GeoError::NotAFile) }
}

/// Reads a whole file of at most `limit` bytes. Fails if it changes during the read.
/// Copies it into memory: with `mmap`, truncating the file would kill the process.
pub(crate) fn read(mut file: File, limit: u64) -> Result<(Vec<u8>, Stamp), GeoError> {
    let before = file.metadata()?;
    if before.len() > limit {
        return Err(GeoError::TooLarge { limit });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(before.len()).unwrap_or(0));
    let mut read = || (&mut file).take(limit + 1).read_to_end(&mut bytes);
    if before.len() < MIN_SIZE_FOR_HUGE_PAGES {
        read()?
    } else {
        with_huge_pages(read)?
    };
    let after = Stamp::from(&file.metadata()?);
    if !Stamp::from(&before).same_bytes(&after) || bytes.len() as u64 != before.len() {
        return Err(GeoError::ChangedDuringRead);
    }
    Ok((bytes, after))
}

/// The database files at a `--geo-db` path: the path itself, or the `*.mmdb` files in a directory, sorted.
/// Skips hidden files, which are downloads in progress. Fails if the directory can't be listed.
pub(crate) fn databases_at(path: &Path) -> Result<Vec<PathBuf>, GeoError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let file = entry?.path();
        if is_database(&file) && may_be_file(&file) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether this is a file, or something that can't be examined: loading it then fails, which is logged.
fn may_be_file(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(metadata) => metadata.is_file(),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

fn is_database(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("mmdb"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn open_file_has_same_bytes_after_rename_over_path_but_not_after_write() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (path, newer) = (dir.path().join("a.mmdb"), dir.path().join(".newer"));
        std::fs::write(&path, b"old").expect("write");
        std::fs::write(&newer, b"new").expect("write");
        let mut open = File::options().read(true).append(true).open(&path).expect("open");
        let stamp = |file: &File| Stamp::from(&file.metadata().expect("metadata"));
        let before = stamp(&open);
        std::fs::rename(&newer, &path).expect("rename");
        assert!(before.same_bytes(&stamp(&open)));
        open.write_all(b"er").expect("write");
        assert!(!before.same_bytes(&stamp(&open)));
    }
}
