//! The quota rules and the stored data, independent of HTTP and of the store.

pub mod account;
pub mod change;
pub mod event;
pub mod id;
pub mod key;
pub mod notice;
pub mod record;
pub mod time;
pub mod transfer;
pub mod value;
pub mod verdict;
pub mod window;
