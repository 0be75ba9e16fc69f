//! Where we are: IATA codes and the rules that turn a node's zone into one.

use std::collections::BTreeMap;
use std::fmt;

/// A data centre's IATA code: exactly three capital letters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Iata([u8; 3]);

impl Iata {
    /// Reads `FRA`; anything but three capital letters is none.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let code: [u8; 3] = text.try_into().ok()?;
        code.iter().all(u8::is_ascii_uppercase).then_some(Self(code))
    }

    /// Reads `FRA`, or the end of Cloudflare's Cf-Ray form `230b030023ae2822-FRA`.
    #[must_use]
    pub fn parse_ray(text: &[u8]) -> Option<Self> {
        let Some(dash) = text.iter().rposition(|b| *b == b'-') else {
            return Self::parse(text);
        };
        let (ray, code) = (&text[..dash], &text[dash + 1..]);
        let hex = !ray.is_empty() && ray.iter().all(u8::is_ascii_hexdigit);
        hex.then(|| Self::parse(code)).flatten()
    }

    /// The code as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("three ASCII letters by construction")
    }
}

impl fmt::Display for Iata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Iata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The map from a zone or a region to a code.
pub(crate) type ColoMap = BTreeMap<String, Iata>;

/// Looks a zone up, then the region that its name contains: `eu-central-1a` lies in `eu-central-1`, `europe-west3-b` in `europe-west3`.
pub(crate) fn in_zone(map: &ColoMap, zone: &str) -> Option<Iata> {
    let aws = zone.strip_suffix(|c: char| c.is_ascii_lowercase());
    let aws = aws.filter(|region| region.ends_with(|c: char| c.is_ascii_digit()));
    let dashed = zone.rsplit_once('-').map(|(region, _)| region);
    let names = [Some(zone), aws, dashed];
    names.into_iter().flatten().find_map(|name| map.get(name)).copied()
}

/// Reads a node's label: a zone of the map, or the code itself.
pub(crate) fn of_label(map: &ColoMap, value: &str) -> Option<Iata> {
    in_zone(map, value).or_else(|| Iata::parse(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Option<Iata> {
        Iata::parse(text.as_bytes())
    }

    #[test]
    fn a_code_is_three_capitals_or_the_end_of_a_ray() {
        for text in ["FRA", "230b030023ae2822-FRA", "0-FRA"] {
            assert_eq!(Iata::parse_ray(text.as_bytes()), code("FRA"), "{text:?}");
        }
        for text in [
            "",
            "-",
            "fra",
            "FR",
            "FRAX",
            "F1A",
            "-FRA",
            "xyz-FRA",
            "230b-fra",
            "230b-FRA-",
            "a-b-FRA",
            "FRA-230b",
            "FR\u{c4}",
        ] {
            assert_eq!(Iata::parse_ray(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_zone_is_found_by_itself_before_its_region() {
        let entries = [
            ("eu-central-1", "FRA"),
            ("eu-central-1b", "MUC"),
            ("europe-west3", "HHN"),
            ("westeurope", "AMS"),
        ];
        let map: ColoMap = entries.map(|(zone, iata)| (zone.to_owned(), code(iata).unwrap())).into();
        for (zone, want) in [
            ("eu-central-1a", "FRA"),
            ("eu-central-1b", "MUC"),
            ("eu-central-1", "FRA"),
            ("europe-west3-c", "HHN"),
            ("westeurope-2", "AMS"),
        ] {
            assert_eq!(in_zone(&map, zone), code(want), "{zone}");
        }
        for zone in ["", "eu-central-10", "eu-central-1-extra-a", "us-east-1a"] {
            assert_eq!(in_zone(&map, zone), None, "{zone}");
        }
        assert_eq!(of_label(&map, "TXL"), code("TXL"));
        assert_eq!(of_label(&map, "eu-central-1a"), code("FRA"));
        assert_eq!(of_label(&map, "somewhere"), None);
    }
}
