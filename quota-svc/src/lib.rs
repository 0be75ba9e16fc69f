//! quota-svc: the only program that knows the store. Accounts, keys, their states and exact limits.

pub mod api;
pub mod app;
pub mod charging;
pub mod cli;
pub mod config;
pub mod denials;
pub mod domain;
pub mod metrics;
pub mod present;
pub mod store;
