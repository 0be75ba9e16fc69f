//! A point in each country, to mark the country on a map.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::zone_tab;

static POINTS: LazyLock<HashMap<&str, Point>> = LazyLock::new(|| {
    let mut by_country: HashMap<_, Vec<_>> = HashMap::new();
    for (country, coordinates) in zone_tab::coordinates() {
        by_country.entry(country).or_default().extend(parse(coordinates));
    }
    by_country.into_iter().filter_map(|(country, points)| Some((country, middle(&points)?))).collect()
});

/// Latitude and longitude.
pub type Point = (f64, f64);

/// The main city of one of the country's timezones, the one in the middle of them. `None` if the country has none.
pub fn country_point(country: &str) -> Option<Point> {
    POINTS.get(country).copied()
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
fn parse(text: &str) -> Option<Point> {
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
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_parsed_with_and_without_seconds() {
        assert_eq!(parse("+5230+01322"), Some((52.5, 13.0 + 22.0 / 60.0)));
        assert_eq!(parse("-690022+0393524"), Some((-(69.0 + 22.0 / 3600.0), 39.59)));
        for invalid in ["", "+", "+5230", "+52é0+01322", "+52+013"] {
            assert_eq!(parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn point_is_in_the_country() {
        for (country, latitudes, longitudes) in [
            ("DE", 47.0..55.0, 6.0..15.0),
            ("US", 30.0..49.0, -124.0..-70.0),
            ("RU", 50.0..60.0, 50.0..130.0),
            ("NZ", -47.0..-34.0, 166.0..179.0),
            ("CL", -54.0..-18.0, -75.0..-67.0),
        ] {
            let (latitude, longitude) = country_point(country).expect("a point");
            assert!(latitudes.contains(&latitude) && longitudes.contains(&longitude), "{country}");
        }
        assert_eq!(country_point("XX"), None);
    }
}
