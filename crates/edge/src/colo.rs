//! Colos: IATA codes of data centers, and the mapping from zones to codes.

use std::collections::BTreeMap;
use std::fmt;

/// IATA code of a data center: exactly three capital letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Iata([u8; 3]);

impl Iata {
    /// Parses three capital letters, such as `FRA`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let code: [u8; 3] = text.try_into().ok()?;
        code.iter().all(u8::is_ascii_uppercase).then_some(Self(code))
    }

    /// Parses `FRA`, or a value of Cloudflare's Cf-Ray header that ends with it: `230b030023ae2822-FRA`.
    pub fn parse_ray(text: &[u8]) -> Option<Self> {
        let Some(dash) = text.iter().rposition(|b| *b == b'-') else {
            return Self::parse(text);
        };
        let (ray, code) = (&text[..dash], &text[dash + 1..]);
        let hex = !ray.is_empty() && ray.iter().all(u8::is_ascii_hexdigit);
        hex.then(|| Self::parse(code)).flatten()
    }

    /// Returns the code as text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("three ASCII letters by construction")
    }
}

impl fmt::Display for Iata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// IATA codes by zone or region.
pub(crate) type ColoMap = BTreeMap<String, Iata>;

/// Looks up a zone, then the region in its name: `eu-central-1` for `eu-central-1a`, `europe-west3` for
/// `europe-west3-b`.
pub(crate) fn colo_of_zone(map: &ColoMap, zone: &str) -> Option<Iata> {
    let aws = zone.strip_suffix(|c: char| c.is_ascii_lowercase());
    let aws = aws.filter(|region| region.ends_with(|c: char| c.is_ascii_digit()));
    let dashed = zone.rsplit_once('-').map(|(region, _)| region);
    let names = [Some(zone), aws, dashed];
    names.into_iter().flatten().find_map(|name| map.get(name)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Option<Iata> {
        Iata::parse(text.as_bytes())
    }

    #[test]
    fn ray_parser_accepts_code_or_cf_ray_suffix() {
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
    fn zone_lookup_precedes_region_lookup() {
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
            assert_eq!(colo_of_zone(&map, zone), code(want), "{zone}");
        }
        for zone in ["", "eu-central-10", "eu-central-1-extra-a", "us-east-1a"] {
            assert_eq!(colo_of_zone(&map, zone), None, "{zone}");
        }
    }
}
