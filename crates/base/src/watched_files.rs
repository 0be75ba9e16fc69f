//! Files that may be replaced or written at any time: they are loaded again when they have changed, and the last value
//! that could be loaded stays in use.

use std::fmt::Display;
use std::fs::{File, metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;

use crate::huge_pages::with_huge_pages;

/// Smaller files would fill few huge pages, and the processor caches most of what they need.
const MIN_SIZE_FOR_HUGE_PAGES: u64 = 4 << 20;

/// Files that are loaded together, such as a certificate and its key, and the last value that could be loaded from them.
#[derive(Debug)]
pub struct WatchedFiles<T, E> {
    /// What the files are, for the log.
    kind: &'static str,
    paths: Vec<PathBuf>,
    /// Maximum size of each file.
    limit: u64,
    value: ArcSwapOption<T>,
    state: Mutex<State<E>>,
}

#[derive(Debug)]
struct State<E> {
    /// Whether all files existed at the last check.
    present: bool,
    /// `None` if the files must be read at the next check.
    stamps: Option<Vec<Stamp>>,
    /// Whether a file was fresh when it was read (see [`is_fresh`]). If so, the next check reads the files again even
    /// if their stamps are the same.
    recheck: bool,
    /// Hash of the contents that `value` was loaded from.
    content_hash: Option<u64>,
    /// Why the present contents could not be loaded.
    error: Option<E>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCheck {
    /// Nothing to report.
    Unchanged,
    /// There is a new value.
    Loaded,
    /// The new contents can't be used.
    Rejected,
    /// A file is missing that the value in use was loaded from.
    Removed,
}

impl<T, E: Display + From<io::Error>> WatchedFiles<T, E> {
    /// Watches at least one file, each of at most `limit` bytes. The first path is their name.
    pub fn new(kind: &'static str, paths: Vec<PathBuf>, limit: u64) -> Self {
        let state = State { present: true, stamps: None, recheck: false, content_hash: None, error: None };
        Self { kind, paths, limit, value: ArcSwapOption::empty(), state: Mutex::new(state) }
    }

    /// Does not log that the files are missing until they have existed.
    #[must_use]
    pub fn may_be_missing(self) -> Self {
        self.state().present = false;
        self
    }

    /// The paths of the files.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The first path.
    pub fn path(&self) -> &Path {
        &self.paths[0]
    }

    /// The last value that could be loaded.
    pub fn value(&self) -> Option<Arc<T>> {
        self.value.load_full()
    }

    /// Whether all files existed at the last check.
    pub fn is_present(&self) -> bool {
        self.state().present
    }

    /// The name and the reason, if the files exist and their contents could not be loaded.
    pub fn rejection(&self) -> Option<String> {
        let state = self.state();
        let error = state.error.as_ref().filter(|_| state.present)?;
        Some(format!("{} {error}", self.path().file_name()?.display()))
    }

    /// Why nothing could be loaded. `None` if the last check had no error.
    pub fn take_error(&self) -> Option<E> {
        self.state().error.take()
    }

    /// Reads the files at the next check even if they have not changed, if their error may be gone.
    pub fn retry_if(&self, may_be_gone: impl FnOnce(&E) -> bool) {
        let mut state = self.state();
        state.recheck |= state.error.as_ref().is_some_and(may_be_gone);
    }

    /// Checks the files once. Calls `load` only if their contents have changed, and logs its result. The caller logs the
    /// removal of files: it may know what replaces them.
    pub fn check(&self, load: impl FnOnce() -> Result<T, E>) -> FileCheck {
        let mut state = self.state();
        let stamps = match self.stamps() {
            Ok(stamps) => stamps,
            Err(error) => return self.missing(&mut state, error),
        };
        state.present = true;
        let same_stamps = state.stamps.as_ref() == Some(&stamps);
        if same_stamps && !state.recheck {
            return FileCheck::Unchanged;
        }
        state.recheck = stamps.iter().any(is_fresh);
        // The file in the log. A key next to a certificate has no line of its own.
        let file = self.path().display();
        let hash = self.content_hash();
        if hash.as_ref().is_ok_and(|hash| state.content_hash == Some(*hash)) {
            if state.error.take().is_some() {
                tracing::info!(%file, "{} has the content in use again", self.kind);
            }
            state.stamps = Some(stamps);
            return FileCheck::Unchanged;
        }
        let loaded = hash.map_err(E::from).and_then(|hash| Ok((load()?, hash)));
        let is_written = self.stamps().ok().as_ref() != Some(&stamps);
        // Files that are still being written are read again at the next check.
        state.stamps = (!is_written).then_some(stamps);
        let error = match loaded {
            Ok((value, hash)) if !is_written => {
                self.value.store(Some(Arc::new(value)));
                (state.content_hash, state.error) = (Some(hash), None);
                tracing::info!(%file, "{} loaded", self.kind);
                return FileCheck::Loaded;
            }
            Ok(_) => E::from(io::Error::other("it was changed while it was read")),
            Err(error) => error,
        };
        let is_same = |last: &E| last.to_string() == error.to_string();
        let is_repeated = same_stamps && state.error.as_ref().is_some_and(is_same);
        let report = !is_written && !is_repeated;
        if report {
            let keeps_previous = self.value.load().is_some();
            tracing::warn!(%file, error = %format_args!("{error:#}"), keeps_previous, "{} rejected", self.kind);
        }
        state.error = Some(error);
        if report { FileCheck::Rejected } else { FileCheck::Unchanged }
    }

    fn missing(&self, state: &mut State<E>, error: io::Error) -> FileCheck {
        let error = E::from(error);
        let was_present = std::mem::replace(&mut state.present, false);
        let is_used = self.value.load().is_some();
        if was_present && !is_used {
            let file = self.path().display();
            tracing::warn!(%file, error = %format_args!("{error:#}"), "{} can't be loaded", self.kind);
        }
        state.stamps = None;
        state.error = Some(error);
        if was_present && is_used { FileCheck::Removed } else { FileCheck::Unchanged }
    }

    fn stamps(&self) -> io::Result<Vec<Stamp>> {
        self.paths.iter().map(|path| stamp(path).map_err(|error| self.with_path(path, error))).collect()
    }

    /// Detects changed contents. Not cryptographic. Reads in small parts, so that a file with the same content needs no
    /// memory.
    fn content_hash(&self) -> io::Result<u64> {
        let mut hasher = DefaultHasher::new();
        for path in &self.paths {
            self.hash_file(path, &mut hasher).map_err(|error| self.with_path(path, error))?;
        }
        Ok(hasher.finish())
    }

    fn hash_file(&self, path: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
        let mut rest = open(path)?.take(self.limit + 1);
        let mut buffer = vec![0; 64 << 10];
        loop {
            match rest.read(&mut buffer)? {
                0 if rest.limit() == 0 => return Err(too_large(self.limit)),
                // The size separates the contents of two files.
                0 => break hasher.write_u64(self.limit + 1 - rest.limit()),
                count => hasher.write(&buffer[..count]),
            }
        }
        Ok(())
    }

    /// Names the file in an error, unless there is only one.
    fn with_path(&self, path: &Path, error: io::Error) -> io::Error {
        match self.paths.len() {
            1 => error,
            _ => io::Error::new(error.kind(), format!("can't read {}: {error}", path.display())),
        }
    }

    /// Ignores lock poisoning: after a panic of `load`, the state is consistent, and the files are read again.
    fn state(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a regular file. Opening a pipe would block.
pub fn open(path: &Path) -> io::Result<File> {
    if metadata(path)?.is_file() {
        File::open(path)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// Reads a file of at most `limit` bytes into memory. Not with `mmap`: truncating the file would then kill the process.
pub fn read(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    let mut bytes = Vec::with_capacity(usize::try_from(size.min(limit)).unwrap_or(0));
    let mut file = file.take(limit + 1);
    match size {
        ..MIN_SIZE_FOR_HUGE_PAGES => file.read_to_end(&mut bytes)?,
        _ => with_huge_pages(|| file.read_to_end(&mut bytes))?,
    };
    if file.limit() == 0 { Err(too_large(limit)) } else { Ok(bytes) }
}

fn too_large(limit: u64) -> io::Error {
    io::Error::other(format!("it is larger than {limit} bytes"))
}

/// File metadata from `stat`: device, inode, size, and the times of the last change of the content and of the metadata, each
/// with nanoseconds. If any part differs, the file must be read again: a link to another file has another inode.
type Stamp = (u64, u64, u64, [i64; 4]);

fn stamp(path: &Path) -> io::Result<Stamp> {
    let meta = metadata(path)?;
    let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
    Ok((meta.dev(), meta.ino(), meta.size(), times))
}

/// Whether the file was changed in the last 2 s. File times have a resolution of some milliseconds, so another write
/// could leave the same stamp.
fn is_fresh((.., [modified, _, changed, _]): &Stamp) -> bool {
    let seconds = u64::try_from(*modified.max(changed)).unwrap_or(0);
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    last.elapsed().is_ok_and(|age| age < Duration::from_secs(2))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    type Numbers = WatchedFiles<Vec<u32>, io::Error>;

    /// Two files with a number each, of at most 4 digits.
    fn numbers(dir: &tempfile::TempDir) -> (Numbers, [PathBuf; 2]) {
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        for path in &paths {
            fs::write(path, "1").expect("write");
        }
        (WatchedFiles::new("number", paths.to_vec(), 4), paths)
    }

    fn load(paths: &[PathBuf]) -> io::Result<Vec<u32>> {
        let number = |path: &PathBuf| fs::read_to_string(path)?.parse().map_err(io::Error::other);
        paths.iter().map(number).collect()
    }

    #[test]
    fn changed_files_are_loaded_and_unusable_ones_keep_the_value() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (files, paths) = numbers(&dir);
        let check = || files.check(|| load(&paths));
        let value = || files.value().expect("loaded").to_vec();
        assert_eq!((check(), check(), value()), (FileCheck::Loaded, FileCheck::Unchanged, vec![1, 1]));
        fs::write(&paths[1], "2").expect("write");
        assert_eq!((check(), value()), (FileCheck::Loaded, vec![1, 2]));
        for content in ["x", "", "12345"] {
            fs::write(&paths[0], content).expect("write");
            assert_eq!((check(), check(), value()), (FileCheck::Rejected, FileCheck::Unchanged, vec![1, 2]));
            assert!(files.rejection().is_some_and(|text| text.starts_with("a ")), "{:?}", files.rejection());
        }
        fs::remove_file(&paths[1]).expect("remove");
        assert_eq!((check(), check(), value()), (FileCheck::Removed, FileCheck::Unchanged, vec![1, 2]));
        assert_eq!((files.is_present(), files.rejection()), (false, None));
        let error = files.take_error().expect("a file is missing").to_string();
        assert!(error.starts_with("can't read ") && error.contains("/b: "), "{error}");
        fs::write(&paths[0], "1").expect("write");
        fs::write(&paths[1], "2").expect("write");
        assert_eq!(check(), FileCheck::Unchanged, "the content in use");
    }

    #[test]
    fn file_that_is_written_while_it_is_loaded_is_read_again() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (files, paths) = numbers(&dir);
        let written = files.check(|| {
            let value = load(&paths);
            fs::write(&paths[0], "23").expect("write");
            value
        });
        assert_eq!((written, files.value()), (FileCheck::Unchanged, None));
        assert_eq!(files.check(|| load(&paths)), FileCheck::Loaded);
        assert_eq!(files.value().expect("loaded").to_vec(), [23, 1]);
    }

    #[test]
    fn only_regular_files_up_to_the_limit_are_read() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (_, [path, _]) = numbers(&dir);
        let read = |limit| read(open(&path).expect("open"), limit);
        assert_eq!(read(1).expect("read"), b"1");
        assert!(read(0).is_err_and(|error| error.to_string() == "it is larger than 0 bytes"));
        for path in [dir.path(), Path::new("/dev/zero")] {
            assert!(open(path).is_err_and(|error| error.to_string() == "it is not a regular file"));
        }
    }

    #[test]
    fn error_is_retried_without_a_change() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (files, paths) = numbers(&dir);
        let full = || Err(io::Error::from(io::ErrorKind::OutOfMemory));
        assert_eq!(files.check(full), FileCheck::Rejected);
        // As if the files were old.
        files.state().recheck = false;
        assert_eq!(files.check(|| load(&paths)), FileCheck::Unchanged);
        files.retry_if(|error| error.kind() == io::ErrorKind::OutOfMemory);
        assert_eq!(files.check(|| load(&paths)), FileCheck::Loaded);
    }
}
