//! A leaf value of a record. Converts between types: one provider stores as a string what another stores as a number or
//! boolean.

use std::borrow::Cow;

/// One leaf value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Scalar<'a> {
    Text(&'a str),
    Unsigned(u64),
    Signed(i64),
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
            Scalar::Unsigned(number) => Some(Cow::Owned(number.to_string())),
            Scalar::Signed(number) => Some(Cow::Owned(number.to_string())),
            other => other.text().map(Cow::Borrowed),
        }
    }

    pub(crate) fn number(self) -> Option<f64> {
        match self {
            Scalar::Float(number) => Some(number),
            Scalar::Unsigned(number) => Some(number as f64),
            Scalar::Signed(number) => Some(number as f64),
            other => other.text()?.parse().ok(),
        }
    }

    /// An AS number: 174, "174" or "AS174". 0 is reserved and yields `None`.
    pub(crate) fn asn(self) -> Option<u32> {
        let number = match self {
            Scalar::Unsigned(number) => u32::try_from(number).ok()?,
            Scalar::Signed(number) => u32::try_from(number).ok()?,
            other => strip_as_prefix(other.text()?).parse().ok()?,
        };
        (number != 0).then_some(number)
    }

    pub(crate) fn flag(self) -> Option<bool> {
        match self {
            Scalar::Bool(flag) => Some(flag),
            Scalar::Unsigned(number) => Some(number != 0),
            Scalar::Signed(number) => Some(number != 0),
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
pub(crate) fn widen(value: f32) -> f64 {
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
        for value in [
            Scalar::Text("AS174"),
            Scalar::Text("as174"),
            Scalar::Text("174"),
            Scalar::Unsigned(174),
            Scalar::Signed(174),
        ] {
            assert_eq!(value.asn(), Some(174), "{value:?}");
        }
        for value in [
            Scalar::Text("AS"),
            Scalar::Text("é"),
            Scalar::Text(""),
            Scalar::Unsigned(0),
            Scalar::Signed(-1),
            Scalar::Absent,
            Scalar::Unsigned(1 << 40),
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
        assert_eq!(Scalar::Unsigned(10115).text_or_integer().as_deref(), Some("10115"));
    }
}
