//! Tests of `geo-update` against well-behaved and faulty servers.

mod checksums;
mod credentials;
mod faults;
mod progress;
mod providers;
pub(crate) mod server;
mod support;
