//! The pages in a real browser, with the real services behind them.

mod browser;
mod dashboard;
mod docs;
mod home;
mod single_machine;
