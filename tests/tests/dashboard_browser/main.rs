//! Drives the dashboard and the public pages in a real browser, with the real services behind them.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod accessibility;
mod browser;
mod demo_to_resumed_key;
mod keys;
mod pages;
mod phone;
mod public_pages;
mod sign_in;
mod stack;
