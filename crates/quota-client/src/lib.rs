//! The one client of quota-svc's internal API: its vocabulary, its typed calls, and charges that travel together.
//!
//! [`wire`] is what travels, [`QuotaClient`] has one method for each operation, and [`Charger`] gathers the charges
//! of many callers into few calls. No error of this crate carries an address, a login, a key or its digest.

pub mod charges;
pub mod client;
pub mod error;
pub mod wire;

pub use charges::{BatchConfig, CallOutcome, CallReport, ChargeError, Charger, Observer};
pub use client::QuotaClient;
pub use error::ClientError;
