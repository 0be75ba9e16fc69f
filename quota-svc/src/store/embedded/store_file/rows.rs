//! Writes of single rows, and their undo.

use std::collections::HashMap;

use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};

use crate::domain::event::MAX_EVENTS;
use crate::domain::id::{AccountId, KeyId};

type Id = [u8; 16];
pub(super) type RowTable = TableDefinition<'static, Id, &'static [u8]>;

/// A row of the store file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Row {
    /// An account with its sessions and key IDs, as JSON.
    Account(AccountId),
    /// A key's metadata, as JSON.
    Key(KeyId),
    Record(KeyId),
    /// The event lines of a key, newest first.
    Events(KeyId),
    /// The demo's day and count.
    Demo,
}

/// The tables of the rows, in the order of [`Row`].
pub(super) const TABLES: [RowTable; 5] = [
    TableDefinition::new("accounts-1"),
    TableDefinition::new("keys-1"),
    TableDefinition::new("records-1"),
    TableDefinition::new("events-1"),
    TableDefinition::new("demo-1"),
];

impl Row {
    /// The index in [`TABLES`], and the key in that table.
    pub(super) fn position(self) -> (usize, Id) {
        match self {
            Self::Account(id) => (0, id.0),
            Self::Key(id) => (1, id.0),
            Self::Record(id) => (2, id.0),
            Self::Events(id) => (3, id.0),
            Self::Demo => (4, [0; 16]),
        }
    }
}

#[derive(Debug, Clone)]
pub enum RowWrite {
    Put(Row, Vec<u8>),
    Delete(Row),
    AddEvent(KeyId, String),
}

/// The values that rows had before the first failed transaction that wrote them; `None` for a row that did not exist.
#[derive(Default)]
pub struct UndoRows(HashMap<Row, Option<Vec<u8>>>);

impl UndoRows {
    pub(super) fn restore(&self, tables: &mut Tables<'_>) -> Result<(), redb::Error> {
        self.0.iter().try_for_each(|(row, bytes)| tables.put(*row, bytes.as_deref()).map(drop))
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

pub struct Tables<'t>(Vec<Table<'t, Id, &'static [u8]>>);

impl<'t> Tables<'t> {
    /// Opens the tables, and creates those that do not exist.
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self(TABLES.map(|table| transaction.open_table(table)).into_iter().collect::<Result<_, _>>()?))
    }

    /// Writes a row. `undo` keeps its previous value, unless it has an earlier one.
    pub(super) fn write(&mut self, write: &RowWrite, undo: &mut UndoRows) -> Result<(), redb::Error> {
        let (row, previous) = match write {
            RowWrite::Put(row, bytes) => (*row, self.put(*row, Some(bytes))?),
            RowWrite::Delete(row) => (*row, self.put(*row, None)?),
            RowWrite::AddEvent(id, line) => {
                let (table, key) = Row::Events(*id).position();
                let older = self.0[table].get(key)?.map_or_else(Vec::new, |lines| lines.value().to_owned());
                let older = older.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                let lines: Vec<&[u8]> =
                    std::iter::once(line.as_bytes()).chain(older).take(MAX_EVENTS).collect();
                (Row::Events(*id), self.put(Row::Events(*id), Some(&lines.join(&b'\n')))?)
            }
        };
        undo.0.entry(row).or_insert(previous);
        Ok(())
    }

    /// Writes or deletes a row and returns its previous value.
    fn put(&mut self, row: Row, bytes: Option<&[u8]>) -> Result<Option<Vec<u8>>, redb::Error> {
        let (table, key) = row.position();
        let previous = match bytes {
            Some(bytes) => self.0[table].insert(key, bytes)?,
            None => self.0[table].remove(key)?,
        };
        Ok(previous.map(|bytes| bytes.value().to_owned()))
    }
}
