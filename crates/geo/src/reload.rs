//! Checks the configured files for changes, reloads them and builds new snapshots.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::asn::{AsnList, AsnLists};
use crate::database::Database;
use crate::memory::MemoryLimit;
use crate::snapshot::Snapshot;
use crate::timezone::Timezones;
use crate::watched_file::{FileCheck, WatchedFile, databases_at, log_removal};
use crate::{GeoArgs, GeoError};

/// Maximum size of a database file: 2 GiB, three times the size of the largest commercial database.
pub(crate) const DATABASE_LIMIT: u64 = 2 << 30;
/// Maximum size of a list of AS numbers.
const LIST_LIMIT: u64 = 16 << 20;

/// The state of all watched files.
pub(crate) struct FileWatcher {
    sources: Vec<Source>,
    hosting: Option<WatchedFile<AsnList>>,
    proxy: Option<WatchedFile<AsnList>>,
    timezones: Arc<Timezones>,
    memory: MemoryLimit,
}

/// The result of checking all files once.
pub(crate) struct CheckSummary {
    /// Whether a new snapshot is needed.
    pub(crate) changed: bool,
    pub(crate) loaded: u64,
    pub(crate) rejected: u64,
    /// The names of the files whose present content is not in use, each with the reason.
    pub(crate) rejections: Vec<String>,
}

/// One `--geo-db` path: a file or a directory of files.
struct Source {
    path: PathBuf,
    files: Vec<WatchedFile<Arc<Database>>>,
    /// What the last check found at the path, to log each change once.
    state: SourceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceState {
    /// Not checked yet, or with files.
    Normal,
    /// A directory without files, before the first one has arrived.
    Empty,
    /// A directory that can't be listed.
    Unreadable,
}

impl FileWatcher {
    pub(crate) fn new(args: &GeoArgs, memory: MemoryLimit) -> Result<Self, GeoError> {
        let source =
            |path: &PathBuf| Source { path: path.clone(), files: Vec::new(), state: SourceState::Normal };
        Ok(FileWatcher {
            sources: args.geo_db.iter().map(source).collect(),
            hosting: args.hosting_asns.clone().map(WatchedFile::new),
            proxy: args.proxy_asns.clone().map(WatchedFile::new),
            timezones: Arc::new(Timezones::open(args.tzdata.as_deref())?),
            memory,
        })
    }

    /// Checks every file once.
    pub(crate) fn check(&mut self) -> CheckSummary {
        let mut dropped = false;
        let mut results = Vec::new();
        for source in &mut self.sources {
            dropped |= source.check(&self.memory, &mut results);
        }
        for list in [&mut self.hosting, &mut self.proxy].into_iter().flatten() {
            let result = list.check(LIST_LIMIT, &self.memory, load_list);
            if result == FileCheck::Removed {
                log_removal(&list.path, true);
            }
            results.push(result);
        }
        let count = |wanted| results.iter().filter(|result| **result == wanted).count() as u64;
        let (loaded, rejected) = (count(FileCheck::Loaded), count(FileCheck::Rejected));
        let changed = dropped || loaded > 0;
        let databases =
            self.sources.iter().flat_map(|source| &source.files).filter_map(WatchedFile::rejection);
        let lists = [&self.hosting, &self.proxy].into_iter().flatten().filter_map(WatchedFile::rejection);
        let rejections = databases.chain(lists).collect();
        CheckSummary { changed, loaded, rejected, rejections }
    }

    /// Called at startup. Fails if no configured database could be loaded, or if a configured list could not.
    /// A directory without files is allowed, because the first download may still be running.
    pub(crate) fn require_data(&mut self) -> Result<(), GeoError> {
        if !self.sources.iter().any(Source::is_loaded)
            && let Some(file) = self.sources.iter_mut().find_map(|source| source.files.first_mut())
        {
            return Err(file.start_error());
        }
        let not_loaded = |list: &&mut WatchedFile<AsnList>| list.last_good.is_none();
        match [&mut self.hosting, &mut self.proxy].into_iter().flatten().find(not_loaded) {
            Some(list) => Err(list.start_error()),
            None => Ok(()),
        }
    }

    /// Builds a snapshot of the loaded files.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let databases = self.sources.iter().flat_map(Source::newest_builds).collect();
        let mut lists = AsnLists::built_in();
        for (list, file) in [(&mut lists.hosting, &self.hosting), (&mut lists.proxy, &self.proxy)] {
            if let Some(last_good) = file.as_ref().and_then(|file| file.last_good.clone()) {
                *list = last_good;
            }
        }
        Snapshot::new(databases, lists, self.timezones.clone())
    }
}

impl Source {
    fn is_loaded(&self) -> bool {
        self.files.iter().any(|file| file.last_good.is_some())
    }

    /// The databases to use, in order of their names. Of several builds of one database, only the newest is used: an older
    /// one would answer for addresses that the provider has removed. Between equal builds, the last name decides, because
    /// names often contain the date.
    fn newest_builds(&self) -> Vec<Arc<Database>> {
        let mut newest: Vec<Arc<Database>> = Vec::new();
        for mut database in self.files.iter().filter_map(|file| file.last_good.clone()) {
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

    /// Checks all files. Returns whether the data of a deleted file was dropped.
    fn check(&mut self, memory: &MemoryLimit, results: &mut Vec<FileCheck>) -> bool {
        let found = databases_at(&self.path);
        for path in found.as_deref().unwrap_or_default() {
            if !self.files.iter().any(|file| file.path == *path) {
                self.files.push(WatchedFile::new(path.clone()));
            }
        }
        self.log_state(found.err());
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut removed = Vec::new();
        for file in &mut self.files {
            let result = file.check(DATABASE_LIMIT, memory, load_database);
            if result == FileCheck::Removed {
                removed.push(file.path.clone());
            }
            results.push(result);
        }
        let dropped = self.drop_replaced();
        for path in removed {
            log_removal(&path, self.files.iter().any(|file| file.path == path));
        }
        dropped
    }

    /// Logs when the directory becomes unreadable, or if it is still empty at the first check.
    fn log_state(&mut self, error: Option<GeoError>) {
        let state = match error {
            Some(_) => SourceState::Unreadable,
            None if self.files.is_empty() => SourceState::Empty,
            None => SourceState::Normal,
        };
        if std::mem::replace(&mut self.state, state) == state {
            return;
        }
        let (directory, keeps_previous) = (self.path.display(), self.is_loaded());
        match error {
            Some(error) => tracing::error!(%directory, %error, keeps_previous, "geo directory can't be read"),
            None if state == SourceState::Empty => {
                tracing::warn!(%directory, "geo directory has no .mmdb file yet; its data is used once it arrives");
            }
            None => {}
        }
    }

    /// Drops each deleted file as soon as an existing file of the same type is loaded; until then, its data stays in
    /// use: dbip-city-2026-10.mmdb is dropped once dbip-city-2026-11.mmdb is loaded. A `--geo-db` path that is not a
    /// directory stays in the list, so that a missing file is reported only once. Returns whether data was dropped.
    fn drop_replaced(&mut self) -> bool {
        let is_present = |file: &&WatchedFile<Arc<Database>>| file.present;
        let present: Vec<_> =
            self.files.iter().filter(is_present).filter_map(|file| file.last_good.clone()).collect();
        let has_build = |db: &Arc<Database>| present.iter().any(|other| other.build_key() == db.build_key());
        let loaded =
            |files: &[WatchedFile<Arc<Database>>]| files.iter().filter(|f| f.last_good.is_some()).count();
        let before = loaded(&self.files);
        let only_file = (!self.path.is_dir()).then_some(&self.path);
        self.files.retain(|file| {
            let replaced = file.last_good.as_ref().is_none_or(has_build);
            file.present || !replaced || Some(&file.path) == only_file
        });
        loaded(&self.files) != before
    }
}

fn load_database(path: &Path, bytes: Vec<u8>) -> Result<Arc<Database>, GeoError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Database::load(&name, bytes).map(Arc::new)
}

fn load_list(_path: &Path, bytes: Vec<u8>) -> Result<AsnList, GeoError> {
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
        let error = load_list(Path::new("list"), b"64500 Example\n64501 \xff\n".to_vec()).unwrap_err();
        assert!(matches!(error, GeoError::AsnLine { line: 2 }), "{error}");
    }
}
