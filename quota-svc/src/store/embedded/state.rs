//! The state in memory. Charges change it directly; accounts and keys are changed through a [`Draft`], which is applied
//! when its rows are on disk.

mod accounts;
mod draft;
mod keys;
mod notices;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use draft::Draft;
use notices::Claim;
use quota_api::{Channel, Delivery, Event, EventKind, KeyState, Limits, Notice, StoredAccount};
use serde::{Deserialize, Serialize};

use super::store_file::{LoadedRow, OpenError, Row, RowWrite, StoreFile};
use crate::domain::event::{self, pause_reason};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::StoredKey;
use crate::domain::notice::Queue;
use crate::domain::record::{CORRECTED_FUTURE, RecordOutcome, encode};
use crate::domain::time::day_of;
use crate::domain::verdict::{ChargeGroup, GroupCounts, GroupOutcome, Subject};
use crate::store::UnreadableKey;

#[derive(Default)]
pub struct State {
    /// Ordered, so that a page of a listing need not sort all of them.
    accounts: BTreeMap<AccountId, AccountRow>,
    /// Accounts whose row can't be read. It is never rewritten.
    unreadable_accounts: BTreeSet<AccountId>,
    keys: HashMap<KeyId, KeyEntry>,
    /// Keys whose metadata or record can't be read. They are never rewritten.
    unreadable_keys: HashMap<KeyId, UnreadableEntry>,
    demo: Demo,
    /// Keys whose counters have changed since they were saved.
    dirty: Vec<KeyId>,
    /// Keys that were paused since the last save, with the line of the event.
    unsaved_pauses: Vec<(KeyId, String)>,
    /// Claims of notices, and attempts that wait for a retry. Only in memory: after a restart, all notices are due.
    claims: HashMap<Queue, Claim>,
    last_claim: u64,
}

/// An account with its sessions and keys. Stored as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccountRow {
    #[serde(flatten)]
    pub account: StoredAccount,
    /// SHA-256 of the session ID → expiry, ms.
    pub sessions: BTreeMap<String, i64>,
    pub keys: Vec<KeyId>,
    /// Notices that wait for their delivery, oldest first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notices: BTreeMap<Channel, Vec<Notice>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub last_deliveries: BTreeMap<String, Delivery>,
}

/// What charges have changed and a commit is about to save.
pub struct Unsaved {
    counters: Vec<KeyId>,
    pauses: Vec<(KeyId, String)>,
    demo: bool,
}

struct KeyEntry {
    key: StoredKey,
    /// Whether `State::dirty` contains this key.
    dirty: bool,
}

impl KeyEntry {
    /// Adds the key to `State::dirty`, unless it is there.
    fn mark_dirty(&mut self, id: KeyId, dirty: &mut Vec<KeyId>) {
        if !std::mem::replace(&mut self.dirty, true) {
            dirty.push(id);
        }
    }
}

struct UnreadableEntry {
    key: UnreadableKey,
    /// `None` if no account has the key.
    account: Option<AccountId>,
}

/// The demo's counter, and what else is neither an account's nor a key's.
#[derive(Default)]
struct Demo {
    day: u32,
    used: u32,
    /// When keys that expire were last looked for, ms.
    expiry_checked: i64,
    dirty: bool,
}

impl State {
    pub fn load(file: &StoreFile) -> Result<Self, OpenError> {
        let mut state = Self::default();
        file.load(|row| match row {
            LoadedRow::Account(id, row) => state.load_account(id, row),
            LoadedRow::Key(id, meta, record) => state.load_key(id, meta, record),
            LoadedRow::Demo(bytes) => state.demo = Demo::from_bytes(bytes),
        })?;
        state.load_missing_keys();
        Ok(state)
    }

    /// Charges a group. Its changes stay in memory until they are saved.
    pub fn charge(&mut self, group: &ChargeGroup, now: i64, limits: &Limits) -> GroupOutcome {
        match group.subject {
            Subject::Demo => GroupOutcome::Counted(self.demo.charge(group.count, now, limits)),
            Subject::Key(id) => self.charge_key(id, group, now, limits),
        }
    }

    fn charge_key(&mut self, id: KeyId, group: &ChargeGroup, now: i64, limits: &Limits) -> GroupOutcome {
        let Some(entry) = self.keys.get_mut(&id) else {
            let unreadable = self.unreadable_keys.contains_key(&id);
            return if unreadable { GroupOutcome::Unavailable } else { GroupOutcome::UnknownKey };
        };
        if let Some(denial) = entry.key.denial(now, group.origin) {
            return denial;
        }
        let record = &mut entry.key.record;
        if record.state == KeyState::Active && record.is_ahead_of(now) {
            tracing::warn!(key = %id, "{CORRECTED_FUTURE}");
        }
        let (mut allowed, mut over_daily, mut burst_exceeded) = (0, 0, false);
        for _ in 0..group.count {
            match record.charge(now, limits) {
                RecordOutcome::Allowed => allowed += 1,
                RecordOutcome::DailyExceeded => over_daily += 1,
                RecordOutcome::Inactive => return GroupOutcome::Inactive,
                RecordOutcome::Paused if allowed + over_daily == 0 => {
                    let unannounced = record.unannounced.then_some(record.paused_at);
                    return GroupOutcome::Paused { now, unannounced };
                }
                RecordOutcome::Paused => break,
                RecordOutcome::BurstExceeded => {
                    burst_exceeded = true;
                    break;
                }
            }
        }
        if burst_exceeded {
            let event = Event { at: now, kind: EventKind::Paused, reason: pause_reason(limits.burst) };
            self.unsaved_pauses.push((id, event::to_line(&event)));
        } else {
            entry.mark_dirty(id, &mut self.dirty);
        }
        let record = &entry.key.record;
        let limit = record.limit(limits);
        GroupOutcome::Counted(GroupCounts {
            now,
            scope: Some(record.scope),
            limit,
            used: record.used,
            allowed,
            over_daily,
            burst_exceeded,
        })
    }

    pub fn demo_used(&self, now: i64) -> u32 {
        if self.demo.day == day_of(now) { self.demo.used } else { 0 }
    }

    /// Takes what must be saved: pauses, and counters if `flush` is set.
    pub fn take_unsaved(&mut self, flush: bool) -> Unsaved {
        let pauses = std::mem::take(&mut self.unsaved_pauses);
        let counters = if flush { std::mem::take(&mut self.dirty) } else { Vec::new() };
        for id in &counters {
            if let Some(entry) = self.keys.get_mut(id) {
                entry.dirty = false;
            }
        }
        Unsaved { counters, pauses, demo: flush && std::mem::take(&mut self.demo.dirty) }
    }

    /// The rows to save. Keys that have been deleted since are left out.
    pub fn unsaved_rows(&self, unsaved: &Unsaved) -> Vec<RowWrite> {
        let mut rows = Vec::with_capacity(unsaved.counters.len() + 2 * unsaved.pauses.len() + 1);
        for (id, event) in &unsaved.pauses {
            if let Some(entry) = self.keys.get(id) {
                rows.push(RowWrite::Put(Row::Record(*id), encode(&entry.key.record)));
                rows.push(RowWrite::AddEvent(*id, event.clone()));
            }
        }
        let counters = unsaved.counters.iter().filter_map(|id| Some((id, self.keys.get(id)?)));
        rows.extend(counters.map(|(id, entry)| RowWrite::Put(Row::Record(*id), encode(&entry.key.record))));
        if unsaved.demo {
            rows.push(RowWrite::Put(Row::Demo, self.demo.to_bytes()));
        }
        rows
    }

    /// Puts back what could not be saved, so that the next commit saves it.
    pub fn put_back(&mut self, unsaved: Unsaved) {
        self.demo.dirty |= unsaved.demo;
        // Events are added in this order, so those of the failed commit come first.
        self.unsaved_pauses.splice(0..0, unsaved.pauses);
        for id in unsaved.counters {
            if let Some(entry) = self.keys.get_mut(&id) {
                entry.mark_dirty(id, &mut self.dirty);
            }
        }
    }
}

impl Demo {
    fn to_bytes(&self) -> Vec<u8> {
        let counter = [self.day.to_le_bytes(), self.used.to_le_bytes()].concat();
        [&counter[..], &self.expiry_checked.to_le_bytes()].concat()
    }

    /// Starts over if the bytes are damaged.
    fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at| bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map(u32::from_le_bytes);
        let (day, used) = number(0).zip(number(4)).unwrap_or_default();
        let checked = bytes.get(8..16).and_then(|part| part.try_into().ok()).map(i64::from_le_bytes);
        Self { day, used, expiry_checked: checked.unwrap_or(0), dirty: false }
    }

    fn charge(&mut self, count: u32, now: i64, limits: &Limits) -> GroupCounts {
        let today = day_of(now);
        if today > self.day {
            (self.day, self.used) = (today, 0);
        } else if self.day > today.saturating_add(1) {
            // Counted under a clock that was wrong, as in `KeyRecord::correct_day`.
            tracing::warn!(key = "demo", "{CORRECTED_FUTURE}");
            (self.day, self.dirty) = (today, true);
        }
        let allowed = count.min(limits.demo.saturating_sub(self.used));
        self.used += allowed;
        self.dirty |= allowed > 0;
        GroupCounts::demo(now, limits.demo, self.used, allowed, count - allowed)
    }
}
