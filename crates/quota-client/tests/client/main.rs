//! The client against a real socket whose every answer the test decides.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod batching;
mod fake;
mod faults;
mod tracing_context;
