//! The operations of the internal API. [`router`](crate::router) lists them.

mod charges;
mod commands;
mod error;
mod guard;
mod reads;

use std::sync::Arc;

pub use error::ApiError;
pub use guard::Guard;
use quota_api::Limits;
pub use reads::{KeyQuery, PageQuery, reply};

use crate::accounts::Accounts;
use crate::metrics::Metrics;

/// For the `docs` field of errors: the internal API has no documentation for its clients, which are our own.
pub const NO_DOCS: &str = "";

pub struct Context {
    pub accounts: Arc<Accounts>,
    pub limits: Limits,
    pub metrics: Metrics,
}
