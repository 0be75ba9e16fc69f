//! Fills a value from a map key by key, skips unknown keys, and survives any other shape.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::scalar::Scalar;

/// A value that takes the map entries it knows.
pub(super) trait FromKeys<'a> {
    /// Reads the value of `key` if it is one of ours; false leaves it to be skipped.
    fn take<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error>;

    /// What stands here instead of a map (in flat layouts `city` is a text).
    fn take_scalar(&mut self, _scalar: Scalar<'a>) {}
}

/// Decodes into an existing value: no copy, and no `Default` per level.
pub(super) struct Into<'s, T> {
    target: &'s mut T,
    /// We are an entry of a list already: lists in lists are skipped, never descended into, or a
    /// crafted file could use up the stack.
    in_list: bool,
}

impl<'s, T> Into<'s, T> {
    pub(super) fn new(target: &'s mut T) -> Self {
        Into { target, in_list: false }
    }
}

/// A map's key as bytes: keys are compared with ours, they need not be checked as UTF-8.
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

impl<'de, T: FromKeys<'de>> DeserializeSeed<'de> for Into<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: FromKeys<'de>> Visitor<'de> for Into<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            if !self.target.take(key, &mut map)? {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
    /// Of a list the first entry counts: subdivisions come largest first.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if !self.in_list {
            seq.next_element_seed(Into { target: self.target, in_list: true })?;
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<(), E> {
        self.target.take_scalar(Scalar::Text(text));
        Ok(())
    }
    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.target.take_scalar(Scalar::Unsigned(number));
        Ok(())
    }
    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.target.take_scalar(Scalar::Signed(number));
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
