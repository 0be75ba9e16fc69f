//! Keeps the loaded data in step with the files: looks, loads, checks, and hands over a new snapshot.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::asn::{AsnList, AsnLists};
use super::database::Database;
use super::file;
use super::sample;
use super::snapshot::Snapshot;
use super::watched::{Outcome, Watched};
use super::{GeoArgs, GeoError};

/// A database of 2 GiB is three times the largest that is sold.
pub(super) const DATABASE_LIMIT: u64 = 2 << 30;
const LIST_LIMIT: u64 = 16 << 20;

/// The state of all watched files.
pub(super) struct Watcher {
    sources: Vec<Source>,
    hosting: Option<Watched<AsnList>>,
    proxy: Option<Watched<AsnList>>,
    sample: Arc<Database>,
}

/// What one look at all files brought.
pub(super) struct Look {
    /// Whether look-ups should see a new snapshot.
    pub(super) changed: bool,
    pub(super) loaded: u64,
    pub(super) refused: u64,
}

/// One `--geo-db`: a file, or a folder with any number of them.
struct Source {
    path: PathBuf,
    files: Vec<Watched<Arc<Database>>>,
}

impl Watcher {
    pub(super) fn new(args: &GeoArgs) -> Result<Self, GeoError> {
        let source = |path: &PathBuf| Source { path: path.clone(), files: Vec::new() };
        Ok(Watcher {
            sources: args.geo_db.iter().map(source).collect(),
            hosting: args.hosting_asns.clone().map(Watched::new),
            proxy: args.proxy_asns.clone().map(Watched::new),
            sample: Arc::new(Database::load(sample::NAME, sample::BYTES.to_vec())?),
        })
    }

    /// Looks at every file once.
    pub(super) fn look(&mut self) -> Look {
        let mut dropped = false;
        let mut outcomes = Vec::new();
        for source in &mut self.sources {
            dropped |= source.look(&mut outcomes);
        }
        for list in [&mut self.hosting, &mut self.proxy].into_iter().flatten() {
            outcomes.push(list.look(LIST_LIMIT, load_list));
        }
        let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count() as u64;
        let (loaded, refused) = (count(Outcome::Loaded), count(Outcome::Refused));
        Look { changed: dropped || loaded > 0, loaded, refused }
    }

    /// At the start a path that gives nothing is the operator's mistake, if no other gives anything.
    /// An empty folder is none: a download may still be on its way.
    pub(super) fn check_start(&self) -> Result<(), GeoError> {
        let waiting = |source: &Source| source.path.is_dir() && source.files.is_empty();
        let missing = self.sources.iter().find(|source| !source.is_loaded() && !waiting(source));
        if let (false, Some(source)) = (self.sources.iter().any(Source::is_loaded), missing) {
            return Err(GeoError::NothingLoaded { path: source.path.clone() });
        }
        let unread = |list: &&Watched<AsnList>| list.good.is_none();
        match [&self.hosting, &self.proxy].into_iter().flatten().find(unread) {
            Some(list) => Err(GeoError::NothingLoaded { path: list.path.clone() }),
            None => Ok(()),
        }
    }

    /// What look-ups see from now on. Without any database it is the built-in sample.
    pub(super) fn snapshot(&self) -> Snapshot {
        let loaded = self.sources.iter().flat_map(|source| &source.files);
        let mut databases: Vec<_> = loaded.filter_map(|file| file.good.clone()).collect();
        if databases.is_empty() {
            databases.push(self.sample.clone());
        }
        let mut lists = AsnLists::built_in();
        for (list, file) in [(&mut lists.hosting, &self.hosting), (&mut lists.proxy, &self.proxy)] {
            if let Some(good) = file.as_ref().and_then(|file| file.good.clone()) {
                *list = good;
            }
        }
        Snapshot::new(databases, lists)
    }
}

impl Source {
    fn is_loaded(&self) -> bool {
        self.files.iter().any(|file| file.good.is_some())
    }

    fn look(&mut self, outcomes: &mut Vec<Outcome>) -> bool {
        for path in file::databases_at(&self.path) {
            if !self.files.iter().any(|file| file.path == path) {
                self.files.push(Watched::new(path));
            }
        }
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        for file in &mut self.files {
            outcomes.push(file.look(DATABASE_LIMIT, load_database));
        }
        self.drop_replaced()
    }

    /// A deleted file's data stays, unless a present one of the same type has taken its place
    /// (dbip-city-2026-10.mmdb after dbip-city-2026-11.mmdb arrived), or it never gave any.
    fn drop_replaced(&mut self) -> bool {
        let key = |db: &Arc<Database>| (db.info.database_type.clone(), db.info.ip_version);
        let present: Vec<_> = self
            .files
            .iter()
            .filter(|file| file.present)
            .filter_map(|file| file.good.as_ref().map(key))
            .collect();
        let loaded = |files: &[Watched<Arc<Database>>]| files.iter().filter(|f| f.good.is_some()).count();
        let before = loaded(&self.files);
        self.files.retain(|file| {
            let replaced = file.good.as_ref().is_none_or(|db| present.contains(&key(db)));
            file.present || !replaced
        });
        loaded(&self.files) != before
    }
}

fn load_database(path: &Path, bytes: Vec<u8>) -> Result<Arc<Database>, GeoError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Database::load(&name, bytes).map(Arc::new)
}

fn load_list(_path: &Path, bytes: Vec<u8>) -> Result<AsnList, GeoError> {
    let text = String::from_utf8(bytes).map_err(|_| GeoError::AsnLine { line: 1 })?;
    AsnList::parse(&text)
}
