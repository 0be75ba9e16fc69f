//! Client of quota-svc's internal API: one method per operation, and batched charges.
//!
//! [`wire`] has the request and response types, [`QuotaClient`] has one method per operation, and [`Charger`] batches
//! the charges of concurrent requests. No error of this crate contains an IP address, a login, a key or its digest.

#![warn(missing_docs)]

pub mod charges;
pub mod client;
pub mod error;
pub mod token;

pub use charges::{BatchConfig, CallOutcome, CallReport, ChargeError, Charger, Observer};
pub use client::QuotaClient;
pub use error::ClientError;
/// Request and response types of the internal API.
pub use quota_api as wire;
pub use token::{QuotaToken, TokenError};
