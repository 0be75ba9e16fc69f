//! Merges the fields of several databases. The first database that has a field wins.

use super::asn::AsnLists;
use super::layout::Fields;
use super::location::{AsText, Location, RegionCode};
use super::timezone;

/// Fills the missing fields from `later`, the fields of a database of lower precedence.
///
/// Related fields must come from databases that agree: if `later` has another country, its location is ignored,
/// because the result could be Paris in Germany. If it has another AS number, its organization is ignored. Latitude and
/// longitude are taken together.
pub(super) fn add<'a>(fields: &mut Fields<'a>, later: Fields<'a>) {
    if agree(fields.country.map(|c| c.code), later.country.map(|c| c.code)) {
        add_location(fields, &later);
        fields.postal_code = fields.postal_code.take().or(later.postal_code);
    }
    if agree(fields.asn, later.asn) {
        fields.asn = fields.asn.or(later.asn);
        fields.org = fields.org.or(later.org);
    }
    fields.proxy |= later.proxy;
    fields.hosting |= later.hosting;
}

fn agree<T: PartialEq>(current: Option<T>, later: Option<T>) -> bool {
    current.is_none() || later.is_none() || current == later
}

fn add_location<'a>(fields: &mut Fields<'a>, later: &Fields<'a>) {
    fields.country = fields.country.or(later.country);
    fields.country_name = fields.country_name.or(later.country_name);
    fields.continent = fields.continent.or(later.continent);
    fields.is_eu = fields.is_eu.or(later.is_eu);
    if agree(fields.region, later.region) {
        fields.region = fields.region.or(later.region);
        fields.region_code = fields.region_code.or(later.region_code);
    }
    fields.city = fields.city.or(later.city);
    fields.coordinates = fields.coordinates.or(later.coordinates);
    fields.timezone = fields.timezone.or(later.timezone);
}

/// Derives the remaining fields of a location from the merged ones.
pub(super) fn finish<'a>(fields: Fields<'a>, lists: &AsnLists, now: i64) -> Location<'a> {
    let country = fields.country;
    let flagged_or_listed = |list: &super::asn::AsnList, flagged: bool| match fields.asn {
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
