//! Facts derived from a country code: English name, continent, currency, EU membership, timezones, a point for a map.

use std::collections::HashMap;
use std::sync::LazyLock;

use keshvar::{Continent, CountryIterator};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Country {
    /// ISO 3166-1 alpha-2.
    pub code: &'static str,
    /// The common English name ("South Korea", not "Korea (Republic of)").
    pub name: &'static str,
    /// Two-letter continent code.
    pub continent: &'static str,
    /// ISO 4217. `None` only for Antarctica.
    pub currency: Option<&'static str>,
    /// Whether it is part of the European Union. Also true for territories with their own code to which the EU treaties
    /// apply, such as Réunion and Åland.
    pub eu: bool,
}

/// Finds a country by its ISO code, in upper or lower case. Also finds XK (Kosovo), which is not an ISO code
/// but is used by every provider.
pub fn find(code: &str) -> Option<&'static Country> {
    static TABLE: LazyLock<HashMap<[u8; 2], Country>> = LazyLock::new(|| {
        let kosovo =
            Country { code: "XK", name: "Kosovo", continent: "EU", currency: Some("EUR"), eu: false };
        let countries = CountryIterator::new().map(|source| facts(&source)).chain([kosovo]);
        countries.filter_map(|country| Some((country.code.as_bytes().try_into().ok()?, country))).collect()
    });
    let code: [u8; 2] = code.as_bytes().try_into().ok()?;
    TABLE.get(&code.map(|letter| letter.to_ascii_uppercase()))
}

fn facts(source: &keshvar::Country) -> Country {
    // Leaked, but only once per process: lookups can then return `&'static str`.
    let code: &'static str = source.alpha2().to_string().leak();
    Country {
        code,
        name: common_name(code).unwrap_or(source.iso_short_name()),
        continent: continent_of(code, source.continent()),
        currency: match code {
            "AQ" => None,
            "TL" => Some("USD"),
            "ZW" => Some("ZWG"),
            _ => Some(source.currency_code().to_string().leak()),
        },
        eu: source.eu_member(),
    }
}

/// The continent of a country. The first rows are those where keshvar differs from GeoNames, which MaxMind and DB-IP
/// follow.
fn continent_of(code: &str, continent: Continent) -> &'static str {
    match (code, continent) {
        ("CY", _) => "EU",
        ("TR", _) => "AS",
        ("TL", _) => "OC",
        ("TF", _) => "AN",
        (_, Continent::Africa) => "AF",
        (_, Continent::Antarctica) => "AN",
        (_, Continent::Asia) => "AS",
        (_, Continent::Australia) => "OC",
        (_, Continent::Europe) => "EU",
        (_, Continent::NorthAmerica) => "NA",
        (_, Continent::SouthAmerica) => "SA",
    }
}

/// Common names for countries whose ISO short name is formal, such as "Moldova (Republic of)".
fn common_name(code: &str) -> Option<&'static str> {
    Some(match code {
        "BN" => "Brunei",
        "BO" => "Bolivia",
        "CD" => "DR Congo",
        "CG" => "Congo Republic",
        "CV" => "Cape Verde",
        "FK" => "Falkland Islands",
        "FM" => "Micronesia",
        "GB" => "United Kingdom",
        "IR" => "Iran",
        "KP" => "North Korea",
        "KR" => "South Korea",
        "LA" => "Laos",
        "MD" => "Moldova",
        "MF" => "Saint Martin",
        "PN" => "Pitcairn Islands",
        "PS" => "Palestine",
        "RU" => "Russia",
        "ST" => "São Tomé and Príncipe",
        "SX" => "Sint Maarten",
        "SY" => "Syria",
        "TW" => "Taiwan",
        "TZ" => "Tanzania",
        "US" => "United States",
        "VA" => "Vatican City",
        "VE" => "Venezuela",
        "VG" => "British Virgin Islands",
        "VI" => "U.S. Virgin Islands",
        "VN" => "Vietnam",
        _ => return None,
    })
}

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

/// Country, coordinates of the main city (in the form of ISO 6709) and timezone of each row.
fn rows() -> impl Iterator<Item = [&'static str; 3]> {
    ZONE_TAB.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut columns = line.split('\t');
        Some([columns.next()?, columns.next()?, columns.next()?])
    })
}

/// The timezones of a country, the most populous first. Empty if the country is not in the table.
pub(crate) fn timezones(country: &str) -> &'static [&'static str] {
    BY_COUNTRY.get(country).map_or(&[], Vec::as_slice)
}

/// Latitude and longitude.
pub type Point = (f64, f64);

/// A point to mark the country on a map: the main city of one of its timezones, the one in the middle of them. `None` if
/// the country has none.
pub fn point(country: &str) -> Option<Point> {
    let cities = rows().filter(|[code, ..]| *code == country);
    let points: Vec<_> = cities.filter_map(|[_, coordinates, _]| parse_point(coordinates)).collect();
    middle(&points)
}

/// The point with the smallest sum of distances to the others; the first of equals. Unlike an average, it is always in
/// the country.
fn middle(points: &[Point]) -> Option<Point> {
    let total = |point: &Point| points.iter().map(|other| distance(*point, *other)).sum::<f64>();
    points.iter().copied().min_by(|a, b| total(a).total_cmp(&total(b)))
}

/// The length of the chord between two points of a unit sphere.
fn distance(a: Point, b: Point) -> f64 {
    let vector = |(latitude, longitude): Point| {
        let (latitude, longitude) = (latitude.to_radians(), longitude.to_radians());
        [latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()]
    };
    vector(a).iter().zip(vector(b)).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// Parses `±DDMM±DDDMM` or `±DDMMSS±DDDMMSS` (ISO 6709).
fn parse_point(text: &str) -> Option<Point> {
    let longitude_start = 1 + text.get(1..)?.find(['+', '-'])?;
    Some((angle(text.get(..longitude_start)?, 3)?, angle(text.get(longitude_start..)?, 4)?))
}

/// Parses one angle, whose degrees end at this index.
fn angle(text: &str, degrees_end: usize) -> Option<f64> {
    let part = |range: std::ops::Range<usize>| text.get(range)?.parse::<f64>().ok();
    let degrees = part(1..degrees_end)? + part(degrees_end..degrees_end + 2)? / 60.0;
    let seconds = part(degrees_end + 2..degrees_end + 4).unwrap_or(0.0);
    let degrees = degrees + seconds / 3600.0;
    Some(if text.starts_with('-') { -degrees } else { degrees })
}

#[cfg(test)]
mod tests;
