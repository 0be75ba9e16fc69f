//! The model of accounts, keys and quotas: the types of quota-svc, of its internal API, command line and clients, and of
//! dashboard-api. serde reads and writes them, except charges and verdicts. Those of dashboard-api's
//! API have schemas, too, and their doc comments are the descriptions in `openapi/dashboard-api.json`.

mod account;
mod charge;
mod command;
pub mod invisible;
mod key;
mod notice;

pub use account::*;
pub use charge::*;
pub use command::*;
pub use key::*;
pub use notice::*;
pub use poem_openapi::types::MaybeUndefined;
