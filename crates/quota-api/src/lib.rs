//! The model of accounts, keys and quotas: the types of quota-svc, of its internal API, command line and clients, and of
//! dashboard-api. serde reads and writes them, except charges and verdicts. Those of dashboard-api's
//! API have schemas, too, and their doc comments are the descriptions in `openapi/dashboard-api.json`.

mod account;
mod charge;
mod command;
pub mod invisible;
mod key;
mod notice;

pub use account::{
    Account, AccountAction, AccountChange, AccountDetails, AccountPage, Credential, ExportPage,
    ExportedAccount, ExportedKey, ImportReport, ImportRequest, LeftOut, NewAccount, NewSession, Overview,
    Role, SessionKind, SetCredential, Standing, StoredAccount, Suspension, UsageCount, is_affordable_hash,
};
pub use charge::{
    BATCH_TYPE, Charge, Exceeded, Limits, MAX_BATCH, Outcome, RateLimit, Status, TRACE_LINKS, Verdict,
    decode_charges, decode_verdicts, encode_charges, encode_verdicts, origin_hash,
};
pub use command::{Command, CommandRequest, KeyChange, RejectionCode};
pub use key::{
    Actor, CREATIONS_PER_DAY, CreatedKey, DEFAULT_OVERLAP, DayUsage, Event, EventKind, EventList,
    KEYS_PER_ACCOUNT, Key, KeyList, KeySettings, KeyState, MAX_OVERLAP, NewKey, OwnedKey, Rotation, Scope,
    SetDailyLimit, SettingsChange, SettingsError, StateChange, UnreadableKey, Usage, rfc3339,
};
pub use notice::{
    Channel, ClaimedNotice, Contact, ContactStatus, Delivery, Mail, Notice, NoticeKind, NoticeResult, Webhook,
};
pub use poem_openapi::types::MaybeUndefined;
