//! The operations of the internal API, and the checks of a request before them.

mod accounts;
pub mod body_limits;
mod charges;
mod context;
pub mod convert;
mod error;
mod examples;
mod guard;
mod keys;
mod transfer;

pub use accounts::AccountsApi;
pub use charges::ChargesApi;
pub use context::Context;
pub use examples::examples;
pub use guard::Guard;
pub use keys::KeysApi;
pub use transfer::TransferApi;

/// The `docs` field of errors: the OpenAPI document, which quota-svc itself serves.
pub(crate) const DOCS: &str = "/openapi.json";
