//! Merges what several databases say about one address into a location that exists: cities, coordinates and the like of
//! two databases are never mixed.

use crate::country::Country;
use crate::record::Fields;

/// How precisely a record locates an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precision {
    None,
    /// Something less than a country: only coordinates, a postal code or a timezone.
    Other,
    Country,
    Region,
    City,
}

/// Which record each part of a merged location comes from, by its position. Only for parts that the location has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordSources {
    pub country: usize,
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
    let built_in = if precision(&fields) == Precision::None { find_built_in() } else { None };
    fields.country = fields.country.or(built_in);
    Merged { built_in_country: built_in.is_some(), fields, sources }
}

/// Merges the fields of several databases, given in order of precedence.
fn merge<'a>(mut records: impl Iterator<Item = Fields<'a>>) -> (Fields<'a>, RecordSources) {
    let first = records.next().unwrap_or_default();
    match records.next() {
        None => (first, RecordSources::default()),
        Some(second) => merge_all(&[first, second].into_iter().chain(records).collect::<Vec<_>>()),
    }
}

/// City, region, region code, postal code, coordinates and timezone come from one database: the one with the most
/// precise record, or the first of several that are equally precise. If that has nothing but a country, the first
/// database with the same country provides the rest as a whole.
///
/// The AS number comes from the first database that has one. If that has no name for the network, the first with the same
/// number provides it. A flag (`proxy`, `hosting`) is set if any database sets it, because lists of such networks have
/// nothing else.
fn merge_all<'a>(records: &[Fields<'a>]) -> (Fields<'a>, RecordSources) {
    let first = |condition: &dyn Fn(&Fields<'a>) -> bool| records.iter().position(condition);
    let (proxy, hosting) = (first(&|record| record.proxy), first(&|record| record.hosting));

    // `max_by_key` returns the last of several equal elements.
    let best = (0..records.len()).rev().max_by_key(|at| precision(&records[*at])).unwrap_or(0);
    let country = records[best].country;
    let completes = |record: &Fields<'a>| has_details(record) && record.country == country;
    let only_country = country.is_some() && !has_details(&records[best]);
    let details = if only_country { first(&completes).unwrap_or(best) } else { best };

    let with_number = first(&|record| record.asn.is_some());
    let network = with_number.or_else(|| first(&|record| record.org.is_some())).unwrap_or(0);
    let asn = records[network].asn;
    let names = |record: &Fields<'a>| record.org.is_some() && record.asn == asn;
    let needs_name = asn.is_some() && records[network].org.is_none();
    let org = if needs_name { first(&names).unwrap_or(network) } else { network };

    let fields = Fields {
        country,
        asn,
        org: records[org].org,
        proxy: proxy.is_some(),
        hosting: hosting.is_some(),
        ..records[details].clone()
    };
    let (proxy, hosting) = (proxy.unwrap_or(0), hosting.unwrap_or(0));
    (fields, RecordSources { country: best, details, asn: network, org, proxy, hosting })
}

fn precision(fields: &Fields<'_>) -> Precision {
    match fields {
        Fields { city: Some(_), .. } => Precision::City,
        Fields { region: Some(_), .. } | Fields { region_code: Some(_), .. } => Precision::Region,
        Fields { country: Some(_), .. } => Precision::Country,
        fields if has_details(fields) => Precision::Other,
        _ => Precision::None,
    }
}

/// Whether a record has any of the fields that must come from one database.
pub(crate) fn has_details(fields: &Fields<'_>) -> bool {
    let names = fields.city.or(fields.region).or(fields.region_code).or(fields.timezone);
    names.is_some() || fields.postal_code.is_some() || fields.coordinates.is_some()
}
