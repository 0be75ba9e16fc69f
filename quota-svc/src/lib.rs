//! quota-svc: stores accounts and API keys, and checks and counts every request. The only service that accesses the
//! store.

pub mod accounts;
pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod denial_cache;
pub mod domain;
pub mod metrics;
pub mod router;
pub mod store;
