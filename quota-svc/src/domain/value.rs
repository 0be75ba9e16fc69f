//! An account as a value: all that is stored about an account and its keys, but for events. Every rule about accounts and keys is
//! a method of it.
//!
//! A method that returns a rejection may have changed the value: its caller drops it.

mod keys;
mod notices;

use std::collections::{BTreeMap, BTreeSet};

pub use keys::KeyDraft;
use quota_api::{
    AccountAction, AccountChange, Actor, Contact, Event, EventKind, ImportReport, NewSession, Rejection,
    SessionKind, SetCredential, StoredAccount, UnreadableKey,
};
use serde::{Deserialize, Serialize};

use super::account::{LINK_REQUEST_INTERVAL_MS, MAX_LINKS, MAX_SESSIONS, change_standing, to_json};
use super::event::with_actor;
use super::id::{AccountId, KeyId};
use super::key::{KeyMeta, StoredKey};
use super::notice::{Announcement, Outbox};
use super::record::{account_of, decode};
use super::transfer::ImportAccount;

/// Which account to load: by its ID, or by that of one of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Account(AccountId),
    Key(KeyId),
}

/// Drawn by each commit, so an account that was deleted and created again has another one.
pub type Version = [u8; 8];

/// An account as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    pub id: AccountId,
    /// `None`: there is no such account.
    pub version: Option<Version>,
    /// The parts of the account by their names: [`row::ACCOUNT`], [`row::SESSIONS`], [`row::OUTBOX`], [`row::CREATIONS`], and one
    /// per key.
    pub rows: BTreeMap<String, Vec<u8>>,
    /// The records of its keys, and of other keys that were asked for. Empty for one that can't be read at all; a missing one
    /// is not in the map.
    pub records: BTreeMap<KeyId, Vec<u8>>,
    /// The store's time, ms.
    pub now: i64,
}

impl Loaded {
    /// The keys of the account, readable or not: those with a row, and those whose record names the account.
    pub fn keys(&self) -> BTreeSet<KeyId> {
        let rows = self.rows.keys().filter_map(|name| row::key_of(name));
        let is_own = |record: &[u8]| account_of(record) == Some(self.id);
        let records = self.records.iter().filter(|(_, record)| is_own(record)).map(|(id, _)| *id);
        rows.chain(records).collect()
    }
}

/// The names of rows.
pub mod row {
    use super::KeyId;

    pub const ACCOUNT: &str = "account";
    pub const SESSIONS: &str = "sessions";
    pub const OUTBOX: &str = "outbox";
    pub const CREATIONS: &str = "creations";

    /// The row with a key's metadata.
    pub fn key(id: KeyId) -> String {
        format!("k:{id}")
    }

    /// The key whose metadata this row has.
    pub fn key_of(name: &str) -> Option<KeyId> {
        KeyId::from_hex(name.strip_prefix("k:")?).ok()
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct AccountValue {
    pub account: StoredAccount,
    /// By the SHA-256 of the session ID or link token.
    pub sessions: BTreeMap<String, StoredSession>,
    pub outbox: Outbox,
    /// The last day on which a key was created, and how many were; without those of the operator.
    pub creations: (u32, u32),
    pub keys: BTreeMap<KeyId, Result<StoredKey, UnreadableKey>>,
    /// Events of keys that the next commit adds, oldest first.
    pub new_events: Vec<(KeyId, Event)>,
    /// The announcement of which this change makes notices.
    pub made: Option<Announcement>,
}

/// Ordered by which is replaced first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoredSession {
    pub kind: SessionKind,
    /// ms.
    pub expires_at: i64,
}

impl AccountValue {
    /// `None` if there is no such account.
    pub fn decode(loaded: &Loaded) -> Result<Option<Self>, Rejection> {
        if loaded.version.is_none() {
            return Ok(None);
        }
        match Self::from_rows(loaded) {
            Ok(value) if value.id() == loaded.id => Ok(Some(value)),
            _ => Err(Rejection::UnreadableAccount { id: loaded.id.to_string() }),
        }
    }

    fn from_rows(loaded: &Loaded) -> serde_json::Result<Self> {
        let part = |name, missing: &'static [u8]| loaded.rows.get(name).map_or(missing, Vec::as_slice);
        let key = |id| {
            let meta = loaded.rows.get(&row::key(id)).and_then(|row| KeyMeta::from_json(row, id, loaded.id));
            let record = loaded.records.get(&id).map_or(&[][..], Vec::as_slice);
            let (meta, reason) = match (meta, decode(record)) {
                (Some(meta), Ok(record)) if record.account == loaded.id => {
                    return (id, Ok(StoredKey { meta, record }));
                }
                (None, _) => (None, "its metadata is missing or invalid".to_owned()),
                (meta, Ok(_)) => (meta, "its record names another account".to_owned()),
                (meta, Err(error)) => (meta, error.to_string()),
            };
            let (name, hint) = meta.map(|meta| (meta.settings.name, meta.hint)).unzip();
            (id, Err(UnreadableKey { id: id.to_string(), name, hint, reason }))
        };
        Ok(Self {
            sessions: serde_json::from_slice(part(row::SESSIONS, b"{}"))?,
            creations: serde_json::from_slice(part(row::CREATIONS, b"[0,0]"))?,
            // Damaged notices are not delivered; all else goes on.
            outbox: Outbox::decode(part(row::OUTBOX, b"{}")).unwrap_or_default(),
            keys: loaded.keys().into_iter().map(key).collect(),
            ..Self::new(serde_json::from_slice(part(row::ACCOUNT, b""))?)
        })
    }

    /// The rows of this value, without those of unreadable keys. Empty parts have none.
    pub(super) fn rows(&self) -> BTreeMap<String, Vec<u8>> {
        let sessions = (!self.sessions.is_empty()).then(|| (row::SESSIONS, to_json(&self.sessions)));
        let outbox = (self.outbox != Outbox::default()).then(|| (row::OUTBOX, to_json(&self.outbox)));
        let creations = (self.creations.1 > 0).then(|| (row::CREATIONS, to_json(&self.creations)));
        let account = [(row::ACCOUNT, to_json(&self.account))];
        let parts = account.into_iter().chain(sessions).chain(outbox).chain(creations);
        let keys = self.keys.values().flatten().map(|key| (row::key(key.meta.id()), key.meta.to_json()));
        parts.map(|(name, json)| (name.to_owned(), json.into_bytes())).chain(keys).collect()
    }

    pub fn id(&self) -> AccountId {
        AccountId::of(&self.account.login)
    }

    pub fn create(slot: &mut Option<Self>, account: StoredAccount) -> Result<StoredAccount, Rejection> {
        if slot.is_some() {
            return Err(Rejection::AccountExists);
        }
        *slot = Some(Self::new(account.clone()));
        Ok(account)
    }

    fn new(account: StoredAccount) -> Self {
        Self { account, ..Self::default() }
    }

    /// Adds the account and the keys of an export that do not exist yet. `taken`: keys that other accounts have.
    pub fn import(
        slot: &mut Option<Self>,
        import: &ImportAccount,
        taken: &BTreeSet<KeyId>,
        now: i64,
    ) -> ImportReport {
        let mut report = ImportReport::default();
        *if slot.is_some() { &mut report.accounts_kept } else { &mut report.accounts_created } += 1;
        let value = slot.get_or_insert_with(|| Self::new(import.account.clone()));
        // Successors first.
        let (old, keys): (Vec<_>, Vec<_>) = import.keys.iter().partition(|key| key.meta.successor.is_some());
        for key in keys.into_iter().chain(old) {
            let id = key.meta.id();
            let count = if value.keys.contains_key(&id) {
                &mut report.keys_kept
            } else if !taken.contains(&id)
                && value.add_key(key.clone(), EventKind::Imported, &Actor::Operator, now).is_ok()
            {
                &mut report.keys_created
            } else {
                &mut report.keys_refused
            };
            *count += 1;
        }
        report
    }

    /// Fails if `expected` is given and is not the current credential.
    pub fn check_credential(&self, expected: Option<&str>) -> Result<(), Rejection> {
        let is_current = expected.is_none() || self.account.credential.as_deref() == expected;
        if is_current { Ok(()) } else { Err(Rejection::CredentialConflict) }
    }

    /// Applies a checked change. While the account is suspended, so are its keys; those that can't be read stay as they are.
    pub fn change(&mut self, change: &AccountChange, actor: &Actor, now: i64) {
        change_standing(&mut self.account.standing, change, actor, now);
        if change.action == AccountAction::EndSessions {
            self.sessions.clear();
        }
        let suspended = self.account.standing.suspension.is_some();
        for key in self.keys.values_mut().flatten() {
            if let Some((kind, text)) = key.set_suspended(suspended) {
                let reason = with_actor(&text, &Actor::System);
                self.new_events.push((key.meta.id(), Event { at: now, kind, reason }));
            }
        }
    }

    /// Replaces the credential and revokes sessions. Returns the new version.
    pub fn set_credential(&mut self, change: &SetCredential) -> Result<u32, Rejection> {
        if self.account.credential_version != change.expected_version {
            return Err(Rejection::CredentialConflict);
        }
        self.check_credential(change.expected_credential.as_deref())?;
        self.account.credential = Some(change.credential.clone());
        self.account.credential_version += 1;
        if change.keep_all_sessions != Some(true) {
            self.sessions.retain(|session, _| Some(session) == change.keep_session.as_ref());
        }
        Ok(self.account.credential_version)
    }

    pub fn set_contact(&mut self, expected: &Contact, contact: &Contact) -> Result<(), Rejection> {
        if self.account.contact != *expected {
            return Err(Rejection::ContactConflict);
        }
        self.account.contact = contact.clone();
        Ok(())
    }

    /// Adds a session or a link. If there are too many sessions, or too many links, revokes the one that expires first, of links a
    /// requested one if there is any. Returns `false` if a requested link is not added: another one is recent, or all links are of
    /// an admin or the operator.
    pub fn add_session(&mut self, session: &NewSession, now: i64) -> Result<bool, Rejection> {
        self.check_credential(session.expected_credential.as_deref())?;
        self.sessions.retain(|_, stored| stored.expires_at > now);
        let kind = session.kind;
        let new = StoredSession { kind, expires_at: now + i64::from(session.ttl_seconds) * 1000 };
        // All requested links have the same lifetime, so their expiries differ as their ages do.
        let is_recent = |stored: &StoredSession| {
            stored.kind == kind && stored.expires_at > new.expires_at - LINK_REQUEST_INTERVAL_MS
        };
        if kind == SessionKind::RequestedLink && self.sessions.values().any(is_recent) {
            return Ok(false);
        }
        let is_session = |kind| kind == SessionKind::Session;
        let places = if is_session(kind) { MAX_SESSIONS } else { MAX_LINKS };
        let alike = self.sessions.iter().filter(|(_, stored)| is_session(stored.kind) == is_session(kind));
        if alike.clone().count() >= places {
            let first = alike.filter(|(_, stored)| stored.kind <= kind).min_by_key(|(_, stored)| **stored);
            let Some(first) = first.map(|(id, _)| id.clone()) else { return Ok(false) };
            self.sessions.remove(&first);
        }
        self.sessions.insert(session.id_sha256.clone(), new);
        Ok(true)
    }

    pub fn has_session(&self, session: &str, now: i64) -> bool {
        self.sessions.get(session).is_some_and(|stored| stored.expires_at > now)
    }
}

#[cfg(test)]
pub(super) use notices::tests as notices_tests;
#[cfg(test)]
pub(super) mod tests;
