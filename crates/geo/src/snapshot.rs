//! The databases and lists that are in use together. A reload replaces the whole snapshot.

use std::net::IpAddr;
use std::sync::Arc;

use crate::asn::AsnList;
use crate::built_in;
use crate::database::{Database, FoundRecord};
use crate::layout::Fields;
use crate::location::{AsText, Location, LocationJson, RegionCode};
use crate::location_cache::{LocationCache, MAX_DATABASES, RecordOffsets};
use crate::merge::{Merged, merge_with_built_in};
use crate::network_cache::{Network, NetworkCache};
use crate::timezone::Timezones;
use crate::{country, find_timezone, region_code};

/// Databases in order of precedence, AS number lists, timezone data, and the caches for them.
pub(crate) struct Snapshot {
    /// The loaded databases. The built-in data comes after them.
    databases: Vec<Arc<Database>>,
    built_in_database: Arc<Database>,
    hosting: Arc<AsnList>,
    proxy: Arc<AsnList>,
    pub(crate) timezones: Arc<Timezones>,
    networks: NetworkCache,
    cache: LocationCache,
}

impl Snapshot {
    pub(crate) fn new(
        databases: Vec<Arc<Database>>,
        hosting: Arc<AsnList>,
        proxy: Arc<AsnList>,
        timezones: Arc<Timezones>,
    ) -> Self {
        let built_in_database = built_in::database();
        let (networks, cache) = (NetworkCache::new(), LocationCache::new());
        Self { databases, built_in_database, hosting, proxy, timezones, networks, cache }
    }

    /// The databases in order of precedence, the built-in data last.
    pub(crate) fn databases(&self) -> impl Iterator<Item = &Database> {
        self.databases.iter().chain([&self.built_in_database]).map(|database| &**database)
    }

    /// The location of `ip`, merged from all databases.
    pub(crate) fn location(&self, ip: IpAddr, now: i64) -> Location<'_> {
        let records = self.databases.iter().filter_map(|database| database.find_record(ip));
        self.merge_records(records, || self.built_in_database.find_record(ip), now)
    }

    /// The location of `ip`, and the source of each field if it has a value.
    pub(crate) fn explain(&self, ip: IpAddr, now: i64) -> (Location<'_>, Vec<(&'static str, String)>) {
        let found = self.databases.iter().filter_map(|database| {
            let record = database.find_record(ip)?;
            Some((&**database, Database::fields(&record)?))
        });
        let (databases, records): (Vec<&Database>, Vec<_>) = found.unzip();
        let built_in = || self.built_in_database.find_record(ip);
        let merged = merge_with_built_in(records.into_iter(), || Database::fields(&built_in()?)?.country);
        let location = self.finish(merged.fields.clone(), now);
        let sources = self.sources(&merged, &databases, location.country);
        (location, sources)
    }

    /// The source of each field. `databases` are those whose records were merged, in the same order.
    fn sources(
        &self,
        merged: &Merged<'_>,
        databases: &[&Database],
        country: Option<&str>,
    ) -> Vec<(&'static str, String)> {
        let (fields, sources) = (&merged.fields, &merged.sources);
        // The positions are those of merged records, so the default is never used.
        let database =
            |position: usize| databases.get(position).map_or(String::new(), |db| db.info.to_string());
        let stored_or = |is_stored: bool, position: usize, otherwise: &str| match is_stored {
            true => database(position),
            false => otherwise.to_owned(),
        };
        let by_country = "derived from the country";
        let details = || database(sources.details);
        let has_region_code = country.is_some_and(|code| fields.stored_region_code(code).is_some());
        let by_region = "derived from the name of the region";
        let by_location = "derived from the coordinates or the country";
        vec![
            ("city", details()),
            ("region", details()),
            ("region_code", stored_or(has_region_code, sources.details, by_region)),
            (
                "country",
                match merged.built_in_country {
                    true => self.built_in_database.info.to_string(),
                    false => database(sources.country),
                },
            ),
            ("country_name", stored_or(fields.country_name.is_some(), sources.country_name, by_country)),
            ("continent", stored_or(fields.continent.is_some(), sources.continent, by_country)),
            ("latitude", details()),
            ("longitude", details()),
            ("timezone", stored_or(fields.timezone.is_some(), sources.details, by_location)),
            ("timezone_offset", format!("timezone data {}", self.timezones.info)),
            ("postal_code", details()),
            ("asn", database(sources.asn)),
            ("org", database(sources.org)),
            ("as", "made of asn and org".to_owned()),
            ("is_eu", stored_or(fields.is_eu.is_some(), sources.is_eu, by_country)),
            ("currency", by_country.to_owned()),
            ("proxy", stored_or(fields.proxy, sources.proxy, "asn and the list of proxy networks")),
            ("hosting", stored_or(fields.hosting, sources.hosting, "asn and the list of hosting networks")),
        ]
    }

    /// Passes the location of `ip` as JSON to `use_json`, from the cache if possible.
    pub(crate) fn with_location_json<R>(
        &self,
        ip: IpAddr,
        now: i64,
        use_json: impl FnOnce(&LocationJson) -> R,
    ) -> R {
        if self.databases.len() > MAX_DATABASES {
            return use_json(&LocationJson::new(&self.location(ip, now)));
        }
        let network = Network::of(ip);
        let mut found = None;
        let offsets = self.networks.get(network).unwrap_or_else(|| {
            let (records, shared) = self.find_records(ip);
            let offsets = records.offsets();
            if shared {
                self.networks.insert(network, offsets);
            }
            found = Some(records);
            offsets
        });
        let location = || {
            let Records { loaded, built_in, key_has_built_in } =
                found.unwrap_or_else(|| self.find_records(ip).0);
            let mut cacheable = true;
            let find_built_in = || {
                cacheable = key_has_built_in;
                if key_has_built_in { built_in } else { self.built_in_database.find_record(ip) }
            };
            let location = self.merge_records(loaded.into_iter().flatten(), find_built_in, now);
            (location, cacheable)
        };
        self.cache.with_json(offsets, now, &self.timezones, location, use_json)
    }

    /// Returns the records of `ip`, and whether its whole network has the same ones.
    fn find_records(&self, ip: IpAddr) -> (Records<'_>, bool) {
        let mut loaded = [const { None }; MAX_DATABASES];
        let (mut shared, mut expect_country) = (true, false);
        let mut find = |database| {
            let result = Database::lookup(database, ip);
            // No result: the address is not public, or it is IPv6 and the file has only IPv4. Both then hold for its network.
            shared &= result.as_ref().is_none_or(Network::is_covered_by);
            result.filter(FoundRecord::has_data)
        };
        for (record, database) in loaded.iter_mut().zip(&self.databases) {
            *record = find(database);
            expect_country |= record.is_some() && database.has_countries;
        }
        // A record of a database with countries almost always has one. The built-in data is then not looked up, so its
        // record is not part of the cache's key. Should it be needed nevertheless, the location is not cached.
        let key_has_built_in = !expect_country;
        let built_in = if key_has_built_in { find(&self.built_in_database) } else { None };
        (Records { loaded, built_in, key_has_built_in }, shared)
    }

    /// Merges the records of the loaded databases and, if necessary, of the built-in data.
    fn merge_records<'a>(
        &'a self,
        records: impl Iterator<Item = FoundRecord<'a>>,
        find_built_in: impl FnOnce() -> Option<FoundRecord<'a>>,
        now: i64,
    ) -> Location<'a> {
        let records = records.filter_map(|record| Database::fields(&record));
        let merged = merge_with_built_in(records, || Database::fields(&find_built_in()?)?.country);
        self.finish(merged.fields, now)
    }

    /// Derives the remaining fields of a location from the merged ones. A missing region code or timezone is derived from
    /// the country, region and coordinates, which all describe the same location.
    fn finish<'a>(&self, fields: Fields<'a>, now: i64) -> Location<'a> {
        let country = fields.country;
        let timezone = fields
            .timezone
            .or_else(|| find_timezone::find(&fields).filter(|zone| self.timezones.contains(zone)));
        // The timezone whose offset is that of the location.
        let offset_timezone = timezone.or_else(|| {
            country.and_then(|country| self.timezones.common(country::timezones(country.code), now))
        });
        let flagged_or_listed = |list: &AsnList, flagged: bool| match fields.asn {
            Some(asn) => Some(flagged || list.contains(asn)),
            None => flagged.then_some(true),
        };
        Location {
            city: fields.city,
            region: fields.region,
            region_code: country.and_then(|country| compose_region_code(country.code, &fields)),
            country: country.map(|c| c.code),
            country_name: country.map(|c| fields.country_name.unwrap_or(c.name)),
            continent: fields.continent.or(country.map(|c| c.continent)),
            latitude: fields.coordinates.map(|point| point.0),
            longitude: fields.coordinates.map(|point| point.1),
            timezone,
            offset_timezone,
            timezone_offset: offset_timezone.and_then(|zone| self.timezones.offset(zone, now)),
            asn: fields.asn,
            org: fields.org,
            as_text: fields.asn.zip(fields.org).map(|(asn, org)| AsText { asn, org }),
            is_eu: fields.is_eu.or(country.map(|c| c.eu)),
            currency: country.and_then(|c| c.currency),
            proxy: flagged_or_listed(&self.proxy, fields.proxy),
            hosting: flagged_or_listed(&self.hosting, fields.hosting),
            postal_code: fields.postal_code,
        }
    }
}

/// The records of an address.
struct Records<'a> {
    loaded: [Option<FoundRecord<'a>>; MAX_DATABASES],
    built_in: Option<FoundRecord<'a>>,
    /// Whether the built-in data was looked up, so that its record is part of the location cache's key.
    key_has_built_in: bool,
}

impl Records<'_> {
    fn offsets(&self) -> RecordOffsets {
        let mut offsets = RecordOffsets::default();
        for (offset, record) in offsets.iter_mut().zip(self.loaded.iter().chain([&self.built_in])) {
            let found = record.as_ref().and_then(FoundRecord::offset);
            *offset = found.map_or(0, |found| found as u32 + 1);
        }
        offsets
    }
}

/// The region code of the database, or the one that its region's name identifies.
fn compose_region_code(country: &str, fields: &Fields<'_>) -> Option<RegionCode> {
    let stored = fields.stored_region_code(country);
    stored.or_else(|| RegionCode::compose(country, region_code::find(country, fields.region?)?))
}
