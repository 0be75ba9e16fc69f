//! Response fields. Each is defined once, by `fields!`: its name, its value and its documentation.

use serde::Serialize;

/// A JSON Schema type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    String,
    Integer,
    Number,
    Boolean,
}

// The names in JSON Schema.
base::names!(Type: String => "string", Integer => "integer", Number => "number", Boolean => "boolean");

/// The documentation of a field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    /// The type of a value that is not null.
    pub ty: Type,
    /// An example value, as JSON.
    pub example: &'static str,
    pub description: &'static str,
}

/// Defines fields: a table of their documentation, and a function that writes them as JSON, each with a leading comma.
/// Field names are literals that need no escaping, so each is joined with its punctuation at compile time.
#[macro_export]
macro_rules! fields {
    ($(#[$doc:meta])* $table:ident, $write:ident($source:ident: $Source:ty) {
        $($name:literal, $ty:ident, $value:expr, $example:literal, $description:literal;)*
    }) => {
        $(#[$doc])*
        pub const $table: &[$crate::Field] = &[$(
            $crate::Field { name: $name, ty: $crate::Type::$ty, example: $example, description: $description },
        )*];

        fn $write(json: &mut Vec<u8>, $source: $Source) {
            $(
                json.extend_from_slice(concat!(",\"", $name, "\":").as_bytes());
                $crate::write_value(json, &$value);
            )*
        }
    };
}

pub fn write_value(json: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(json, value).expect("serializing scalars to a Vec can't fail");
}
