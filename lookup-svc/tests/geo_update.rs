//! Tests of `geo-update` against well-behaved and faulty servers.

#[path = "geo_update/checksums.rs"]
mod checksums;
#[path = "geo_update/credentials.rs"]
mod credentials;
#[path = "geo_update/faults.rs"]
mod faults;
#[path = "geo_update/progress.rs"]
mod progress;
#[path = "geo_update/providers.rs"]
mod providers;
#[path = "geo_update/server.rs"]
mod server;
#[path = "geo_update/support.rs"]
mod support;
