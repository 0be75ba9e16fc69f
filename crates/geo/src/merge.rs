//! Merges what several databases say about one address into a location that exists: cities, coordinates and the like of
//! two databases are never mixed.

use std::iter;

use crate::country::Country;
use crate::layout::Fields;

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

/// Which record each part of a merged location comes from, by its position. Only for parts that the location has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordSources {
    pub country: usize,
    pub country_name: usize,
    pub continent: usize,
    pub is_eu: usize,
    /// City, region, region code, postal code, coordinates and timezone.
    pub details: usize,
    pub asn: usize,
    pub org: usize,
    pub proxy: usize,
    pub hosting: usize,
}

pub(crate) struct Merged<'a> {
    pub fields: Fields<'a>,
    pub sources: RecordSources,
    /// Whether the country comes from the built-in data.
    pub built_in_country: bool,
}

/// Merges the records of the loaded databases. Only if none of them has a location, the built-in data is consulted: its
/// country next to the city or the coordinates of another database could be a location that does not exist.
pub(crate) fn merge_with_built_in<'a>(
    records: impl Iterator<Item = Fields<'a>>,
    find_built_in: impl FnOnce() -> Option<&'static Country>,
) -> Merged<'a> {
    let (mut fields, sources) = merge(records);
    let has_location = fields.country.is_some() || has_details(&fields);
    let built_in = if has_location { None } else { find_built_in() };
    let built_in = built_in.filter(|country| fields.continent.is_none_or(|code| code == country.continent));
    fields.country = fields.country.or(built_in);
    Merged { built_in_country: built_in.is_some(), fields, sources }
}

/// Merges the fields of several databases, given in order of precedence.
///
/// City, region, region code, postal code, coordinates and timezone come from one database: the one with the most
/// precise record, or the first of several that are equally precise. Databases with the same country add missing facts
/// about the country. Number and organization of the network come from one database, too: the first with an AS number.
/// A flag (`proxy`, `hosting`) is set if any database sets it, because lists of such networks have nothing else.
fn merge<'a>(mut records: impl Iterator<Item = Fields<'a>>) -> (Fields<'a>, RecordSources) {
    let first = records.next().unwrap_or_default();
    match records.next() {
        None => (first, RecordSources::default()),
        Some(second) => merge_all(&[first, second].into_iter().chain(records).collect::<Vec<_>>()),
    }
}

/// A record and its position.
type Record<'r, 'a> = (usize, &'r Fields<'a>);

fn merge_all<'a>(records: &[Fields<'a>]) -> (Fields<'a>, RecordSources) {
    let (mut merged, mut sources) = (Fields::default(), RecordSources::default());
    if let Some(position) = records.iter().position(|record| record.proxy) {
        (merged.proxy, sources.proxy) = (true, position);
    }
    if let Some(position) = records.iter().position(|record| record.hosting) {
        (merged.hosting, sources.hosting) = (true, position);
    }
    if let Some(best) = first_max(records, precision) {
        add_location(&mut merged, &mut sources, best, records);
    }
    if let Some((position, best)) = first_max(records, operator) {
        (merged.asn, sources.asn) = (best.asn, position);
        let same_network = |record: &Record<'_, 'a>| best.asn.is_some() && record.1.asn == best.asn;
        let candidates = iter::once((position, best)).chain(records.iter().enumerate().filter(same_network));
        (merged.org, sources.org) = first_value(candidates, |record| record.org);
    }
    (merged, sources)
}

/// Adds the location of `best`. If it has nothing but a country, the first database with the same country provides the
/// rest as a whole.
fn add_location<'a>(
    merged: &mut Fields<'a>,
    sources: &mut RecordSources,
    best: Record<'_, 'a>,
    records: &[Fields<'a>],
) {
    let code = best.1.country.map(|country| country.code);
    let same_country =
        |record: &Record<'_, 'a>| code.is_some() && record.1.country.map(|country| country.code) == code;
    let candidates = || iter::once(best).chain(records.iter().enumerate().filter(same_country));
    (merged.country, sources.country) = (best.1.country, best.0);
    (merged.country_name, sources.country_name) = first_value(candidates(), |record| record.country_name);
    (merged.continent, sources.continent) = first_value(candidates(), |record| record.continent);
    (merged.is_eu, sources.is_eu) = first_value(candidates(), |record| record.is_eu);

    let (position, source) = candidates().find(|record| has_details(record.1)).unwrap_or(best);
    sources.details = position;
    merged.city = source.city;
    merged.region = source.region;
    merged.region_code = source.region_code;
    merged.postal_code = source.postal_code.clone();
    merged.coordinates = source.coordinates;
    merged.timezone = source.timezone;
}

/// The value of the first record that has one, with the record's position.
fn first_value<'r, 'a: 'r, T>(
    mut records: impl Iterator<Item = Record<'r, 'a>>,
    value: fn(&Fields<'a>) -> Option<T>,
) -> (Option<T>, usize) {
    let found = records.find_map(|(position, record)| Some((value(record)?, position)));
    found.map_or((None, 0), |(value, position)| (Some(value), position))
}

/// The first record with the highest rank.
fn first_max<'r, 'a, R: Ord>(
    records: &'r [Fields<'a>],
    rank: fn(&Fields<'a>) -> R,
) -> Option<Record<'r, 'a>> {
    // `max_by_key` returns the last of several equal elements.
    records.iter().enumerate().rev().max_by_key(|(_, record)| rank(record))
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
pub(crate) fn has_details(fields: &Fields<'_>) -> bool {
    let names = fields.city.or(fields.region).or(fields.region_code).or(fields.timezone);
    names.is_some() || fields.postal_code.is_some() || fields.coordinates.is_some()
}
