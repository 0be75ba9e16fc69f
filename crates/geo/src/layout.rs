//! Converts a record of any provider's layout into a common set of fields.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

use crate::country::{self, Country};
use crate::location::RegionCode;
use crate::record::{Field, MmdbRecord};
use crate::timezone;

/// The data of one database about one address.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields<'a> {
    pub country: Option<&'static Country>,
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
    pub(crate) fn is_empty(&self) -> bool {
        *self == Fields::default()
    }

    /// The region code of the database, if it has the form of one of this country.
    pub(crate) fn stored_region_code(&self) -> Option<RegionCode> {
        RegionCode::compose(self.country?.code, self.region_code?)
    }
}

/// Decodes into a local record and converts it by reference, because the record is too large to move.
impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut record = MmdbRecord::default();
        record.read(deserializer)?;
        let mut fields = Fields::default();
        if !is_about_as(&record) {
            fields.country = find_country(&record);
        }
        fill_location(&mut fields, &record);
        fill_network(&mut fields, &record);
        Ok(fields)
    }
}

/// Whether a record describes an AS, as in IPinfo's ASN database: its country is that of the holder, not that of the
/// address. A record with `as_name`, a city or a region describes an address.
fn is_about_as(record: &MmdbRecord<'_>) -> bool {
    let has = |field| record.get(field).text().is_some();
    let about_address = [Field::AsOrg, Field::City, Field::Region].into_iter().any(has);
    record.get(Field::Asn).asn().is_some() && has(Field::Name) && !about_address
}

/// In flat layouts, a `country` next to a `country_code` is the name (IPinfo Lite and Core). Otherwise `country` is the
/// code (IPinfo's older country_asn and location files). MaxMind's `registered_country`, the country of the network's
/// owner, is used only if the country of the address is missing.
fn find_country(record: &MmdbRecord<'_>) -> Option<&'static Country> {
    let codes = [Field::CountryCode, Field::Country, Field::RegisteredCountryCode];
    country::find(codes.into_iter().find_map(|field| record.get(field).text())?)
}

fn fill_location<'a>(fields: &mut Fields<'a>, record: &MmdbRecord<'a>) {
    let (region, code) = (record.get(Field::Region).text(), record.get(Field::RegionCode).text());
    (fields.region, fields.region_code) = match record.get(Field::RegionName).text() {
        Some(name) => (Some(name), code.or(region)),
        None => (region, code),
    };
    fields.city = record.get(Field::City).text();
    fields.postal_code = record.get(Field::PostalCode).text_or_integer();
    let point = record.get(Field::Latitude).number().zip(record.get(Field::Longitude).number());
    fields.coordinates = point.filter(|point| on_earth(*point)).map(|point| (round(point.0), round(point.1)));
    let timezone = record.get(Field::Timezone).text();
    fields.timezone = timezone.filter(|name| timezone::is_identifier(name));
}

/// Rounds to six decimal places (11 cm): some providers store 38.705799999999996 for 38.7058.
fn round(degrees: f64) -> f64 {
    // The sum turns -0.0 into 0.0.
    (degrees * 1e6).round() / 1e6 + 0.0
}

fn on_earth((latitude, longitude): (f64, f64)) -> bool {
    // False for NaN.
    latitude.abs() <= 90.0 && longitude.abs() <= 180.0
}

fn fill_network<'a>(fields: &mut Fields<'a>, record: &MmdbRecord<'a>) {
    let is_set = |field| record.get(field).flag() == Some(true);
    fields.asn = record.get(Field::Asn).asn();
    let organizations = [Field::AsOrg, Field::Isp, Field::Organization];
    let name = record.get(Field::Name).text().filter(|_| fields.asn.is_some());
    fields.org = organizations.into_iter().find_map(|field| record.get(field).text()).or(name);
    let hosting_provider = is_set(Field::HostingProvider);
    fields.hosting = hosting_provider || is_set(Field::Hosting) || has_hosting_type(record);
    let anonymizers = [Field::Vpn, Field::PublicProxy, Field::ResidentialProxy, Field::Tor, Field::Relay];
    // MaxMind sets `is_anonymous` for hosting providers too, so together with `is_hosting_provider` it does not
    // indicate a proxy. IPinfo sets it only for networks that hide their users, with or without `is_hosting`.
    let anonymous = is_set(Field::Anonymous) || is_listed_proxy(record);
    fields.proxy = anonymizers.into_iter().any(is_set) || (anonymous && !hosting_provider);
}

fn has_hosting_type(record: &MmdbRecord<'_>) -> bool {
    let types = [Field::Type, Field::AsType].map(|field| record.get(field).text());
    types.into_iter().flatten().any(|kind| kind.eq_ignore_ascii_case("hosting"))
}

/// Whether this is a record of a list of residential proxies, which have no flags.
fn is_listed_proxy(record: &MmdbRecord<'_>) -> bool {
    record.get(Field::ProxyProvider).text().is_some()
        || record.get(Field::ProxyDays).number().is_some_and(|percent| percent > 0.0)
}
