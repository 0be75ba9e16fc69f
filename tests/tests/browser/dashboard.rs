//! Drives the dashboard and the public pages in a real browser, with the real services behind them.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod accessibility;
mod admin;
mod closing;
mod demo_to_resumed_key;
mod focus;
mod key_page;
mod keys;
mod loading;
mod pages;
mod phone;
mod public_pages;
mod refresh;
mod secret;
mod sign_in;
mod stack;
