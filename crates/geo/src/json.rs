//! Writes JSON fields of the response body. Field names are literals that need no escaping, so `field!` joins each
//! with its punctuation at compile time.

use serde::Serialize;

/// Writes one field with a leading comma.
#[macro_export]
macro_rules! field {
    ($json:ident, $name:literal, $value:expr) => {{
        $json.extend_from_slice(concat!(",\"", $name, "\":").as_bytes());
        $crate::json::write_value($json, $value);
    }};
}

pub fn write_value(json: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(json, value).expect("serializing scalars to a Vec can't fail");
}
