//! What quota-svc knows, free of HTTP and of any store: identities, key records, judging, verdicts.

pub mod account;
pub mod event;
pub mod id;
pub mod key;
pub mod limits;
pub mod record;
pub mod time;
pub mod verdict;
pub mod window;
