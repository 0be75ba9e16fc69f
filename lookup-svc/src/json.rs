//! Writing an answer's fields by hand: their names need no escaping, so each is there with its punctuation before the
//! program runs.

use serde::Serialize;

/// Writes one field, with the comma before it.
macro_rules! field {
    ($json:ident, $name:literal, $value:expr) => {{
        $json.extend_from_slice(concat!(",\"", $name, "\":").as_bytes());
        $crate::json::write_value($json, $value);
    }};
}

pub(crate) use field;

/// Writes a value as JSON.
pub(crate) fn write_value(json: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(json, value).expect("strings, numbers and flags into memory");
}
