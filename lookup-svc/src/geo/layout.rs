//! Converts a record of any provider's layout into a common set of fields.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

use super::country::{self, Country};
use super::map_seed::MapSeed;
use super::record::{MmdbRecord, Network};
use super::timezone;

/// The data of one database about one address.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fields<'a> {
    pub country: Option<&'static Country>,
    pub country_name: Option<&'a str>,
    pub continent: Option<&'static str>,
    pub is_eu: Option<bool>,
    pub region: Option<&'a str>,
    /// As stored: "BE" or "DE-BE".
    pub region_code: Option<&'a str>,
    pub city: Option<&'a str>,
    pub postal_code: Option<Cow<'a, str>>,
    pub coordinates: Option<(f64, f64)>,
    pub timezone: Option<&'a str>,
    pub asn: Option<u32>,
    pub org: Option<&'a str>,
    pub proxy: bool,
    pub hosting: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn is_empty(&self) -> bool {
        *self == Fields::default()
    }
}

impl<'a> From<&MmdbRecord<'a>> for Fields<'a> {
    fn from(record: &MmdbRecord<'a>) -> Self {
        let mut fields = if record.country.is_map { nested_country(record) } else { flat_country(record) };
        fill_location(&mut fields, record);
        fill_network(&mut fields, &record.network);
        fields
    }
}

/// Decodes into a local record and converts it by reference, because the record is too large to move.
impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut record = MmdbRecord::default();
        deserializer.deserialize_map(MapSeed::new(&mut record))?;
        Ok(Fields::from(&record))
    }
}

/// MaxMind and DB-IP: `country` is a map.
fn nested_country<'a>(record: &MmdbRecord<'a>) -> Fields<'a> {
    Fields {
        country: record.country.code.text().and_then(country::find),
        country_name: record.country.english.text(),
        is_eu: record.country.in_eu.flag(),
        ..Fields::default()
    }
}

/// IPinfo and ip-location-db. If there is a `country_code`, `country` is the name (IPinfo Lite and Core).
/// Otherwise `country` is the code (IPinfo's older country_asn and location files).
fn flat_country<'a>(record: &MmdbRecord<'a>) -> Fields<'a> {
    let country = record.country.scalar.text();
    let (code, name) = match record.flat.country_code.text() {
        Some(code) => (Some(code), country.filter(|name| name.len() > 2)),
        None => (country, None),
    };
    Fields {
        country: code.and_then(country::find),
        country_name: record.flat.country_name.text().or(name),
        ..Fields::default()
    }
}

fn fill_location<'a>(fields: &mut Fields<'a>, record: &MmdbRecord<'a>) {
    let MmdbRecord { flat, location, .. } = record;
    let continent = [record.continent.code, flat.continent_code, record.continent.scalar];
    fields.continent = continent.into_iter().filter_map(|c| c.text()).find_map(country::continent);
    fields.region = record.subdivision.english.text().or(flat.region.text());
    fields.region_code = record.subdivision.code.text().or(flat.region_code.text());
    fields.city = record.city.english.text().or(record.city.scalar.text());
    let postal = [record.postal.code, flat.postal_code, record.postal.scalar];
    fields.postal_code = postal.into_iter().find_map(|code| code.text_or_integer());
    let latitude = location.latitude.number().or(flat.latitude.number());
    let longitude = location.longitude.number().or(flat.longitude.number());
    fields.coordinates = latitude.zip(longitude).filter(|point| on_earth(*point));
    let zone = location.time_zone.text().or(flat.timezone.text());
    fields.timezone = zone.filter(|name| timezone::is_identifier(name));
}

fn on_earth((latitude, longitude): (f64, f64)) -> bool {
    // False for NaN.
    latitude.abs() <= 90.0 && longitude.abs() <= 180.0
}

fn fill_network<'a>(fields: &mut Fields<'a>, network: &Network<'a>) {
    let is_set = |flag: super::scalar::Scalar<'a>| flag.flag() == Some(true);
    fields.asn = network.asn.asn();
    fields.org = network.as_org.text().or(network.isp.text()).or(network.organization.text());
    let hosting_provider = is_set(network.hosting_provider);
    fields.hosting = hosting_provider || is_set(network.hosting);
    let anonymizers =
        [network.vpn, network.public_proxy, network.residential_proxy, network.tor, network.relay];
    // MaxMind sets `is_anonymous` for hosting providers too, so together with `is_hosting_provider` it does not
    // indicate a proxy. IPinfo sets it only for networks that hide their users, with or without `is_hosting`.
    fields.proxy = anonymizers.into_iter().any(is_set) || (is_set(network.anonymous) && !hosting_provider);
}
