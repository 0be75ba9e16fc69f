//! Tests of lookup-svc over HTTP, with a fake quota-svc.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

mod concurrency;
mod contract;
mod cors;
mod document;
mod errors;
mod harness;
mod home;
mod keys;
mod outage;
mod pages;
mod privacy;
mod rate_limit;
mod scopes;
mod selftest;
