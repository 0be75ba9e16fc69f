//! One database record as stored: reads the fields of all supported layouts in one pass.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A field that several layouts have in common. `Section::entry` lists its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    /// In flat layouts, the code or, next to a `CountryCode`, the name. MaxMind and DB-IP have a map instead.
    Country,
    CountryCode,
    RegisteredCountryCode,
    /// The name. In IPinfo's extended layout, the code.
    Region,
    /// Only in IPinfo's extended layout.
    RegionName,
    RegionCode,
    City,
    PostalCode,
    Latitude,
    Longitude,
    Timezone,
    Asn,
    AsOrg,
    Isp,
    Organization,
    /// Of the AS in files with AS numbers; otherwise of anything, such as a mobile network.
    Name,
    /// The kind of network: "hosting", "isp" and others.
    Type,
    AsType,
    Anonymous,
    Vpn,
    PublicProxy,
    ResidentialProxy,
    Tor,
    Relay,
    /// The service of a residential proxy (MaxMind).
    ProxyProvider,
    /// How often a residential proxy was seen (IPinfo).
    ProxyDays,
    HostingProvider,
    Hosting,
}

const FIELDS: usize = Field::Hosting as usize + 1;

#[derive(Debug, Default)]
pub(crate) struct MmdbRecord<'a>([Scalar<'a>; FIELDS]);

impl<'a> MmdbRecord<'a> {
    pub(crate) fn get(&self, field: Field) -> Scalar<'a> {
        self.0[field as usize]
    }

    pub(crate) fn read<D: Deserializer<'a>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        let entry = Entry { field: None, map: Some(Section::Root) };
        deserializer.deserialize_map(Value { record: self, entry, in_list: false })
    }
}

/// A map of a record.
#[derive(Clone, Copy)]
enum Section {
    Root,
    Country,
    /// MaxMind's country of the network's owner.
    RegisteredCountry,
    /// The largest subdivision, which is the first in the file's list.
    Region,
    Postal,
    Location,
    /// MaxMind's map for the keys of the network, which other layouts have at the top level.
    Traits,
    /// A map of names by language.
    Names(Field),
    /// A map of which only the names are used.
    Named(Field),
}

/// What a key stands for: the field that a scalar sets, and the section that a map is read as.
#[derive(Clone, Copy)]
struct Entry {
    field: Option<Field>,
    map: Option<Section>,
}

impl Section {
    /// Returns what `key` stands for in this section. `None` if it is unknown.
    fn entry(self, key: &[u8]) -> Option<Entry> {
        let scalar = |field| Some(Entry { field: Some(field), map: None });
        let map = |map| Some(Entry { field: None, map: Some(map) });
        match (self, key) {
            (Self::Root, _) => root_entry(key),
            (Self::Traits, _) => network_field(key).and_then(scalar),
            (Self::Named(field), b"names") => map(Self::Names(field)),
            (Self::Names(field), b"en") => scalar(field),
            (Self::Country, b"iso_code" | b"code") => scalar(Field::CountryCode),
            (Self::RegisteredCountry, b"iso_code") => scalar(Field::RegisteredCountryCode),
            (Self::Region, b"iso_code" | b"code") => scalar(Field::RegionCode),
            (Self::Region, b"names") => map(Self::Names(Field::Region)),
            (Self::Postal, b"code" | b"iso_code") => scalar(Field::PostalCode),
            (Self::Location, b"latitude") => scalar(Field::Latitude),
            (Self::Location, b"longitude") => scalar(Field::Longitude),
            (Self::Location, b"time_zone") => scalar(Field::Timezone),
            _ => None,
        }
    }
}

/// The top level: MaxMind's maps, and the keys of the flat layouts (IPinfo, ip-location-db).
fn root_entry(key: &[u8]) -> Option<Entry> {
    let (field, map) = match key {
        b"city" => (Some(Field::City), Some(Section::Named(Field::City))),
        b"country" => (Some(Field::Country), Some(Section::Country)),
        b"registered_country" => (None, Some(Section::RegisteredCountry)),
        b"location" => (None, Some(Section::Location)),
        b"postal" => (Some(Field::PostalCode), Some(Section::Postal)),
        b"subdivisions" => (None, Some(Section::Region)),
        b"traits" => (None, Some(Section::Traits)),
        b"country_code" => (Some(Field::CountryCode), None),
        b"region" | b"state1" => (Some(Field::Region), None),
        b"region_name" => (Some(Field::RegionName), None),
        b"region_code" => (Some(Field::RegionCode), None),
        b"latitude" | b"lat" => (Some(Field::Latitude), None),
        b"longitude" | b"lng" => (Some(Field::Longitude), None),
        b"timezone" => (Some(Field::Timezone), None),
        b"postal_code" | b"postcode" => (Some(Field::PostalCode), None),
        _ => (Some(network_field(key)?), None),
    };
    Some(Entry { field, map })
}

/// Operator and use of the network.
fn network_field(key: &[u8]) -> Option<Field> {
    Some(match key {
        b"autonomous_system_number" | b"asn" => Field::Asn,
        b"autonomous_system_organization" | b"as_name" => Field::AsOrg,
        b"isp" => Field::Isp,
        b"organization" => Field::Organization,
        b"name" => Field::Name,
        b"type" => Field::Type,
        b"as_type" => Field::AsType,
        b"is_anonymous" => Field::Anonymous,
        b"is_anonymous_vpn" | b"is_vpn" | b"vpn" => Field::Vpn,
        b"is_public_proxy" | b"is_proxy" | b"proxy" => Field::PublicProxy,
        b"is_residential_proxy" | b"is_res_proxy" => Field::ResidentialProxy,
        b"is_tor_exit_node" | b"is_tor" | b"tor" => Field::Tor,
        b"is_relay" | b"relay" => Field::Relay,
        b"provider_name" => Field::ProxyProvider,
        b"percent_days_seen" => Field::ProxyDays,
        b"is_hosting_provider" => Field::HostingProvider,
        b"is_hosting" | b"hosting" => Field::Hosting,
        _ => return None,
    })
}

/// Reads one value into the record. A value of an unexpected type is skipped.
struct Value<'s, 'a> {
    record: &'s mut MmdbRecord<'a>,
    entry: Entry,
    /// Whether the value is an element of a list. Lists inside lists are skipped, not decoded, so that a
    /// crafted file can't overflow the stack.
    in_list: bool,
}

impl<'a> Value<'_, 'a> {
    fn set<E>(self, scalar: Scalar<'a>) -> Result<(), E> {
        if let Some(field) = self.entry.field {
            self.record.0[field as usize] = scalar;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = entries.next_key()? {
            match self.entry.map.and_then(|section| section.entry(key)) {
                Some(entry) => {
                    entries.next_value_seed(Value { record: self.record, entry, in_list: false })?;
                }
                None => _ = entries.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
    /// Uses the first element of a list: subdivisions are sorted from largest to smallest.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if self.entry.map.is_some() && !self.in_list {
            seq.next_element_seed(Value { in_list: true, ..self })?;
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<(), E> {
        self.set(Scalar::Text(text))
    }
    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.set(i64::try_from(number).map_or(Scalar::Absent, Scalar::Integer))
    }
    fn visit_u128<E>(self, number: u128) -> Result<(), E> {
        self.set(i64::try_from(number).map_or(Scalar::Absent, Scalar::Integer))
    }
    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.set(Scalar::Integer(number))
    }
    fn visit_f32<E>(self, number: f32) -> Result<(), E> {
        self.set(Scalar::Float(widen(number)))
    }
    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.set(Scalar::Float(number))
    }
    fn visit_bool<E>(self, flag: bool) -> Result<(), E> {
        self.set(Scalar::Bool(flag))
    }
    fn visit_bytes<E>(self, _: &[u8]) -> Result<(), E> {
        Ok(())
    }
}

/// A map key as bytes. Keys are only compared with known ones, so UTF-8 validation is not needed.
struct Key<'a>(&'a [u8]);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_borrowed_bytes<E>(self, key: &'de [u8]) -> Result<Key<'de>, E> {
        Ok(Key(key))
    }
    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
        Ok(Key(key.as_bytes()))
    }
}

/// A leaf value of a record. Converts between types: one provider stores as a string what another stores as a number or
/// boolean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Scalar<'a> {
    Text(&'a str),
    Integer(i64),
    Float(f64),
    Bool(bool),
    /// Missing, or of another type: a map, an array or bytes.
    #[default]
    Absent,
}

impl<'a> Scalar<'a> {
    /// A non-empty string. Flat databases store "" or "-" if there is no value.
    pub(crate) fn text(self) -> Option<&'a str> {
        match self {
            Scalar::Text(text) => Some(text.trim()).filter(|text| !matches!(*text, "" | "-")),
            _ => None,
        }
    }

    /// A string, or an integer as a string: some providers store postal codes as integers.
    pub(crate) fn text_or_integer(self) -> Option<Cow<'a, str>> {
        match self {
            Scalar::Integer(number) => Some(Cow::Owned(number.to_string())),
            other => other.text().map(Cow::Borrowed),
        }
    }

    pub(crate) fn number(self) -> Option<f64> {
        match self {
            Scalar::Float(number) => Some(number),
            Scalar::Integer(number) => Some(number as f64),
            other => other.text()?.parse().ok(),
        }
    }

    /// An AS number: 174, "174" or "AS174". 0 is reserved and yields `None`.
    pub(crate) fn asn(self) -> Option<u32> {
        let number = match self {
            Scalar::Integer(number) => u32::try_from(number).ok()?,
            other => strip_as_prefix(other.text()?).parse().ok()?,
        };
        (number != 0).then_some(number)
    }

    pub(crate) fn flag(self) -> Option<bool> {
        match self {
            Scalar::Bool(flag) => Some(flag),
            Scalar::Integer(number) => Some(number != 0),
            other => match other.text()? {
                "true" | "True" | "TRUE" | "1" => Some(true),
                "false" | "False" | "FALSE" | "0" => Some(false),
                _ => None,
            },
        }
    }
}

fn strip_as_prefix(text: &str) -> &str {
    match text.get(..2) {
        Some(prefix) if prefix.eq_ignore_ascii_case("AS") => &text[2..],
        _ => text,
    }
}

/// Converts to the f64 with the fewest decimals that rounds to this f32: 37.751, not 37.750999450683594.
fn widen(value: f32) -> f64 {
    let exact = f64::from(value);
    [1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7]
        .into_iter()
        .map(|scale| (exact * scale).round() / scale)
        .find(|rounded| *rounded as f32 == value)
        .unwrap_or(exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widened_float_keeps_its_decimals() {
        for (narrow, wide) in [(37.751_f32, 37.751), (-97.822, -97.822), (0.0, 0.0), (8.5, 8.5)] {
            assert_eq!(widen(narrow), wide);
        }
        assert_eq!(widen(139.69171).to_string(), "139.69171");
        assert!(widen(f32::NAN).is_nan());
    }

    #[test]
    fn as_number_is_read_in_every_format() {
        for value in [Scalar::Text("AS174"), Scalar::Text("as174"), Scalar::Text("174"), Scalar::Integer(174)]
        {
            assert_eq!(value.asn(), Some(174), "{value:?}");
        }
        for value in [
            Scalar::Text("AS"),
            Scalar::Text("é"),
            Scalar::Text(""),
            Scalar::Integer(0),
            Scalar::Integer(-1),
            Scalar::Absent,
            Scalar::Integer(1 << 40),
        ] {
            assert_eq!(value.asn(), None, "{value:?}");
        }
    }

    #[test]
    fn flags_and_numbers_are_read_from_strings() {
        assert_eq!(Scalar::Text("true").flag(), Some(true));
        assert_eq!(Scalar::Text("0").flag(), Some(false));
        assert_eq!(Scalar::Text("maybe").flag(), None);
        assert_eq!(Scalar::Text("52.52").number(), Some(52.52));
        assert_eq!(Scalar::Text("-").text(), None);
        assert_eq!(Scalar::Integer(10115).text_or_integer().as_deref(), Some("10115"));
    }
}
