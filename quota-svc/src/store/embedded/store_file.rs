//! The store file: one table of rows, loaded at startup and written in transactions.

mod rows;

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, TryLockError};

use redb::{Database, DatabaseError, ReadableDatabase, StorageBackend, StorageError};
use rows::ROWS;
pub use rows::{RowWrite, UndoRows, kind, named_row, parse_row, row};

use crate::domain::id::KeyId;

/// Size of redb's cache, by default 1 GiB. A small one is enough, because only events are read after startup.
const CACHE_BYTES: usize = 32 * 1024 * 1024;

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

type OpenDatabase = dyn Fn(OpenMode) -> Result<Database, DatabaseError> + Send + Sync;

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenMode {
    Create,
    /// Fails if the file does not exist.
    Existing,
}

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
        let open = move |mode| {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE_BYTES);
            if mode == OpenMode::Create { builder.create(&file) } else { builder.open(&file) }
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
        let database = open(OpenMode::Create).map_err(|error| open_error(&path, error))?;
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
        *database = Some((self.open)(OpenMode::Existing).map_err(|error| open_error(&self.path, error))?);
        Ok(())
    }

    /// Passes the keys and values of all rows but the events to `load`.
    pub fn load(&self, load: impl FnMut(&[u8], &[u8])) -> Result<(), OpenError> {
        // Creates the table of a new file.
        let created = self.write(&mut UndoRows::default(), []);
        created.and_then(|()| self.read_all(load)).map_err(|error| damaged(&self.path, &error))
    }

    fn read_all(&self, mut load: impl FnMut(&[u8], &[u8])) -> Result<(), redb::Error> {
        let transaction = self.with_database(|database| Ok(database.begin_read()?))?;
        for row in transaction.open_table(ROWS)?.range(..&[kind::EVENTS][..])? {
            let (key, value) = row?;
            load(key.value(), value.value());
        }
        Ok(())
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
            undo.restore(&mut table)?;
            rows.into_iter().try_for_each(|row| undo.write(&mut table, row))?;
            drop(table);
            Ok(transaction.commit()?)
        })?;
        undo.clear();
        Ok(())
    }

    /// The stored event lines of a key, newest first.
    pub fn events(&self, id: KeyId) -> Result<Vec<String>, redb::Error> {
        let transaction = self.with_database(|database| Ok(database.begin_read()?))?;
        let lines = transaction.open_table(ROWS)?.get(&row(kind::EVENTS, id.0)[..])?;
        let lines =
            lines.map_or_else(String::new, |lines| String::from_utf8_lossy(lines.value()).into_owned());
        Ok(lines.lines().map(str::to_owned).collect())
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
