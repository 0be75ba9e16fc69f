//! dashboard-api: sign-up, sign-in and the keys of an account, as a JSON API and as a page.

pub mod accounts;
pub mod api;
pub mod app;
pub mod config;
pub mod operator;
pub mod password;
pub mod session;
pub mod throttle;
