//! Turns a record of any layout into the same fields.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

use super::country::{self, Country};
use super::keys::Into;
use super::record::{Network, Record};
use super::zone;

/// What one database says about one address.
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
    /// Whether the database knew anything that we can use.
    pub(super) fn is_empty(&self) -> bool {
        *self == Fields::default()
    }
}

impl<'a> From<&Record<'a>> for Fields<'a> {
    fn from(record: &Record<'a>) -> Self {
        let mut fields = if record.country.is_map { nested_country(record) } else { flat_country(record) };
        fill_place(&mut fields, record);
        fill_network(&mut fields, &record.network);
        fields
    }
}

/// A record is read and used where it stands: it is too large to be handed around.
impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut record = Record::default();
        deserializer.deserialize_map(Into::new(&mut record))?;
        Ok(Fields::from(&record))
    }
}

/// MaxMind and DB-IP: `country` is a map.
fn nested_country<'a>(record: &Record<'a>) -> Fields<'a> {
    Fields {
        country: record.country.code.text().and_then(country::find),
        country_name: record.country.english.text(),
        is_eu: record.country.in_eu.flag(),
        ..Fields::default()
    }
}

/// IPinfo and ip-location-db. With `country_code`, `country` is the name (IPinfo Lite and Core);
/// without it, `country` is the code (IPinfo's older country_asn and location files).
fn flat_country<'a>(record: &Record<'a>) -> Fields<'a> {
    let named = record.country.scalar.text();
    let (code, name) = match record.flat.country_code.text() {
        Some(code) => (Some(code), named.filter(|name| name.len() > 2)),
        None => (named, None),
    };
    Fields {
        country: code.and_then(country::find),
        country_name: record.flat.country_name.text().or(name),
        ..Fields::default()
    }
}

fn fill_place<'a>(fields: &mut Fields<'a>, record: &Record<'a>) {
    let Record { flat, location, .. } = record;
    let continent = [record.continent.code, flat.continent_code, record.continent.scalar];
    fields.continent = continent.into_iter().filter_map(|c| c.text()).find_map(country::continent);
    fields.region = record.subdivision.english.text().or(flat.region.text());
    fields.region_code = record.subdivision.code.text().or(flat.region_code.text());
    fields.city = record.city.english.text().or(record.city.scalar.text());
    let postal = [record.postal.code, flat.postal_code, record.postal.scalar];
    fields.postal_code = postal.into_iter().find_map(|code| code.written());
    let latitude = location.latitude.number().or(flat.latitude.number());
    let longitude = location.longitude.number().or(flat.longitude.number());
    fields.coordinates = latitude.zip(longitude).filter(|point| on_earth(*point));
    let zone = location.time_zone.text().or(flat.timezone.text());
    fields.timezone = zone.filter(|name| zone::is_identifier(name));
}

fn on_earth((latitude, longitude): (f64, f64)) -> bool {
    // NaN compares as outside.
    latitude.abs() <= 90.0 && longitude.abs() <= 180.0
}

fn fill_network<'a>(fields: &mut Fields<'a>, network: &Network<'a>) {
    let set = |flag: super::scalar::Scalar<'a>| flag.flag() == Some(true);
    fields.asn = network.asn.asn();
    fields.org = network.as_org.text().or(network.isp.text()).or(network.organization.text());
    let hosting_provider = set(network.hosting_provider);
    fields.hosting = hosting_provider || set(network.hosting);
    let hidden = [network.vpn, network.public_proxy, network.residential_proxy, network.tor, network.relay];
    // MaxMind, whose word is `is_hosting_provider`, sets `is_anonymous` for all of those too; IPinfo, whose word is
    // `is_hosting`, sets it for what hides its users, and most of that is hosted somewhere.
    fields.proxy = hidden.into_iter().any(set) || (set(network.anonymous) && !hosting_provider);
}
