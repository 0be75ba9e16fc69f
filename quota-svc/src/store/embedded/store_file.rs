//! The store file: five tables, loaded at startup and written in transactions.

use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, WriteTransaction};

use super::state::{State, StoredAccount};
use super::writer::RowWrite;
use crate::domain::event::MAX_EVENTS;
use crate::domain::id::{AccountId, KeyId};

type Id = [u8; 16];

const ACCOUNTS: TableDefinition<Id, &[u8]> = TableDefinition::new("accounts-1");
const KEYS: TableDefinition<Id, &[u8]> = TableDefinition::new("keys-1");
const RECORDS: TableDefinition<Id, &[u8]> = TableDefinition::new("records-1");
const EVENTS: TableDefinition<Id, &str> = TableDefinition::new("events-1");
const DEMO: TableDefinition<(), (u32, u32)> = TableDefinition::new("demo-1");

/// Size of redb's cache, by default 1 GiB. A small one is enough, because only events are read after startup.
const CACHE_BYTES: usize = 32 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("can't open the store file {path}: {source}. Check that its directory exists and is writable")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the store file {0} is in use by another process. Stop that process or choose another file")]
    InUse(PathBuf),
    #[error(
        "the store file {path} is damaged or not a store file: {reason}. Move it elsewhere, then start with a new \
         file and restore a backup with `quota-svc import` if you have one"
    )]
    Damaged { path: PathBuf, reason: String },
}

pub struct StoreFile {
    database: Database,
    path: PathBuf,
}

impl StoreFile {
    /// Opens or creates the file. Only its owner can read it, because it contains logins and credentials.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        use std::os::unix::fs::OpenOptionsExt;
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        file.map_err(io)?;
        let database =
            Database::builder().set_cache_size(CACHE_BYTES).create(path).map_err(|error| match error {
                redb::DatabaseError::DatabaseAlreadyOpen => OpenError::InUse(path.to_owned()),
                other => damaged(path, &other),
            })?;
        Ok(Self { database, path: path.to_owned() })
    }

    /// Uses a backend other than a file.
    pub fn with_backend(backend: impl StorageBackend) -> Result<Self, OpenError> {
        let path = PathBuf::from("(memory)");
        let database =
            Database::builder().create_with_backend(backend).map_err(|error| damaged(&path, &error))?;
        Ok(Self { database, path })
    }

    /// Loads everything except the events.
    pub fn load(&self) -> Result<State, OpenError> {
        self.create_tables().map_err(|error| damaged(&self.path, &error))?;
        self.read_all().map_err(|error| damaged(&self.path, &error))
    }

    fn create_tables(&self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(ACCOUNTS)?;
        transaction.open_table(KEYS)?;
        transaction.open_table(RECORDS)?;
        transaction.open_table(EVENTS)?;
        transaction.open_table(DEMO)?;
        Ok(transaction.commit()?)
    }

    fn read_all(&self) -> Result<State, redb::Error> {
        let transaction = self.database.begin_read()?;
        let corrupted = |what: &str| redb::Error::Corrupted(format!("{what} is invalid"));
        let mut state = State::default();
        for row in transaction.open_table(ACCOUNTS)?.iter()? {
            let (id, bytes) = row?;
            let account = StoredAccount::from_bytes(bytes.value()).ok_or_else(|| corrupted("an account"))?;
            state.load_account(AccountId(id.value()), account);
        }
        let records = transaction.open_table(RECORDS)?;
        for row in transaction.open_table(KEYS)?.iter()? {
            let (id, meta) = row?;
            let record = records.get(id.value())?;
            let record = record.as_ref().map_or(&[][..], |record| record.value());
            state.load_key(KeyId(id.value()), meta.value(), record).ok_or_else(|| corrupted("a key"))?;
        }
        if let Some(demo) = transaction.open_table(DEMO)?.get(())? {
            state.load_demo(demo.value());
        }
        Ok(state)
    }

    /// Writes rows in one transaction, which is on disk when this returns.
    pub fn write<'a>(&self, writes: impl Iterator<Item = &'a RowWrite>) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        for write in writes {
            write_row(&transaction, write)?;
        }
        Ok(transaction.commit()?)
    }

    /// The stored event lines of a key, newest first.
    pub fn events(&self, id: KeyId) -> Result<Vec<String>, redb::Error> {
        let events = self.database.begin_read()?.open_table(EVENTS)?;
        let lines = events.get(id.0)?;
        Ok(lines.map_or_else(Vec::new, |lines| lines.value().lines().map(str::to_owned).collect()))
    }
}

fn write_row(transaction: &WriteTransaction, write: &RowWrite) -> Result<(), redb::Error> {
    match write {
        RowWrite::Account(id, Some(bytes)) => {
            transaction.open_table(ACCOUNTS)?.insert(id.0, bytes.as_slice())?;
        }
        RowWrite::Account(id, None) => {
            transaction.open_table(ACCOUNTS)?.remove(id.0)?;
        }
        RowWrite::Key(id, Some(bytes)) => {
            transaction.open_table(KEYS)?.insert(id.0, bytes.as_slice())?;
        }
        RowWrite::Key(id, None) => {
            transaction.open_table(KEYS)?.remove(id.0)?;
            transaction.open_table(RECORDS)?.remove(id.0)?;
            transaction.open_table(EVENTS)?.remove(id.0)?;
        }
        RowWrite::Record(id, bytes) => {
            transaction.open_table(RECORDS)?.insert(id.0, bytes.as_slice())?;
        }
        RowWrite::Event(id, line) => add_event(transaction, *id, line)?,
        RowWrite::Demo(day, used) => {
            transaction.open_table(DEMO)?.insert((), (*day, *used))?;
        }
    }
    Ok(())
}

fn add_event(transaction: &WriteTransaction, id: KeyId, line: &str) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(EVENTS)?;
    let older = table.get(id.0)?.map_or_else(String::new, |lines| lines.value().to_owned());
    let lines: Vec<&str> = std::iter::once(line).chain(older.lines()).take(MAX_EVENTS).collect();
    table.insert(id.0, lines.join("\n").as_str())?;
    Ok(())
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), reason: error.to_string() }
}
