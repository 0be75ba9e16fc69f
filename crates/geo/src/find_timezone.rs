//! Finds the timezone of a location whose database has none.

use std::sync::LazyLock;

use tzf_rs::EmbeddedFinder;

use crate::country;
use crate::layout::Fields;

/// The only country with two of its own timezones in the same place (Xinjiang).
const OVERLAPPING: &str = "CN";

/// Loads the boundaries now instead of during the first request.
pub(crate) fn load() {
    LazyLock::force(&FINDER);
}

/// Reads the boundaries in place, from the binary, instead of expanding them in memory.
static FINDER: LazyLock<EmbeddedFinder> = LazyLock::new(EmbeddedFinder::new);

/// The timezone of a country that has only one; otherwise the one at the coordinates of a city. `None` if it is not
/// certain: the coordinates of a whole country or region are those of its center, coordinates outside the country
/// contradict it, and Xinjiang uses Beijing's time and its own side by side.
pub(crate) fn find(fields: &Fields<'_>) -> Option<&'static str> {
    let country = fields.country?.code;
    match country::timezones(country) {
        [only] => Some(only),
        candidates => {
            let (latitude, longitude) = fields.coordinates.filter(|_| fields.city.is_some())?;
            let found = FINDER.get_tz_name(longitude, latitude);
            let zone = candidates.iter().find(|zone| **zone == found)?;
            // `get_tz_names` returns all overlapping timezones, but takes ten times as long as `get_tz_name`.
            let is_shared = country == OVERLAPPING && FINDER.get_tz_names(longitude, latitude).len() > 1;
            (!is_shared).then_some(zone)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timezone(country: &str, city: Option<&str>, coordinates: Option<(f64, f64)>) -> Option<&'static str> {
        find(&Fields { country: country::find(country), city, coordinates, ..Fields::default() })
    }

    #[test]
    fn country_with_one_timezone_needs_no_coordinates() {
        for (country, zone) in [
            ("FR", "Europe/Paris"),
            ("DE", "Europe/Berlin"),
            ("JP", "Asia/Tokyo"),
            ("XK", "Europe/Belgrade"),
            ("IN", "Asia/Kolkata"),
        ] {
            assert_eq!(timezone(country, None, None), Some(zone));
            assert_eq!(timezone(country, None, Some((0.0, 0.0))), Some(zone));
        }
    }

    #[test]
    fn coordinates_of_a_city_decide_between_timezones() {
        for (country, city, point, zone) in [
            ("US", "New York", (40.7128, -74.006), "America/New_York"),
            ("US", "Mountain View", (37.422, -122.085), "America/Los_Angeles"),
            ("US", "Phoenix", (33.4484, -112.074), "America/Phoenix"),
            ("ES", "Las Palmas", (28.1235, -15.4363), "Atlantic/Canary"),
            ("BR", "Manaus", (-3.119, -60.0217), "America/Manaus"),
            ("AU", "Broken Hill", (-31.95, 141.4333), "Australia/Broken_Hill"),
        ] {
            assert_eq!(timezone(country, Some(city), Some(point)), Some(zone), "{city}");
        }
    }

    #[test]
    fn uncertain_timezone_is_none() {
        let kansas = Some((37.751, -97.822));
        assert_eq!(timezone("US", Some("x"), kansas), Some("America/Chicago"));
        assert_eq!(timezone("US", None, kansas), None, "the center of a country");
        assert_eq!(timezone("US", Some("x"), None), None, "no coordinates");
        assert_eq!(timezone("US", Some("x"), Some((52.52, 13.405))), None, "in another country");
        assert_eq!(timezone("US", Some("x"), Some((30.0, -45.0))), None, "in the ocean");
        assert_eq!(timezone("CN", Some("Urumqi"), Some((43.8, 87.6))), None, "two timezones are in use");
        assert_eq!(timezone("BV", Some("x"), Some((-54.4, 3.4))), None, "no timezones");
        assert_eq!(timezone("US", Some("x"), Some((f64::NAN, 400.0))), None);
    }
}
