//! Deserializes a map into an existing value: skips unknown keys and accepts any other type in place of a map.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::scalar::Scalar;

/// A value that is filled from the entries of a map.
pub(super) trait FromMap<'a> {
    /// Reads the value if `key` is known. Returns false if it is not; the caller then skips the value.
    fn read_entry<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error>;

    /// Sets a scalar found in place of a map: in flat layouts `city` is a string.
    fn set_scalar(&mut self, _scalar: Scalar<'a>) {}
}

/// Deserializes into an existing value, which avoids a copy and a `Default` per level.
pub(super) struct MapSeed<'s, T> {
    target: &'s mut T,
    /// Whether the value is an element of a list. Lists inside lists are skipped, not decoded, so that a
    /// crafted file can't overflow the stack.
    in_list: bool,
}

impl<'s, T> MapSeed<'s, T> {
    pub(super) fn new(target: &'s mut T) -> Self {
        MapSeed { target, in_list: false }
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

impl<'de, T: FromMap<'de>> DeserializeSeed<'de> for MapSeed<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: FromMap<'de>> Visitor<'de> for MapSeed<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            if !self.target.read_entry(key, &mut map)? {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
    /// Uses the first element of a list: subdivisions are sorted from largest to smallest.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if !self.in_list {
            seq.next_element_seed(MapSeed { target: self.target, in_list: true })?;
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<(), E> {
        self.target.set_scalar(Scalar::Text(text));
        Ok(())
    }
    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.target.set_scalar(Scalar::Unsigned(number));
        Ok(())
    }
    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.target.set_scalar(Scalar::Signed(number));
        Ok(())
    }
    fn visit_u128<E>(self, _: u128) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_bytes<E>(self, _: &[u8]) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}
