//! dashboard-api as a process, before a real quota-svc on the embedded store.
#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod account;
mod document;
mod headers;
mod keys;
mod matrix;
mod operator;
mod rig;
mod throttling;
