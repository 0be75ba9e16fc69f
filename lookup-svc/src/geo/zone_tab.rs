//! The timezones of each country.

use std::collections::HashMap;
use std::sync::LazyLock;

/// From tzdata 2026f, in the public domain. Replace it when a country gets a new timezone.
const ZONE_TAB: &str = include_str!("../../data/zone.tab");

/// Timezones that don't count as a second one of their country: Büsingen, a village, has the time of Berlin.
const NOT_COUNTED: [&str; 1] = ["Europe/Busingen"];

static BY_COUNTRY: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut timezones: HashMap<_, Vec<_>> = HashMap::new();
    for line in ZONE_TAB.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        if let (Some(country), Some(zone)) = (columns.next(), columns.nth(1))
            && !NOT_COUNTED.contains(&zone)
        {
            timezones.entry(country).or_default().push(zone);
        }
    }
    // Kosovo's code is not in ISO 3166, so not in the table.
    timezones.insert("XK", vec!["Europe/Belgrade"]);
    timezones
});

/// The timezones of a country, the most populous first. Empty if the country is not in the table.
pub(super) fn timezones(country: &str) -> &'static [&'static str] {
    BY_COUNTRY.get(country).map_or(&[], Vec::as_slice)
}

/// Whether this is a timezone of some country, not an older name such as US/Eastern.
pub(super) fn contains(zone: &str) -> bool {
    BY_COUNTRY.values().flatten().any(|other| *other == zone)
}
