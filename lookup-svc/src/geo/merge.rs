//! Lets several databases complete each other, field by field, in the order given.

use super::asn::AsnLists;
use super::layout::Fields;
use super::place::{AsText, Place, RegionCode};
use super::zone;

/// Adds what `later` knows and `fields` does not.
///
/// Fields that describe one thing travel together: a later database that puts the address into
/// another country adds nothing about the place, or we would answer with a Paris in Germany; a
/// name of another AS is no name for this one; a latitude needs its own longitude.
pub(super) fn add<'a>(fields: &mut Fields<'a>, later: Fields<'a>) {
    if agree(fields.country.map(|c| c.code), later.country.map(|c| c.code)) {
        add_place(fields, &later);
        fields.postal_code = fields.postal_code.take().or(later.postal_code);
    }
    if agree(fields.asn, later.asn) {
        fields.asn = fields.asn.or(later.asn);
        fields.org = fields.org.or(later.org);
    }
    fields.proxy |= later.proxy;
    fields.hosting |= later.hosting;
}

fn agree<T: PartialEq>(known: Option<T>, later: Option<T>) -> bool {
    known.is_none() || later.is_none() || known == later
}

fn add_place<'a>(fields: &mut Fields<'a>, later: &Fields<'a>) {
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

/// Completes the merged fields with what follows from them.
pub(super) fn finish<'a>(fields: Fields<'a>, lists: &AsnLists, now: i64) -> Place<'a> {
    let country = fields.country;
    let listed = |list: &super::asn::AsnList, flagged: bool| match fields.asn {
        Some(asn) => Some(flagged || list.contains(asn)),
        None => flagged.then_some(true),
    };
    Place {
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
        timezone_offset: fields.timezone.and_then(|zone| zone::offset(zone, now)),
        asn: fields.asn,
        org: fields.org,
        as_text: fields.asn.zip(fields.org).map(|(asn, org)| AsText { asn, org }),
        is_eu: fields.is_eu.or(country.map(|c| c.eu)),
        currency: country.and_then(|c| c.currency),
        proxy: listed(&lists.proxy, fields.proxy),
        hosting: listed(&lists.hosting, fields.hosting),
        postal_code: fields.postal_code,
    }
}
