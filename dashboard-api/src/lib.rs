//! dashboard-api: accounts, sign-in and API keys, as a JSON API and as a web page.

pub mod accounts;
pub mod api;
pub mod app;
pub mod config;
pub mod password;
pub mod session;
pub mod set_password;
pub mod throttle;
