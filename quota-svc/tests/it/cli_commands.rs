//! Runs the commands as processes against a running quota-svc.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod accounts;
mod cli_harness;
mod faults;
mod key_changes;
mod keys;
mod transfer;
mod unreadable;
