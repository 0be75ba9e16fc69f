//! dashboard-api as a process, with a real quota-svc on the embedded store.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod account;
mod deadline;
mod document;
mod first_account;
mod harness;
mod headers;
mod keys;
mod mail;
mod matrix;
mod page;
mod password_link;
mod quota;
mod set_password;
mod throttling;
mod webhook;
mod webhook_dns;
