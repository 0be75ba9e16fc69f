//! The data of one database about one address: reads the fields of all supported layouts in one pass, and converts them
//! into a common set.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::country::{self, Country};
use crate::location::compose_region_code;
use crate::timezone;

/// The data of one database about one address.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields<'a> {
    pub country: Option<&'static Country>,
    pub region: Option<&'a str>,
    /// As stored: "BE" or "DE-BE".
    pub region_code: Option<&'a str>,
    pub city: Option<&'a str>,
    pub postal_code: Option<Cow<'a, str>>,
    pub coordinates: Option<(f64, f64)>,
    pub timezone: Option<&'a str>,
    pub asn: Option<u32>,
    pub org: Option<&'a str>,
    pub proxy: bool,
    pub hosting: bool,
}

impl Fields<'_> {
    /// The region code of the database, if it has the form of one of this country.
    pub(crate) fn stored_region_code(&self) -> Option<String> {
        compose_region_code(self.country?.code, self.region_code?)
    }
}

/// Decodes into a local record and converts it by reference, because the record is too large to move.
impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut record = MmdbRecord::default();
        let entry = Entry { field: None, map: Some(Section::Root) };
        deserializer.deserialize_map(Value { record: &mut record, entry, in_list: false })?;
        Ok(convert(&record))
    }
}

fn convert<'a>(record: &MmdbRecord<'a>) -> Fields<'a> {
    let text = |field| record.get(field).text();
    let number = |field| record.get(field).number();
    let is_set = |field| record.get(field).flag() == Some(true);
    let (region, region_code) = match text(Field::RegionName) {
        Some(name) => (Some(name), text(Field::RegionCode).or(text(Field::Region))),
        None => (text(Field::Region), text(Field::RegionCode)),
    };
    let point = number(Field::Latitude).zip(number(Field::Longitude));
    let asn = record.get(Field::Asn).asn();
    let name = text(Field::Name).filter(|_| asn.is_some());
    // A list of residential proxies has no flags.
    let is_listed_proxy =
        text(Field::ProxyProvider).is_some() || number(Field::ProxyDays).is_some_and(|percent| percent > 0.0);
    let is_anonymizer = [Field::Vpn, Field::PublicProxy, Field::ResidentialProxy, Field::Tor, Field::Relay]
        .into_iter()
        .any(is_set);
    // MaxMind sets `is_anonymous` for hosting providers too, so together with `is_hosting_provider` it does not
    // indicate a proxy. IPinfo sets it only for networks that hide their users, with or without `is_hosting`.
    let is_hosting_provider = is_set(Field::HostingProvider);
    let is_anonymous = (is_set(Field::Anonymous) || is_listed_proxy) && !is_hosting_provider;
    let mut types = [Field::Type, Field::AsType].into_iter().filter_map(text);
    let has_hosting_type = types.any(|kind| kind.eq_ignore_ascii_case("hosting"));
    Fields {
        country: if is_about_as(record) { None } else { find_country(record) },
        region,
        region_code,
        city: text(Field::City),
        postal_code: record.get(Field::PostalCode).text_or_integer(),
        coordinates: point.filter(|at| on_earth(*at)).map(|at| (round(at.0), round(at.1))),
        timezone: text(Field::Timezone).filter(|name| timezone::is_identifier(name)),
        asn,
        org: [Field::AsOrg, Field::Isp, Field::Organization].into_iter().find_map(text).or(name),
        proxy: is_anonymizer || is_anonymous,
        hosting: is_hosting_provider || is_set(Field::Hosting) || has_hosting_type,
    }
}

/// Whether a record describes an AS, as in IPinfo's ASN database: its country is that of the holder, not that of the
/// address. A record with `as_name`, a city or a region describes an address.
fn is_about_as(record: &MmdbRecord<'_>) -> bool {
    let has = |field| record.get(field).text().is_some();
    let about_address = [Field::AsOrg, Field::City, Field::Region].into_iter().any(has);
    record.get(Field::Asn).asn().is_some() && has(Field::Name) && !about_address
}

/// In flat layouts, a `country` next to a `country_code` is the name (IPinfo Lite and Core). Otherwise `country` is the
/// code (IPinfo's older country_asn and location files). MaxMind's `registered_country`, the country of the network's
/// owner, is used only if the country of the address is missing.
fn find_country(record: &MmdbRecord<'_>) -> Option<&'static Country> {
    let codes = [Field::CountryCode, Field::Country, Field::RegisteredCountryCode];
    country::find(codes.into_iter().find_map(|field| record.get(field).text())?)
}

/// Rounds to six decimal places (11 cm): some providers store 38.705799999999996 for 38.7058.
fn round(degrees: f64) -> f64 {
    // The sum turns -0.0 into 0.0.
    (degrees * 1e6).round() / 1e6 + 0.0
}

fn on_earth((latitude, longitude): (f64, f64)) -> bool {
    // False for NaN.
    latitude.abs() <= 90.0 && longitude.abs() <= 180.0
}

/// A field that several layouts have in common. `Section::entry` lists its keys.
#[derive(Clone, Copy, Debug)]
enum Field {
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
struct MmdbRecord<'a>([Scalar<'a>; FIELDS]);

impl<'a> MmdbRecord<'a> {
    fn get(&self, field: Field) -> Scalar<'a> {
        self.0[field as usize]
    }
}

/// A map of a record.
#[derive(Clone, Copy)]
enum Section {
    Root,
    /// A code and a map of names, for the fields that are used of them. Of a list, such as that of the subdivisions, only
    /// the first is read.
    Place {
        code: Option<Field>,
        name: Option<Field>,
    },
    /// A map of names by language.
    Names(Field),
    Location,
    /// MaxMind's map for the keys of the network, which other layouts have at the top level.
    Traits,
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
        let (field, map) = match (self, key) {
            (Self::Root, _) => return root_entry(key),
            (Self::Traits, _) => (network_field(key), None),
            (Self::Place { code, .. }, b"code" | b"iso_code") => (code, None),
            (Self::Place { name, .. }, b"names") => (None, name.map(Self::Names)),
            (Self::Names(field), b"en") => (Some(field), None),
            (Self::Location, b"latitude") => (Some(Field::Latitude), None),
            (Self::Location, b"longitude") => (Some(Field::Longitude), None),
            (Self::Location, b"time_zone") => (Some(Field::Timezone), None),
            _ => return None,
        };
        Some(Entry { field, map })
    }
}

/// The top level: MaxMind's maps, and the keys of the flat layouts (IPinfo, ip-location-db).
fn root_entry(key: &[u8]) -> Option<Entry> {
    let place = |code, name| Some(Section::Place { code, name });
    let (field, map) = match key {
        b"city" => (Some(Field::City), place(None, Some(Field::City))),
        b"country" => (Some(Field::Country), place(Some(Field::CountryCode), None)),
        // The country of the network's owner.
        b"registered_country" => (None, place(Some(Field::RegisteredCountryCode), None)),
        b"location" => (None, Some(Section::Location)),
        b"postal" => (Some(Field::PostalCode), place(Some(Field::PostalCode), None)),
        // From the largest to the smallest.
        b"subdivisions" => (None, place(Some(Field::RegionCode), Some(Field::Region))),
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
    /// Uses the first element of a list.
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
enum Scalar<'a> {
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
    fn text(self) -> Option<&'a str> {
        match self {
            Scalar::Text(text) => Some(text.trim()).filter(|text| !matches!(*text, "" | "-")),
            _ => None,
        }
    }

    /// A string, or an integer as a string: some providers store postal codes as integers.
    fn text_or_integer(self) -> Option<Cow<'a, str>> {
        match self {
            Scalar::Integer(number) => Some(Cow::Owned(number.to_string())),
            other => other.text().map(Cow::Borrowed),
        }
    }

    fn number(self) -> Option<f64> {
        match self {
            Scalar::Float(number) => Some(number),
            Scalar::Integer(number) => Some(number as f64),
            other => other.text()?.parse().ok(),
        }
    }

    /// An AS number: 174, "174" or "AS174". 0 is reserved and yields `None`.
    fn asn(self) -> Option<u32> {
        let number = match self {
            Scalar::Integer(number) => u32::try_from(number).ok()?,
            other => {
                let text = other.text()?;
                text.strip_prefix("AS").or(text.strip_prefix("as")).unwrap_or(text).parse().ok()?
            }
        };
        (number != 0).then_some(number)
    }

    fn flag(self) -> Option<bool> {
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
