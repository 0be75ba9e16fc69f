//! Types of quota-svc's internal API, shared by server and client. Their doc comments are the descriptions in
//! `openapi/quota-svc.json`. dashboard-api uses some of the types too, so their descriptions are also in
//! `openapi/dashboard-api.json`. serde reads and writes the types; poem-openapi derives only their schemas.

#![warn(missing_docs)]

mod account;
mod charge;
mod key;
mod status;
mod transfer;

pub use account::{Account, AccountDeletion, AccountPage, Credential, NewAccount, NewSession, SetCredential};
pub use charge::{Charge, ChargeRequest, ChargeResponse, MAX_BATCH, Outcome, TRACE_LINKS, Verdict};
pub use key::{
    Actor, CreatedKey, DayUsage, Event, EventKind, EventList, KEYS_PER_ACCOUNT, Key, KeyList, KeyState,
    NewKey, Rename, Scope, SetDailyLimit, UnreadableKey, Usage,
};
pub use status::{Limits, Status};
pub use transfer::{ExportPage, ExportedAccount, ExportedKey, ImportReport, ImportRequest, LeftOut};
