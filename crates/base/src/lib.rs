//! Code that the crates share and that is not about HTTP: flags, files that are replaced atomically or watched, huge pages,
//! rate-limited log lines, names of values, and the progress of a command. Depends on no other crate of the workspace.

#![warn(missing_docs)]

/// Adds the names of an enum's values, which are the same in JSON, in stored data and in metrics. Of a long enum, each value
/// stands with its name.
#[macro_export]
macro_rules! names {
    ($(#[$meta:meta])* pub enum $type:ident { $($(#[$of_value:meta])* $value:ident = $name:literal),+ $(,)? }) => {
        $(#[$meta])*
        pub enum $type { $($(#[$of_value])* $value),+ }
        $crate::names!($type: $($value => $name),+);
    };
    ($type:ident: $($variant:ident => $name:literal),+ $(,)?) => {
        impl $type {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name of this value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

pub mod atomic_file;
pub mod flags;
pub mod huge_pages;
pub mod log_throttle;
pub mod progress;
pub mod watched_files;
