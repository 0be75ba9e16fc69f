//! The model of accounts, keys and quotas: the types of quota-svc, of its internal API, command line and clients, and of
//! dashboard-api. Their doc comments are the descriptions in `openapi/quota-svc.json` and `openapi/dashboard-api.json`.
//! serde reads and writes the types; poem-openapi derives only their schemas. Charges and verdicts are the exception: `batch.rs`
//! encodes them, and they have no schemas.

mod account;
mod batch;
mod charge;
pub mod invisible;
mod key;
mod notice;
mod transfer;

pub use account::{
    Account, AccountAction, AccountChange, AccountDeletion, AccountPage, Credential, NewAccount, NewSession,
    Overview, Role, SetCredential, Standing, StoredAccount, Suspension, UsageCount,
};
pub use batch::{BATCH_TYPE, MAX_BATCH, decode_charges, decode_verdicts, encode_charges, encode_verdicts};
pub use charge::{Charge, Exceeded, Limits, Outcome, RateLimit, Status, TRACE_LINKS, Verdict, origin_hash};
pub use key::{
    Actor, CreatedKey, DEFAULT_OVERLAP, DayUsage, Event, EventKind, EventList, KEYS_PER_ACCOUNT, Key,
    KeyList, KeySettings, KeyState, MAX_OVERLAP, NewKey, OwnedKey, Rotation, Scope, SetDailyLimit,
    SettingsChange, SettingsError, StateChange, UnreadableKey, Usage, rfc3339,
};
pub use notice::{
    Channel, ClaimedNotice, ClaimedNotices, Contact, ContactStatus, Delivery, Mail, Notice, NoticeKind,
    NoticeResult, SetContact, Webhook,
};
pub use transfer::{ExportPage, ExportedAccount, ExportedKey, ImportReport, ImportRequest, LeftOut};
