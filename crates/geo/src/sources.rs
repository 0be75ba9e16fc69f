//! Which database provides which field of a location.

use std::fmt;

use crate::database::{Database, DatabaseInfo};
use crate::location::Location;
use crate::merge::Merged;
use crate::timezone::TimezoneInfo;

/// The source of a response field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSource {
    /// Name of the response field.
    pub field: &'static str,
    pub source: Source,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A record of a database.
    Database(DatabaseInfo),
    Timezones(TimezoneInfo),
    /// Derived from other fields. The text names them.
    Derived(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(info) => match info.date() {
                Some(date) => write!(f, "{}, built {date}", info.name),
                None => write!(f, "{}, without a build date", info.name),
            },
            Self::Timezones(info) => write!(f, "timezone data {info}"),
            Self::Derived(text) => f.write_str(text),
        }
    }
}

const FROM_COUNTRY: Source = Source::Derived("derived from the country");

/// The source of each field that `location` has. `databases` are those whose records were merged, in the same order.
pub(crate) fn of(
    merged: &Merged<'_>,
    location: &Location<'_>,
    databases: &[&Database],
    built_in: &Database,
    timezones: &TimezoneInfo,
) -> Vec<FieldSource> {
    let (fields, sources) = (&merged.fields, &merged.sources);
    let database = |position: usize| {
        // The positions are those of merged records, so the default is never used.
        databases.get(position).map_or(FROM_COUNTRY, |database| Source::Database(database.info.clone()))
    };
    let stored_or = |is_stored: bool, position: usize, otherwise: Source| match is_stored {
        true => database(position),
        false => otherwise,
    };
    let country = match merged.built_in_country {
        true => Source::Database(built_in.info.clone()),
        false => database(sources.country),
    };
    let details = || database(sources.details);
    let is_region_stored =
        location.country.is_some_and(|country| fields.stored_region_code(country).is_some());
    let by_region = Source::Derived("derived from the name of the region");
    let by_location = Source::Derived("derived from the coordinates or the country");
    let all = [
        ("city", location.city.is_some(), details()),
        ("region", location.region.is_some(), details()),
        (
            "region_code",
            location.region_code.is_some(),
            stored_or(is_region_stored, sources.details, by_region),
        ),
        ("country", location.country.is_some(), country),
        (
            "country_name",
            location.country_name.is_some(),
            stored_or(fields.country_name.is_some(), sources.country_name, FROM_COUNTRY),
        ),
        (
            "continent",
            location.continent.is_some(),
            stored_or(fields.continent.is_some(), sources.continent, FROM_COUNTRY),
        ),
        ("latitude", location.latitude.is_some(), details()),
        ("longitude", location.longitude.is_some(), details()),
        (
            "timezone",
            location.timezone.is_some(),
            stored_or(fields.timezone.is_some(), sources.details, by_location),
        ),
        ("timezone_offset", location.timezone_offset.is_some(), Source::Timezones(timezones.clone())),
        ("postal_code", location.postal_code.is_some(), details()),
        ("asn", location.asn.is_some(), database(sources.asn)),
        ("org", location.org.is_some(), database(sources.org)),
        ("as", location.as_text.is_some(), Source::Derived("made of asn and org")),
        ("is_eu", location.is_eu.is_some(), stored_or(fields.is_eu.is_some(), sources.is_eu, FROM_COUNTRY)),
        ("currency", location.currency.is_some(), FROM_COUNTRY),
        (
            "proxy",
            location.proxy.is_some(),
            stored_or(fields.proxy, sources.proxy, Source::Derived("asn and the list of proxy networks")),
        ),
        (
            "hosting",
            location.hosting.is_some(),
            stored_or(
                fields.hosting,
                sources.hosting,
                Source::Derived("asn and the list of hosting networks"),
            ),
        ),
    ];
    let known = all.into_iter().filter(|(_, has_value, _)| *has_value);
    known.map(|(field, _, source)| FieldSource { field, source }).collect()
}
