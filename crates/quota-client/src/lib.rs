//! Client of quota-svc's internal API. A charge counts one request against the quota of a key, or of the demo, and
//! returns whether the request is allowed.
//!
//! [`wire`] has the request and response types, [`QuotaClient`] has one method per operation, and [`Charger`] batches
//! the charges of concurrent requests. No error of this crate contains a client's IP address, a login, a key
//! or a key's digest.

pub mod charges;
pub mod client;
mod connections;
pub mod error;
pub mod token;

pub use charges::{
    BatchConfig, CallOutcome, CallReport, ChargeError, ChargeObserver, ChargeService, Charger,
};
pub use client::{COMMAND_TIMEOUT, QuotaClient};
pub use error::{ClientError, found};
/// Request and response types of the internal API.
pub use quota_api as wire;
pub use token::{QuotaToken, TokenError};
