//! Writes of single rows, and their undo.

use std::collections::HashMap;

use redb::{ReadableTable, Table, WriteTransaction};

use super::{ACCOUNTS, DEMO, EVENTS, Id, KEYS, RECORDS};
use crate::domain::event::MAX_EVENTS;
use crate::domain::id::{AccountId, KeyId};

/// One row to write; `None` deletes it.
#[derive(Debug, Clone)]
pub enum RowWrite {
    /// An account with its sessions and key IDs.
    Account(AccountId, Option<Vec<u8>>),
    /// A key's metadata.
    Key(KeyId, Option<Vec<u8>>),
    Record(KeyId, Option<Vec<u8>>),
    /// All event lines of a key, newest first.
    Events(KeyId, Option<String>),
    /// One event line, added to those of the key.
    AddEvent(KeyId, String),
    /// The demo's day and count.
    Demo(Option<(u32, u32)>),
}

/// Identifies a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Row {
    Account(AccountId),
    Key(KeyId),
    Record(KeyId),
    Events(KeyId),
    Demo,
}

impl RowWrite {
    /// Deletes a key with its record and events.
    pub fn delete_key(id: KeyId) -> [Self; 3] {
        [Self::Key(id, None), Self::Record(id, None), Self::Events(id, None)]
    }

    fn row(&self) -> Row {
        match self {
            Self::Account(id, _) => Row::Account(*id),
            Self::Key(id, _) => Row::Key(*id),
            Self::Record(id, _) => Row::Record(*id),
            Self::Events(id, _) | Self::AddEvent(id, _) => Row::Events(*id),
            Self::Demo(_) => Row::Demo,
        }
    }
}

/// The values that rows had before the first failed transaction that wrote them.
#[derive(Default)]
pub struct UndoRows(HashMap<Row, RowWrite>);

impl UndoRows {
    /// Keeps the value of a row, unless an earlier one is known.
    pub(super) fn remember(&mut self, previous: RowWrite) {
        self.0.entry(previous.row()).or_insert(previous);
    }

    pub(super) fn restore(&self, tables: &mut Tables<'_>) -> Result<(), redb::Error> {
        self.0.values().try_for_each(|row| tables.write(row).map(drop))
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The open tables of a transaction.
pub struct Tables<'t> {
    accounts: Table<'t, Id, &'static [u8]>,
    keys: Table<'t, Id, &'static [u8]>,
    records: Table<'t, Id, &'static [u8]>,
    events: Table<'t, Id, &'static str>,
    demo: Table<'t, (), (u32, u32)>,
}

impl<'t> Tables<'t> {
    /// Opens the tables, and creates those that do not exist.
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            accounts: transaction.open_table(ACCOUNTS)?,
            keys: transaction.open_table(KEYS)?,
            records: transaction.open_table(RECORDS)?,
            events: transaction.open_table(EVENTS)?,
            demo: transaction.open_table(DEMO)?,
        })
    }

    /// Returns the write that restores the row's previous value.
    pub(super) fn write(&mut self, write: &RowWrite) -> Result<RowWrite, redb::Error> {
        Ok(match write {
            RowWrite::Account(id, bytes) => {
                RowWrite::Account(*id, put(&mut self.accounts, id.0, bytes.as_deref())?)
            }
            RowWrite::Key(id, bytes) => RowWrite::Key(*id, put(&mut self.keys, id.0, bytes.as_deref())?),
            RowWrite::Record(id, bytes) => {
                RowWrite::Record(*id, put(&mut self.records, id.0, bytes.as_deref())?)
            }
            RowWrite::Events(id, lines) => RowWrite::Events(*id, self.put_events(*id, lines.as_deref())?),
            RowWrite::AddEvent(id, line) => {
                let older = self.events.get(id.0)?.map_or_else(String::new, |lines| lines.value().to_owned());
                let lines: Vec<&str> =
                    std::iter::once(line.as_str()).chain(older.lines()).take(MAX_EVENTS).collect();
                RowWrite::Events(*id, self.put_events(*id, Some(&lines.join("\n")))?)
            }
            RowWrite::Demo(Some(count)) => {
                RowWrite::Demo(self.demo.insert((), *count)?.map(|previous| previous.value()))
            }
            RowWrite::Demo(None) => RowWrite::Demo(self.demo.remove(())?.map(|previous| previous.value())),
        })
    }

    fn put_events(&mut self, id: KeyId, lines: Option<&str>) -> Result<Option<String>, redb::Error> {
        let previous = match lines {
            Some(lines) => self.events.insert(id.0, lines)?,
            None => self.events.remove(id.0)?,
        };
        Ok(previous.map(|lines| lines.value().to_owned()))
    }
}

/// Writes or deletes a row and returns its previous value.
fn put(
    table: &mut Table<'_, Id, &'static [u8]>,
    id: Id,
    bytes: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, redb::Error> {
    let previous = match bytes {
        Some(bytes) => table.insert(id, bytes)?,
        None => table.remove(id)?,
    };
    Ok(previous.map(|bytes| bytes.value().to_owned()))
}
