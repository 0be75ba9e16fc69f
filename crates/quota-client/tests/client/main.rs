//! Tests the client over a real socket. The test decides each response.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod admin;
mod batching;
mod fake;
mod faults;
mod trace_context;
