//! The databases and lists that are in use together. A reload replaces the whole snapshot.

use std::net::IpAddr;
use std::sync::Arc;

use super::asn::{AsnList, AsnLists};
use super::database::{Database, FoundRecord};
use super::layout::Fields;
use super::location::{AsText, Location, LocationJson, RegionCode};
use super::location_cache::{LocationCache, MAX_DATABASES};
use super::merge::merge;
use super::timezone;

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
        let fields = merge(records.filter_map(|record| Database::fields(&record)));
        finish(fields, &self.lists, now)
    }
}

/// Derives the remaining fields of a location from the merged ones.
fn finish<'a>(fields: Fields<'a>, lists: &AsnLists, now: i64) -> Location<'a> {
    let country = fields.country;
    let flagged_or_listed = |list: &AsnList, flagged: bool| match fields.asn {
        Some(asn) => Some(flagged || list.contains(asn)),
        None => flagged.then_some(true),
    };
    Location {
        city: fields.city,
        region: fields.region,
        region_code: country
            .zip(fields.region_code)
            .and_then(|(country, part)| RegionCode::compose(country.code, part)),
        country: country.map(|c| c.code),
        country_name: country.map(|c| fields.country_name.unwrap_or(c.name)),
        continent: fields.continent.or(country.map(|c| c.continent)),
        latitude: fields.coordinates.map(|point| point.0),
        longitude: fields.coordinates.map(|point| point.1),
        timezone: fields.timezone,
        timezone_offset: fields.timezone.and_then(|zone| timezone::offset(zone, now)),
        asn: fields.asn,
        org: fields.org,
        as_text: fields.asn.zip(fields.org).map(|(asn, org)| AsText { asn, org }),
        is_eu: fields.is_eu.or(country.map(|c| c.eu)),
        currency: country.and_then(|c| c.currency),
        proxy: flagged_or_listed(&lists.proxy, fields.proxy),
        hosting: flagged_or_listed(&lists.hosting, fields.hosting),
        postal_code: fields.postal_code,
    }
}
