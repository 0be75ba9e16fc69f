//! Who the client is, and which headers are trusted.

mod client_info;
mod discovery;
mod properties;
mod spoofing;
