//! The databases and lists that are in use together. A reload replaces the whole snapshot.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use crate::asn::AsnList;
use crate::database::{Database, FoundRecord};
use crate::location::{FULL_FIELDS, GEO_FIELDS, Location, LocationJson};
use crate::location_cache::{LocationCache, Network};
use crate::merge::{Merged, merge_with_built_in};
use crate::record::Fields;
use crate::timezone::{self, Timezones};
use crate::{country, region_code};

/// How long a location is cached at most, in seconds. Without a timezone, its offset is that of all timezones of its country,
/// as long as they have the same one, which may change before the offset of the first.
const DAY: i64 = 86_400;

/// Databases in order of precedence, AS number lists, timezone data, and the cache of locations.
pub(crate) struct Snapshot {
    /// The loaded databases. The built-in data comes after them.
    databases: Vec<Arc<Database>>,
    built_in_database: Arc<Database>,
    hosting: Arc<AsnList>,
    proxy: Arc<AsnList>,
    pub(crate) timezones: Arc<Timezones>,
    cache: LocationCache,
}

impl Snapshot {
    pub(crate) fn new(
        databases: Vec<Arc<Database>>,
        hosting: Arc<AsnList>,
        proxy: Arc<AsnList>,
        timezones: Arc<Timezones>,
    ) -> Self {
        let built_in_database = Database::built_in();
        let cache = LocationCache::new();
        Self { databases, built_in_database, hosting, proxy, timezones, cache }
    }

    /// The databases in order of precedence, the built-in data last.
    pub(crate) fn databases(&self) -> impl Iterator<Item = &Database> {
        self.databases.iter().chain([&self.built_in_database]).map(|database| &**database)
    }

    /// The location of `ip`, and the source of each field if it has a value.
    pub(crate) fn explain(&self, ip: IpAddr, now: i64) -> (Location<'_>, Vec<(&'static str, String)>) {
        let fields =
            |database| Database::fields(&Database::lookup(database, ip).filter(FoundRecord::has_data)?);
        let found = self.databases.iter().filter_map(|database| Some((&**database, fields(database)?)));
        let (databases, records): (Vec<&Database>, Vec<_>) = found.unzip();
        let merged = merge_with_built_in(records.into_iter(), || fields(&self.built_in_database)?.country);
        let sources = self.sources(&merged, &databases);
        (self.finish(merged.fields, now), sources)
    }

    /// The source of each field. `databases` are those whose records were merged, in the same order.
    fn sources(&self, merged: &Merged<'_>, databases: &[&Database]) -> Vec<(&'static str, String)> {
        let (fields, sources) = (&merged.fields, &merged.sources);
        // The positions are those of merged records, so the default is never used.
        let database =
            |at: usize| databases.get(at).map_or(String::new(), |database| database.info.to_string());
        let source = |name| match name {
            "country" if merged.built_in_country => self.built_in_database.info.to_string(),
            "country" => database(sources.country),
            "country_name" | "continent" | "is_eu" | "currency" => "derived from the country".to_owned(),
            "region_code" if fields.stored_region_code().is_none() => {
                "derived from the name of the region".to_owned()
            }
            "timezone" if fields.timezone.is_none() => {
                "derived from the coordinates or the country".to_owned()
            }
            "timezone_offset" => format!("timezone data {}", self.timezones.info),
            "asn" => database(sources.asn),
            "org" => database(sources.org),
            "as" => "made of asn and org".to_owned(),
            "proxy" if fields.proxy => database(sources.proxy),
            "hosting" if fields.hosting => database(sources.hosting),
            "proxy" | "hosting" => format!("asn and the list of {name} networks"),
            _ => database(sources.details),
        };
        GEO_FIELDS.iter().chain(FULL_FIELDS).map(|field| (field.name, source(field.name))).collect()
    }

    /// Passes the location of `ip` as JSON to `use_json`, from the cache if possible.
    pub(crate) fn with_location_json<R>(
        &self,
        ip: IpAddr,
        now: i64,
        use_json: impl FnOnce(&LocationJson) -> R,
    ) -> R {
        let networks = Network::of(ip);
        if let Some(cached) = networks.into_iter().find_map(|network| self.cache.get(network, now)) {
            return use_json(&cached);
        }
        let (location, prefix_len) = self.locate(ip, now);
        let json = LocationJson::new(&location);
        let result = use_json(&json);
        if let Some(network) = networks.into_iter().find(|network| prefix_len <= network.prefix_len) {
            let change = location.offset_timezone.map(|zone| self.timezones.next_change(zone, now));
            self.cache.insert(network, now..change.unwrap_or(i64::MAX).min(now.saturating_add(DAY)), json);
        }
        result
    }

    /// Returns the location of `ip`, and the longest prefix of the networks that the databases have for it: all addresses of
    /// a network with at least this prefix have the same location.
    pub(crate) fn locate(&self, ip: IpAddr, now: i64) -> (Location<'_>, u8) {
        let longest = Cell::new(0);
        let find = |database| {
            // No result: the address is not public, or it is IPv6 and the file has only IPv4. Both then hold for its /24 or /48.
            let result = Database::lookup(database, ip)?;
            // An error is impossible: the network is that of a valid address.
            let prefix_len = result.network().map_or(u8::MAX, |network| network.prefix());
            longest.set(longest.get().max(prefix_len));
            Some(result).filter(FoundRecord::has_data)
        };
        let fields = |database| Database::fields(&find(database)?);
        let records = self.databases.iter().filter_map(|database| fields(database));
        let merged = merge_with_built_in(records, || fields(&self.built_in_database)?.country);
        (self.finish(merged.fields, now), longest.get())
    }

    /// Derives the remaining fields of a location from the merged ones. A missing region code or timezone is derived from
    /// the country, region and coordinates, which all describe the same location.
    fn finish<'a>(&self, fields: Fields<'a>, now: i64) -> Location<'a> {
        let country = fields.country;
        // Only of a city: the coordinates of a whole country or region are those of its center.
        let city = fields.coordinates.filter(|_| fields.city.is_some());
        let timezone = fields
            .timezone
            .or_else(|| timezone::find(country?.code, city).filter(|zone| self.timezones.contains(zone)));
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
            region_code: fields.stored_region_code().map(Cow::Owned).or_else(|| {
                // The code that the region's name identifies.
                Some(Cow::Borrowed(region_code::find(country?.code, fields.region?)?))
            }),
            country: country.map(|c| c.code),
            country_name: country.map(|c| c.name),
            continent: country.map(|c| c.continent),
            latitude: fields.coordinates.map(|point| point.0),
            longitude: fields.coordinates.map(|point| point.1),
            timezone,
            offset_timezone,
            timezone_offset: offset_timezone.and_then(|zone| self.timezones.offset(zone, now)),
            asn: fields.asn,
            org: fields.org,
            is_eu: country.map(|c| c.eu),
            currency: country.and_then(|c| c.currency),
            proxy: flagged_or_listed(&self.proxy, fields.proxy),
            hosting: flagged_or_listed(&self.hosting, fields.hosting),
            postal_code: fields.postal_code,
        }
    }
}
