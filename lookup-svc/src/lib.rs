//! lookup-svc: the public API. Tells a caller its own address, place, network and connection; holds no state.

pub mod api;
pub mod app;
pub mod body;
pub mod cli;
pub mod config;
pub mod fields;
pub mod geo;
pub mod geo_update;
mod json;
pub mod links;
pub mod lookup;
pub mod metrics;
pub mod pages;
pub mod router;
pub mod selftest;
