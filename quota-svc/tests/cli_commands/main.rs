//! The operator's commands as real processes against a real quota-svc.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod accounts;
mod desk;
mod faults;
mod key_changes;
mod keys;
mod transfer;
