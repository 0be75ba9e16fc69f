//! The dashboard and the public pages in a real browser, with the real services behind them: what a person sees and
//! can do.
#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod accessible;
mod browser;
mod entrance;
mod keys;
mod looped;
mod narrow;
mod pages;
mod public;
mod stack;
