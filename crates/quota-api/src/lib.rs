//! The model of accounts, keys and quotas: the types of quota-svc, of its internal API, command line and clients, and of
//! dashboard-api. serde reads and writes them, except charges and verdicts, which `batch.rs` encodes. Those of dashboard-api's
//! API have schemas, too, and their doc comments are the descriptions in `openapi/dashboard-api.json`.

mod account;
mod batch;
mod charge;
mod command;
pub mod invisible;
mod key;
mod notice;
mod rejection;
mod transfer;

pub use account::{
    Account, AccountAction, AccountChange, AccountDetails, AccountPage, Credential, NewAccount, NewSession,
    Overview, Role, SessionKind, SetCredential, Standing, StoredAccount, Suspension, UsageCount,
    is_affordable_hash,
};
pub use batch::{BATCH_TYPE, MAX_BATCH, decode_charges, decode_verdicts, encode_charges, encode_verdicts};
pub use charge::{Charge, Exceeded, Limits, Outcome, RateLimit, Status, TRACE_LINKS, Verdict, origin_hash};
pub use command::{Command, CommandRequest, KeyCommand};
pub use key::{
    Actor, CREATIONS_PER_DAY, CreatedKey, DEFAULT_OVERLAP, DayUsage, Event, EventKind, EventList,
    KEYS_PER_ACCOUNT, Key, KeyList, KeySettings, KeyState, MAX_OVERLAP, NewKey, OwnedKey, Rotation, Scope,
    SetDailyLimit, SettingsChange, SettingsError, StateChange, UnreadableKey, Usage, rfc3339,
};
pub use notice::{
    Channel, ClaimedNotice, Contact, ContactStatus, Delivery, Mail, Notice, NoticeKind, NoticeResult, Webhook,
};
pub use poem_openapi::types::MaybeUndefined;
pub use rejection::RejectionCode;
pub use transfer::{ExportPage, ExportedAccount, ExportedKey, ImportReport, ImportRequest, LeftOut};
