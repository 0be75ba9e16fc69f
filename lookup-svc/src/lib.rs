//! lookup-svc: the public API. Returns the caller's IP address, location, network and connection details. Stateless.

pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod explain;
pub mod fields;
pub mod lookup;
pub mod metrics;
pub mod pages;
pub mod public_urls;
pub mod quota_status;
pub mod router;
pub mod selftest;
