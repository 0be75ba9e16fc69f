//! Writes of single rows, and their undo.

use std::collections::HashMap;

use redb::{ReadableTable, Table, TableDefinition};

use crate::domain::event::MAX_EVENTS;
use crate::domain::id::KeyId;

pub(super) const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows-1");
pub(super) type Rows<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// The kind of a row: the first byte of its key. The ID of an account or key follows.
pub mod kind {
    /// The demo's day and count. Its ID is 0.
    pub const DEMO: u8 = 0;
    /// A row of an account. Its name follows the ID.
    pub const ACCOUNT: u8 = 1;
    pub const RECORD: u8 = 2;
    /// When a notice of an account is due, ms.
    pub const NOTICE_DUE: u8 = 3;
    /// When the owner of a key is next told that it expires, ms.
    pub const EXPIRY_NOTICE: u8 = 4;
    /// An announcement of a key. Its text follows the ID.
    pub const ANNOUNCEMENT: u8 = 5;
    /// The event lines of a key, newest first. The last kind, because they stay on disk.
    pub const EVENTS: u8 = 6;
}

/// The key of a row without a name.
pub fn row(kind: u8, id: [u8; 16]) -> Vec<u8> {
    [&[kind], &id[..]].concat()
}

/// The key of a row with a name.
pub fn named_row(kind: u8, id: [u8; 16], name: &str) -> Vec<u8> {
    [&row(kind, id)[..], name.as_bytes()].concat()
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

/// The values that rows had before the first failed transaction that wrote them; `None` for a row that did not exist.
#[derive(Default)]
pub struct UndoRows(HashMap<Vec<u8>, Option<Vec<u8>>>);

impl UndoRows {
    pub(super) fn restore(&self, rows: &mut Rows<'_>) -> Result<(), redb::Error> {
        self.0.iter().try_for_each(|(key, value)| put(rows, key, value.as_deref()).map(drop))
    }

    /// Writes a row and keeps its previous value, unless there is an earlier one.
    pub(super) fn write(&mut self, rows: &mut Rows<'_>, write: &RowWrite) -> Result<(), redb::Error> {
        let (key, previous) = match write {
            RowWrite::Put(key, value) => (key.clone(), put(rows, key, value.as_deref())?),
            RowWrite::AddEvent(id, line) => {
                let key = row(kind::EVENTS, id.0);
                let older = rows.get(&key[..])?.map_or_else(Vec::new, |lines| lines.value().to_owned());
                let older = older.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                let lines: Vec<&[u8]> =
                    std::iter::once(line.as_bytes()).chain(older).take(MAX_EVENTS).collect();
                let previous = put(rows, &key, Some(&lines.join(&b'\n')))?;
                (key, previous)
            }
        };
        self.0.entry(key).or_insert(previous);
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Writes or deletes a row and returns its previous value.
fn put(rows: &mut Rows<'_>, key: &[u8], value: Option<&[u8]>) -> Result<Option<Vec<u8>>, redb::Error> {
    let previous = match value {
        Some(value) => rows.insert(key, value)?,
        None => rows.remove(key)?,
    };
    Ok(previous.map(|value| value.value().to_owned()))
}
