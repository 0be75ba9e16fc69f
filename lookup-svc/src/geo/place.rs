//! Where an address is and who runs its network, borrowed from the loaded databases.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::{Serialize, Serializer};

/// Everything known about one address. Nothing is copied; it lives as long as the look-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place<'a> {
    /// City name.
    pub city: Option<&'a str>,
    /// Region or state name.
    pub region: Option<&'a str>,
    /// Full ISO 3166-2 code ("DE-BE").
    pub region_code: Option<RegionCode>,
    /// ISO 3166-1 alpha-2 code.
    pub country: Option<&'a str>,
    /// English name of the country.
    pub country_name: Option<&'a str>,
    /// Two-letter continent code.
    pub continent: Option<&'a str>,
    /// Degrees north.
    pub latitude: Option<f64>,
    /// Degrees east.
    pub longitude: Option<f64>,
    /// IANA identifier.
    pub timezone: Option<&'a str>,
    /// Seconds east of UTC at the moment of the look-up.
    pub timezone_offset: Option<i32>,
    /// Postal code; owned only where a database stores it as a number.
    pub postal_code: Option<Cow<'a, str>>,
    /// Autonomous system number.
    pub asn: Option<u32>,
    /// Operator of the network.
    pub org: Option<&'a str>,
    /// "AS64500 Example", where both parts are known.
    pub as_text: Option<AsText<'a>>,
    /// Whether the place is in the European Union.
    pub is_eu: Option<bool>,
    /// ISO 4217 code of the country.
    pub currency: Option<&'a str>,
    /// Whether this is a known VPN or proxy network; none where the network is unknown.
    pub proxy: Option<bool>,
    /// Whether this is a known hosting or cloud network; none where the network is unknown.
    pub hosting: Option<bool>,
}

/// An ISO 3166-2 code, composed without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RegionCode {
    bytes: [u8; 6],
    len: u8,
}

impl RegionCode {
    /// Joins the country and the subdivision's part; also takes an already complete code.
    /// Numbers of another standard (FIPS, GeoNames) and the like are no code.
    pub(super) fn compose(country: &str, part: &str) -> Option<Self> {
        let part = match part.split_once('-') {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case(country) => rest,
            Some(_) => return None,
            None => part,
        };
        let fits = country.len() == 2 && matches!(part.len(), 1..=3);
        if !fits || !part.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let mut bytes = [0; 6];
        bytes[..2].copy_from_slice(country.as_bytes());
        bytes[2] = b'-';
        bytes[3..3 + part.len()].copy_from_slice(part.as_bytes());
        bytes.make_ascii_uppercase();
        Some(RegionCode { bytes, len: 3 + part.len() as u8 })
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl Deref for RegionCode {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for RegionCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for RegionCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// "AS", the number, a space, the organisation: written where it is needed, never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsText<'a> {
    /// The number.
    pub asn: u32,
    /// The organisation.
    pub org: &'a str,
}

impl fmt::Display for AsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AS{} {}", self.asn, self.org)
    }
}

impl Serialize for AsText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_codes_are_full_iso_3166_2() {
        for (part, code) in
            [("BE", Some("DE-BE")), ("DE-BE", Some("DE-BE")), ("1", Some("DE-1")), ("eng", Some("DE-ENG"))]
        {
            assert_eq!(RegionCode::compose("DE", part).as_deref(), code, "{part}");
        }
        for part in ["", "FR-75", "ABCD", "B E", "é", "DE-", "DE-BE-1"] {
            assert_eq!(RegionCode::compose("DE", part), None, "{part}");
        }
    }

    #[test]
    fn as_text_has_the_form_of_the_specification() {
        let text = AsText { asn: 64500, org: "Example" };
        assert_eq!(text.to_string(), "AS64500 Example");
        assert_eq!(serde_json::to_string(&text).expect("serialises"), "\"AS64500 Example\"");
    }
}
