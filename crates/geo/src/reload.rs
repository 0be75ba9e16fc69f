//! Checks the configured files for changes, reloads them and builds new snapshots.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::watched_files::{self, FileCheck, WatchedFiles};

use crate::asn::{self, AsnList};
use crate::database::{DATABASE_LIMIT, Database};
use crate::memory::MemoryLimit;
use crate::snapshot::Snapshot;
use crate::timezone::Timezones;
use crate::{GeoArgs, GeoError};

/// Maximum size of a list of AS numbers.
const LIST_LIMIT: u64 = 16 << 20;

const BROKEN_LINK: &str = "is a link to a file that does not exist";

type DatabaseFile = WatchedFiles<Database, GeoError>;
type ListFile = WatchedFiles<AsnList, GeoError>;

/// What the checks of the files have found.
#[derive(Clone, Debug, Default)]
pub struct ReloadStatus {
    /// Files loaded since the start, including the loads at the start.
    pub loaded: u64,
    /// Files rejected since the start.
    pub rejected: u64,
    /// The names of the files whose present content is not in use, each with the reason.
    pub rejections: Vec<String>,
    /// The names of the databases in use whose files were deleted.
    pub deleted: Vec<String>,
}

/// The state of all watched files.
pub(crate) struct FileWatcher {
    sources: Vec<Source>,
    /// What the last check found, to log each problem once.
    problems: Vec<Problem>,
    hosting: Option<ListFile>,
    proxy: Option<ListFile>,
    timezones: Arc<Timezones>,
    memory: MemoryLimit,
    pub(crate) status: ReloadStatus,
}

/// One `--geo-db` path: a file or a directory of files.
struct Source {
    path: PathBuf,
    files: Vec<DatabaseFile>,
    /// Whether it is a directory that may be missing or empty.
    optional: bool,
}

/// What is wrong with a `--geo-db` path, besides invalid files.
#[derive(Debug, PartialEq, Eq)]
enum Problem {
    /// A directory that can't be listed, and the reason.
    Unreadable(PathBuf, String),
    /// A directory without files, before the first one has arrived.
    Empty(PathBuf),
    /// A link in a directory to a file that does not exist.
    BrokenLink(PathBuf),
}

impl Problem {
    fn log(&self) {
        match self {
            Self::Unreadable(path, error) => {
                tracing::error!(directory = %path.display(), error, "geo directory can't be read");
            }
            Self::Empty(path) => {
                let directory = path.display();
                tracing::warn!(%directory, "geo directory has no .mmdb file yet; its data is used once it arrives");
            }
            Self::BrokenLink(path) => {
                tracing::warn!(file = %path.display(), "geo file {BROKEN_LINK}; it is loaded once the target exists");
            }
        }
    }
}

impl FileWatcher {
    /// Loads every file. Fails if no configured database could be loaded, or if a configured list could not. A directory
    /// without files is allowed, because the first download may still be running.
    pub(crate) fn open(args: &GeoArgs, memory: MemoryLimit) -> Result<Self, GeoError> {
        fail_if_missing(args)?;
        let source = |path: &PathBuf, optional| Source { path: path.clone(), files: Vec::new(), optional };
        let mut sources: Vec<_> = args.geo_db.iter().map(|path| source(path, false)).collect();
        if sources.is_empty() {
            sources.extend(args.default_dir.as_ref().map(|path| source(path, true)));
        }
        let list = |path: &PathBuf| ListFile::new("geo file", vec![path.clone()], LIST_LIMIT);
        let mut watcher = FileWatcher {
            sources,
            problems: Vec::new(),
            hosting: args.hosting_asns.as_ref().map(list),
            proxy: args.proxy_asns.as_ref().map(list),
            timezones: Arc::new(Timezones::open(args.tzdata.as_deref())?),
            memory,
            status: ReloadStatus::default(),
        };
        watcher.check();
        if !watcher.databases().any(|file| file.value().is_some())
            && let Some(file) = watcher.databases().next()
        {
            return Err(start_error(file));
        }
        if let Some(list) = watcher.lists().find(|list| list.value().is_none()) {
            return Err(start_error(list));
        }
        Ok(watcher)
    }

    fn databases(&self) -> impl Iterator<Item = &DatabaseFile> {
        self.sources.iter().flat_map(|source| &source.files)
    }

    fn lists(&self) -> impl Iterator<Item = &ListFile> {
        [&self.hosting, &self.proxy].into_iter().flatten()
    }

    /// Checks every file once. Returns whether a new snapshot is needed.
    pub(crate) fn check(&mut self) -> bool {
        let (mut results, mut problems) = (Vec::new(), Vec::new());
        for source in &mut self.sources {
            source.check(&self.memory, &mut results, &mut problems);
        }
        for list in self.lists() {
            results.push((list.path().to_owned(), list.check(|| load_list(list.path()))));
        }
        let count = |wanted| results.iter().filter(|(_, result)| *result == wanted).count() as u64;
        let reloads = count(FileCheck::Loaded) > 0;
        self.sources.iter_mut().for_each(|source| source.drop_deleted(reloads));
        for (path, _) in results.iter().filter(|(_, result)| *result == FileCheck::Removed) {
            let is_list = self.lists().any(|list| list.path() == path);
            if is_list || self.databases().any(|file| file.path() == path) {
                tracing::warn!(file = %path.display(), keeps_previous = true, "geo file removed");
            }
        }
        problems.iter().filter(|problem| !self.problems.contains(problem)).for_each(Problem::log);
        let links = problems.iter().filter_map(|problem| match problem {
            Problem::BrokenLink(path) => Some(format!("{} {BROKEN_LINK}", path.file_name()?.display())),
            _ => None,
        });
        let databases = self.databases().filter_map(WatchedFiles::rejection);
        let lists = self.lists().filter_map(WatchedFiles::rejection);
        let rejections = databases.chain(links).chain(lists).collect();
        let deleted = self.databases().filter(|file| !file.is_present());
        let deleted = deleted.filter_map(|file| Some(file.value()?.info.name.clone())).collect();
        self.status = ReloadStatus {
            loaded: self.status.loaded + count(FileCheck::Loaded),
            rejected: self.status.rejected + count(FileCheck::Rejected),
            rejections,
            deleted,
        };
        self.problems = problems;
        reloads
    }

    /// Builds a snapshot of the loaded files.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let databases = self.sources.iter().flat_map(Source::newest_builds).collect();
        let list = |file: &Option<ListFile>, built_in| {
            file.as_ref().and_then(ListFile::value).unwrap_or_else(|| Arc::new(AsnList::built_in(built_in)))
        };
        let hosting = list(&self.hosting, asn::HOSTING);
        Snapshot::new(databases, hosting, list(&self.proxy, asn::PROXY), self.timezones.clone())
    }
}

/// Fails if no `--geo-db` exists, or if a list does not, before the first check would also log it.
fn fail_if_missing(args: &GeoArgs) -> Result<(), GeoError> {
    let is_missing = |path: &&PathBuf| matches!(path.try_exists(), Ok(false));
    let database = args.geo_db.first().filter(|_| args.geo_db.iter().all(|path| is_missing(&path)));
    let list = [&args.hosting_asns, &args.proxy_asns].into_iter().flatten().find(is_missing);
    database.or(list).map_or(Ok(()), |path| Err(GeoError::NotFound.at(path)))
}

/// The error of a file that was never loaded.
fn start_error<T>(file: &WatchedFiles<T, GeoError>) -> GeoError {
    file.take_error().unwrap_or(GeoError::NotFound).at(file.path())
}

impl Source {
    /// The databases to use, in order of their names. Of several builds of one database, only the newest is used: an older
    /// one would answer for addresses that the provider has removed. Between equal builds, the last name decides, because
    /// names often contain the date.
    fn newest_builds(&self) -> Vec<Arc<Database>> {
        let mut newest: Vec<Arc<Database>> = Vec::new();
        for mut database in self.files.iter().filter_map(WatchedFiles::value) {
            let key = database.build_key();
            let Some(other) = newest.iter_mut().find(|other| key.is_some() && other.build_key() == key)
            else {
                newest.push(database);
                continue;
            };
            drop(key);
            if other.info.build_epoch <= database.info.build_epoch {
                std::mem::swap(other, &mut database);
            }
            let (unused, used) = (&database.info.name, &other.info.name);
            tracing::warn!(database = unused, used, "geo database not used: another build of it is newer");
        }
        newest
    }

    /// Checks all files.
    fn check(
        &mut self,
        memory: &MemoryLimit,
        results: &mut Vec<(PathBuf, FileCheck)>,
        problems: &mut Vec<Problem>,
    ) {
        let is_missing = self.optional && !self.path.is_dir();
        let paths = match if is_missing { Ok(Vec::new()) } else { databases_at(&self.path, problems) } {
            Ok(paths) => paths,
            // Its files are not deleted.
            Err(error) => return problems.push(Problem::Unreadable(self.path.clone(), error.to_string())),
        };
        for path in paths {
            if !self.files.iter().any(|file| file.path() == path) {
                self.files.push(WatchedFiles::new("geo file", vec![path], DATABASE_LIMIT));
            }
        }
        if self.files.is_empty() && !self.optional {
            problems.push(Problem::Empty(self.path.clone()));
        }
        self.files.sort_by(|a, b| a.path().cmp(b.path()));
        for file in &self.files {
            file.retry_if(|error| memory.fits_now(error));
            results.push((file.path().to_owned(), file.check(|| Database::open(file.path(), memory))));
        }
    }

    /// Drops the files that do not exist. The data of a deleted one stays in use until the next reload: its replacement may
    /// arrive later. A `--geo-db` path that is not a directory stays, so that a missing file is reported only once.
    fn drop_deleted(&mut self, reloads: bool) {
        self.files.retain(|file| {
            let is_used = file.value().is_some();
            let keep = file.is_present() || if is_used { !reloads } else { file.path() == self.path };
            if is_used && !keep {
                let file = file.path().display();
                tracing::info!(%file, "geo file was deleted or replaced by another one; its data is no longer used");
            }
            keep
        });
    }
}

/// The database files at a `--geo-db` path: the path itself, or the `*.mmdb` files in a directory.
/// Skips hidden files, which are downloads in progress. Fails if the directory can't be listed.
fn databases_at(path: &Path, problems: &mut Vec<Problem>) -> Result<Vec<PathBuf>, GeoError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut databases = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let file = entry?.path();
        if !is_database(&file) || file.is_dir() {
            continue;
        }
        if file.is_symlink() && matches!(file.try_exists(), Ok(false)) {
            problems.push(Problem::BrokenLink(file));
        } else {
            databases.push(file);
        }
    }
    Ok(databases)
}

fn is_database(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("mmdb"))
}

fn load_list(path: &Path) -> Result<AsnList, GeoError> {
    let bytes = watched_files::read(watched_files::open(path)?, LIST_LIMIT)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        GeoError::AsnLine { line: 1 + valid.iter().filter(|byte| **byte == b'\n').count() }
    })?;
    AsnList::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_utf8_is_reported_with_its_line() {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), b"64500 Example\n64501 \xff\n").expect("write");
        let error = load_list(file.path()).unwrap_err();
        assert!(matches!(error, GeoError::AsnLine { line: 2 }), "{error}");
    }
}
