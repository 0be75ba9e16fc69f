//! The store file: one table of rows, loaded at startup and written in transactions.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, TryLockError};

use redb::{
    Database, DatabaseError, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageBackend, StorageError,
    Table, TableDefinition,
};

use crate::domain::event::MAX_EVENTS;
use crate::domain::id::KeyId;

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows-1");
type Rows<'t> = Table<'t, &'static [u8], &'static [u8]>;
/// Size of redb's cache, by default 1 GiB. A small one is enough, because only events are read after startup.
const CACHE_BYTES: usize = 32 * 1024 * 1024;

/// The kind of a row: the first byte of its key. The ID of an account or key follows, then a name, if there is one.
pub mod kind {
    /// The demo's day and count. Its ID is 0.
    pub const DEMO: u8 = 0;
    /// A row of an account, with its name.
    pub const ACCOUNT: u8 = 1;
    pub const RECORD: u8 = 2;
    /// When a notice of an account is due, ms.
    pub const NOTICE_DUE: u8 = 3;
    /// When the owner of a key is next told that it expires, ms.
    pub const EXPIRY_NOTICE: u8 = 4;
    /// An announcement of a key. Its text is the name.
    pub const ANNOUNCEMENT: u8 = 5;
    /// The event lines of a key, newest first. The last kind, because they stay on disk.
    pub const EVENTS: u8 = 6;
}

/// The key of a row.
pub fn row(kind: u8, id: [u8; 16], name: &str) -> Vec<u8> {
    [&[kind], &id[..], name.as_bytes()].concat()
}

/// The kind, the ID and the name in a row's key.
pub fn parse_row(key: &[u8]) -> Option<(u8, [u8; 16], &str)> {
    let (kind, key) = key.split_first()?;
    let (id, name) = key.split_first_chunk()?;
    Some((*kind, *id, std::str::from_utf8(name).ok()?))
}

#[derive(Debug, Clone)]
pub enum RowWrite {
    /// A row's key and value; `None` deletes the row.
    Put(Vec<u8>, Option<Vec<u8>>),
    AddEvent(KeyId, String),
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "can't open the store file {path}: {source}. Check that its directory exists, is writable and has free space"
    )]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the store file {0} is in use by another process. Stop that process or choose another file")]
    InUse(PathBuf),
    #[error(
        "the store file {path} is damaged or not a store file: {reason}. Move it elsewhere, then start with a new \
         file and restore a backup with the command `import` if you have one"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "the store file {0} is empty: accounts and keys that it had are lost. Delete it to start with a new file, and restore a \
         backup with the command `import` if you have one"
    )]
    Empty(PathBuf),
    #[error("the store file {0} was removed or replaced. Put it back, or restart to use what is there now")]
    Replaced(PathBuf),
    #[error("can't start the thread that writes the store file: {0}")]
    WriterThread(#[source] std::io::Error),
}

pub struct StoreFile {
    /// `None` while it is being reopened, and after that failed.
    database: RwLock<Option<Database>>,
    open: Box<OpenDatabase>,
    path: PathBuf,
    /// Of the open file.
    identity: Option<(u64, u64)>,
}

/// Opens the database, or creates it if that is allowed.
type OpenDatabase = dyn Fn(bool) -> Result<Database, DatabaseError> + Send + Sync;

/// The values that rows had before the first failed transaction that wrote them; `None` for a row that did not exist.
pub type UndoRows = HashMap<Vec<u8>, Option<Vec<u8>>>;

impl StoreFile {
    /// Opens the file, or creates it if there is none. Only its owner can read it, because it contains logins and credentials.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        use std::os::unix::fs::OpenOptionsExt;
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        // redb would make it a new store.
        if std::fs::metadata(path).is_ok_and(|file| file.len() == 0) {
            return Err(OpenError::Empty(path.to_owned()));
        }
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        file.map_err(io)?;
        let file = path.to_owned();
        let open = move |may_create| {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE_BYTES);
            if may_create { builder.create(&file) } else { builder.open(&file) }
        };
        Self::with_opener(path.to_owned(), Box::new(open))
    }

    pub fn with_backend<B: StorageBackend>(
        backend: impl Fn() -> B + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let open = move |_| Database::builder().create_with_backend(backend());
        Self::with_opener(PathBuf::from("(memory)"), Box::new(open))
    }

    fn with_opener(path: PathBuf, open: Box<OpenDatabase>) -> Result<Self, OpenError> {
        let database = open(true).map_err(|error| open_error(&path, error))?;
        let identity = identity(&path);
        Ok(Self { database: RwLock::new(Some(database)), open, path, identity })
    }

    /// Fails if another file, or none, has the path of the open one.
    pub fn check_path(&self) -> Result<(), OpenError> {
        let is_same = identity(&self.path) == self.identity;
        if is_same { Ok(()) } else { Err(OpenError::Replaced(self.path.clone())) }
    }

    /// Closes the file and opens it again. After an I/O error, redb fails every call until then.
    pub fn reopen(&self) -> Result<(), OpenError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // Closed first, because the file can be locked only once.
        *database = None;
        *database = Some((self.open)(false).map_err(|error| open_error(&self.path, error))?);
        Ok(())
    }

    /// Passes the keys and values of all rows but the events to `load`.
    pub fn load(&self, mut load: impl FnMut(&[u8], &[u8])) -> Result<(), OpenError> {
        let mut read = || {
            // Creates the table of a new file.
            self.write(&mut UndoRows::new(), [])?;
            for row in self.read_table()?.range(..&[kind::EVENTS][..])? {
                let (key, value) = row?;
                load(key.value(), value.value());
            }
            Ok::<_, redb::Error>(())
        };
        read().map_err(|error| damaged(&self.path, &error))
    }

    /// Writes rows in one transaction, which is on disk when this returns without an error.
    ///
    /// If it returns an error, the transaction may be on disk or not. `undo` then has the previous values of its rows,
    /// which the next call restores before it writes.
    pub fn write<'a>(
        &self,
        undo: &mut UndoRows,
        rows: impl IntoIterator<Item = &'a RowWrite>,
    ) -> Result<(), redb::Error> {
        self.with_database(|database| {
            let transaction = database.begin_write()?;
            let mut table = transaction.open_table(ROWS)?;
            for (key, value) in &*undo {
                put(&mut table, key, value.as_deref())?;
            }
            for row in rows {
                let (key, previous) = write_row(&mut table, row)?;
                undo.entry(key).or_insert(previous);
            }
            drop(table);
            Ok(transaction.commit()?)
        })?;
        undo.clear();
        Ok(())
    }

    /// The stored event lines of a key, newest first.
    pub fn events(&self, id: KeyId) -> Result<Vec<String>, redb::Error> {
        let lines = self.read_table()?.get(&row(kind::EVENTS, id.0, "")[..])?;
        let Some(lines) = lines else { return Ok(Vec::new()) };
        Ok(String::from_utf8_lossy(lines.value()).lines().map(str::to_owned).collect())
    }

    fn read_table(&self) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>, redb::Error> {
        self.with_database(|database| Ok(database.begin_read()?.open_table(ROWS)?))
    }

    /// Fails without waiting if the file is being reopened, which can take long.
    fn with_database<T>(
        &self,
        operation: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        let database = match self.database.try_read() {
            Ok(database) => database,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(redb::Error::DatabaseClosed),
        };
        operation(database.as_ref().ok_or(redb::Error::DatabaseClosed)?)
    }
}

/// Returns the key and the previous value of the row.
fn write_row(rows: &mut Rows<'_>, write: &RowWrite) -> Result<(Vec<u8>, Option<Vec<u8>>), redb::Error> {
    Ok(match write {
        RowWrite::Put(key, value) => (key.clone(), put(rows, key, value.as_deref())?),
        RowWrite::AddEvent(id, line) => {
            let key = row(kind::EVENTS, id.0, "");
            let older = rows.get(&key[..])?.map_or_else(Vec::new, |lines| lines.value().to_owned());
            let older = older.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let lines: Vec<&[u8]> = std::iter::once(line.as_bytes()).chain(older).take(MAX_EVENTS).collect();
            let previous = put(rows, &key, Some(&lines.join(&b'\n')))?;
            (key, previous)
        }
    })
}

/// Writes or deletes a row and returns its previous value.
fn put(rows: &mut Rows<'_>, key: &[u8], value: Option<&[u8]>) -> Result<Option<Vec<u8>>, redb::Error> {
    let previous = match value {
        Some(value) => rows.insert(key, value)?,
        None => rows.remove(key)?,
    };
    Ok(previous.map(|value| value.value().to_owned()))
}

/// Device and inode. `None` if there is no file, as for a store in memory.
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

fn open_error(path: &Path, error: DatabaseError) -> OpenError {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse(path.to_owned()),
        DatabaseError::Storage(StorageError::Io(source))
            if !matches!(source.kind(), InvalidData | UnexpectedEof) =>
        {
            OpenError::Io { path: path.to_owned(), source }
        }
        other => damaged(path, &other),
    }
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), reason: error.to_string() }
}
