//! The quota rules and their data types, independent of HTTP and of the store.

pub mod account;
pub mod event;
pub mod id;
pub mod invisible;
pub mod key;
pub mod limits;
pub mod record;
pub mod time;
pub mod verdict;
pub mod window;
