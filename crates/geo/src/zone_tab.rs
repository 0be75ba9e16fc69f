//! The timezones of each country.

use std::collections::HashMap;
use std::sync::LazyLock;

/// From tzdata, in the public domain. `timezones.py` updates it.
const ZONE_TAB: &str = include_str!("../data/zone.tab");

/// Timezones that don't count as a second one of their country: Büsingen, a village, has the time of Berlin.
const NOT_COUNTED: [&str; 1] = ["Europe/Busingen"];

static BY_COUNTRY: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut timezones: HashMap<_, Vec<_>> = HashMap::new();
    for [country, _, zone] in rows().filter(|[_, _, zone]| !NOT_COUNTED.contains(zone)) {
        timezones.entry(country).or_default().push(zone);
    }
    // Kosovo's code is not in ISO 3166, so not in the table.
    timezones.insert("XK", vec!["Europe/Belgrade"]);
    timezones
});

/// Country, coordinates and timezone of each row.
fn rows() -> impl Iterator<Item = [&'static str; 3]> {
    ZONE_TAB.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut columns = line.split('\t');
        Some([columns.next()?, columns.next()?, columns.next()?])
    })
}

/// The country of each timezone, and the coordinates of the timezone's main city in the form of ISO 6709.
pub(crate) fn coordinates() -> impl Iterator<Item = (&'static str, &'static str)> {
    rows().map(|[country, coordinates, _]| (country, coordinates))
}

/// The timezones of a country, the most populous first. Empty if the country is not in the table.
pub(crate) fn timezones(country: &str) -> &'static [&'static str] {
    BY_COUNTRY.get(country).map_or(&[], Vec::as_slice)
}
