//! Merges what several databases say about one address into a location that exists: cities, coordinates and the like of
//! two databases are never mixed.

use super::country::Country;
use super::layout::Fields;

/// How precisely a record locates an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precision {
    None,
    /// Something less than a country: a continent, or only coordinates or a timezone.
    Other,
    Country,
    Region,
    City,
}

/// How well a record identifies the operator of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operator {
    Unknown,
    Name,
    Number,
}

/// Merges the fields of several databases, given in order of precedence.
///
/// City, region, region code, postal code, coordinates and timezone come from one database: the one with the most
/// precise record, or the first of several that are equally precise. Databases with the same country add missing facts
/// about the country. Number and organization of the network come from one database, too: the first with an AS number.
/// A flag (`proxy`, `hosting`) is set if any database sets it, because lists of such networks have nothing else.
pub(super) fn merge<'a>(mut records: impl Iterator<Item = Fields<'a>>) -> Fields<'a> {
    let first = records.next().unwrap_or_default();
    match records.next() {
        None => first,
        Some(second) => merge_all(&[first, second].into_iter().chain(records).collect::<Vec<_>>()),
    }
}

/// Adds the country of the built-in data to a location without one, unless the continents differ. An incomplete region
/// code ("BE") is then removed: with the country of another database, it could become the code of another region.
pub(super) fn add_country(merged: &mut Fields<'_>, country: &'static Country) {
    if merged.country.is_none() && merged.continent.is_none_or(|code| code == country.continent) {
        merged.country = Some(country);
        merged.region_code = merged.region_code.filter(|code| code.contains('-'));
    }
}

fn merge_all<'a>(records: &[Fields<'a>]) -> Fields<'a> {
    let mut merged = Fields {
        proxy: records.iter().any(|record| record.proxy),
        hosting: records.iter().any(|record| record.hosting),
        ..Fields::default()
    };
    if let Some(best) = first_max(records, precision) {
        add_location(&mut merged, best, records);
    }
    if let Some(best) = first_max(records, operator) {
        merged.asn = best.asn;
        let same_network = |record: &&Fields<'a>| best.asn.is_some() && record.asn == best.asn;
        merged.org = best.org.or_else(|| records.iter().filter(same_network).find_map(|record| record.org));
    }
    merged
}

/// Adds the location of `best`. If it has nothing but a country, the first database with the same country provides the
/// rest as a whole.
fn add_location<'a>(merged: &mut Fields<'a>, best: &Fields<'a>, records: &[Fields<'a>]) {
    let code = best.country.map(|country| country.code);
    let same_country =
        || records.iter().filter(|other| code.is_some() && other.country.map(|country| country.code) == code);
    merged.country = best.country;
    merged.country_name = best.country_name.or_else(|| same_country().find_map(|other| other.country_name));
    merged.continent = best.continent.or_else(|| same_country().find_map(|other| other.continent));
    merged.is_eu = best.is_eu.or_else(|| same_country().find_map(|other| other.is_eu));

    let source = match has_details(best) {
        true => best,
        false => same_country().find(|other| has_details(other)).unwrap_or(best),
    };
    merged.city = source.city;
    merged.region = source.region;
    merged.region_code = source.region_code;
    merged.postal_code = source.postal_code.clone();
    merged.coordinates = source.coordinates;
    merged.timezone = source.timezone;
}

/// The first record with the highest rank.
fn first_max<'r, 'a, R: Ord>(
    records: &'r [Fields<'a>],
    rank: fn(&Fields<'a>) -> R,
) -> Option<&'r Fields<'a>> {
    // `max_by_key` returns the last of several equal elements.
    records.iter().rev().max_by_key(|record| rank(record))
}

fn precision(fields: &Fields<'_>) -> Precision {
    match fields {
        Fields { city: Some(_), .. } => Precision::City,
        Fields { region: Some(_), .. } | Fields { region_code: Some(_), .. } => Precision::Region,
        Fields { country: Some(_), .. } => Precision::Country,
        Fields { continent: Some(_), .. } => Precision::Other,
        fields if has_details(fields) => Precision::Other,
        _ => Precision::None,
    }
}

fn operator(fields: &Fields<'_>) -> Operator {
    match (fields.asn, fields.org) {
        (Some(_), _) => Operator::Number,
        (None, Some(_)) => Operator::Name,
        (None, None) => Operator::Unknown,
    }
}

/// Whether a record has any of the fields that must come from one database.
fn has_details(fields: &Fields<'_>) -> bool {
    let names = fields.city.or(fields.region).or(fields.region_code).or(fields.timezone);
    names.is_some() || fields.postal_code.is_some() || fields.coordinates.is_some()
}
