//! The databases and lists that are in use together. A reload replaces the whole snapshot.

use std::net::IpAddr;
use std::sync::Arc;

use super::asn::AsnLists;
use super::database::{Database, FoundRecord};
use super::location::Location;
use super::location_cache::{LocationCache, MAX_DATABASES};
use super::location_json::LocationJson;
use super::merge;

/// Databases in order of precedence, AS number lists, and the location cache for them.
pub(super) struct Snapshot {
    databases: Vec<Arc<Database>>,
    lists: AsnLists,
    cache: LocationCache,
}

impl Snapshot {
    pub(super) fn new(databases: Vec<Arc<Database>>, lists: AsnLists) -> Self {
        Self { databases, lists, cache: LocationCache::new() }
    }

    pub(super) fn databases(&self) -> impl Iterator<Item = &Database> {
        self.databases.iter().map(|database| &**database)
    }

    /// The location of `ip`, merged from all databases.
    pub(super) fn location(&self, ip: IpAddr, now: i64) -> Location<'_> {
        self.merge_records(self.databases().filter_map(|database| database.find_record(ip)), now)
    }

    /// Passes the location of `ip` as JSON to `use_json`, from the cache if possible.
    pub(super) fn with_location_json<R>(
        &self,
        ip: IpAddr,
        now: i64,
        use_json: impl FnOnce(&LocationJson) -> R,
    ) -> R {
        if self.databases.len() > MAX_DATABASES {
            return use_json(&LocationJson::new(&self.location(ip, now)));
        }
        let mut records = [const { None }; MAX_DATABASES];
        for (record, database) in records.iter_mut().zip(&self.databases) {
            *record = database.find_record(ip);
        }
        let offsets = records.each_ref().map(|record: &Option<FoundRecord<'_>>| record.as_ref()?.offset());
        let location = || self.merge_records(records.into_iter().flatten(), now);
        self.cache.with_json(offsets, now, location, use_json)
    }

    fn merge_records<'a>(&'a self, records: impl Iterator<Item = FoundRecord<'a>>, now: i64) -> Location<'a> {
        let mut decoded = records.filter_map(|record| Database::fields(&record));
        let mut fields = decoded.next().unwrap_or_default();
        decoded.for_each(|later| merge::add(&mut fields, later));
        merge::finish(fields, &self.lists, now)
    }
}
