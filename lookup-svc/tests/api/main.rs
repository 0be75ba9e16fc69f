//! The whole service on a real port, against a stand-in for quota-svc.
#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod cors;
mod crowd;
mod document;
mod errors;
mod keys;
mod outage;
mod pages;
mod privacy;
mod rig;
mod scopes;
mod selftest;
