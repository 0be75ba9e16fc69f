//! dashboard-api: accounts, sign-in and API keys, as a JSON API and as a web page.

pub mod accounts;
pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod deadline;
pub mod error;
pub mod first_account;
pub mod mail;
pub mod notices;
pub mod page;
pub mod password;
pub mod password_commands;
pub mod password_link;
pub mod router;
pub mod session;
pub mod throttle;
