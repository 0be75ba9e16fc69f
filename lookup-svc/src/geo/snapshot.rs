//! What all look-ups of one moment see.

use std::net::IpAddr;
use std::sync::Arc;

use super::asn::AsnLists;
use super::database::{Database, Located};
use super::merge;
use super::place::Place;
use super::shelf::{MOST_DATABASES, Shelf};
use super::written::PlaceJson;

/// The databases and lists in use, and what was written from them.
pub(super) struct Snapshot {
    databases: Vec<Arc<Database>>,
    lists: AsnLists,
    shelf: Shelf,
}

impl Snapshot {
    pub(super) fn new(databases: Vec<Arc<Database>>, lists: AsnLists) -> Self {
        Self { databases, lists, shelf: Shelf::new() }
    }

    pub(super) fn databases(&self) -> impl Iterator<Item = &Database> {
        self.databases.iter().map(|database| &**database)
    }

    /// Where `ip` is, put together from every database that knows it.
    pub(super) fn place(&self, ip: IpAddr, now: i64) -> Place<'_> {
        self.put_together(self.databases().filter_map(|database| database.locate(ip)), now)
    }

    /// The same, written.
    pub(super) fn show<R>(&self, ip: IpAddr, now: i64, use_json: impl FnOnce(&PlaceJson) -> R) -> R {
        if self.databases.len() > MOST_DATABASES {
            return use_json(&PlaceJson::of(&self.place(ip, now)));
        }
        let mut located = [const { None }; MOST_DATABASES];
        for (located, database) in located.iter_mut().zip(&self.databases) {
            *located = database.locate(ip);
        }
        let records = located.each_ref().map(|found: &Option<Located<'_>>| found.as_ref()?.offset());
        self.shelf.show(records, now, || self.put_together(located.into_iter().flatten(), now), use_json)
    }

    fn put_together<'a>(&'a self, located: impl Iterator<Item = Located<'a>>, now: i64) -> Place<'a> {
        let mut known = located.filter_map(|record| Database::fields(&record));
        let mut fields = known.next().unwrap_or_default();
        known.for_each(|later| merge::add(&mut fields, later));
        merge::finish(fields, &self.lists, now)
    }
}
