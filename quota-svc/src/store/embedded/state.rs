//! The state in memory. Each change returns the rows to write to the file.

mod accounts;
mod keys;
mod stored;

use std::collections::{BTreeMap, HashMap};

pub use stored::StoredAccount;

use quota_client::wire::KeyState;

use super::writer::RowWrite;
use crate::domain::event::{Event, pause_reason};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::StoredKey;
use crate::domain::limits::Limits;
use crate::domain::record::{CORRECTED_FUTURE, KeyRecord, RecordOutcome, encode};
use crate::domain::time::day_of;
use crate::domain::verdict::{ChargeGroup, GroupCounts, GroupOutcome, Subject};

#[derive(Default)]
pub struct State {
    /// Ordered, so that a page of a listing need not sort all of them.
    accounts: BTreeMap<AccountId, StoredAccount>,
    keys: HashMap<KeyId, KeyEntry>,
    demo: Demo,
    /// Keys whose counters have changed since the last flush.
    dirty: Vec<KeyId>,
}

struct KeyEntry {
    key: StoredKey,
    /// Whether `State::dirty` contains this key.
    dirty: bool,
    /// Whether the stored record is invalid. If it is, charges fail, and the record is never rewritten.
    invalid: bool,
}

#[derive(Default)]
struct Demo {
    day: u32,
    used: u32,
    dirty: bool,
}

impl State {
    /// Charges a group. If this pauses the key, appends rows to `writes`; counters are left to the next flush.
    pub fn charge(
        &mut self,
        group: &ChargeGroup,
        now: i64,
        limits: &Limits,
        writes: &mut Vec<RowWrite>,
    ) -> GroupOutcome {
        match group.subject {
            Subject::Demo => GroupOutcome::Counted(self.demo.charge(group.count, now, limits)),
            Subject::Key(id) => self.charge_key(id, group.count, now, limits, writes),
        }
    }

    fn charge_key(
        &mut self,
        id: KeyId,
        count: u32,
        now: i64,
        limits: &Limits,
        writes: &mut Vec<RowWrite>,
    ) -> GroupOutcome {
        let Some(entry) = self.keys.get_mut(&id) else { return GroupOutcome::UnknownKey };
        if entry.invalid {
            return GroupOutcome::Unavailable;
        }
        let record = &mut entry.key.record;
        if record.state == KeyState::Active && record.is_ahead_of(now) {
            tracing::warn!(key = %id, "{CORRECTED_FUTURE}");
        }
        let (mut allowed, mut over_daily, mut burst_exceeded) = (0, 0, false);
        for _ in 0..count {
            match record.charge(now, limits) {
                RecordOutcome::Allowed => allowed += 1,
                RecordOutcome::DailyExceeded => over_daily += 1,
                RecordOutcome::Inactive => return GroupOutcome::Inactive,
                RecordOutcome::Paused if allowed + over_daily == 0 => return GroupOutcome::Paused { now },
                RecordOutcome::Paused => break,
                RecordOutcome::BurstExceeded => {
                    burst_exceeded = true;
                    break;
                }
            }
        }
        if burst_exceeded {
            writes.extend(pause_writes(id, record, now, limits));
        } else if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(id);
        }
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

    /// Takes the rows of changed counters, and the IDs of their keys.
    pub fn take_dirty(&mut self) -> (Vec<RowWrite>, Vec<KeyId>) {
        let ids = std::mem::take(&mut self.dirty);
        let mut writes = Vec::with_capacity(ids.len() + 1);
        for id in &ids {
            if let Some(entry) = self.keys.get_mut(id) {
                entry.dirty = false;
                writes.push(RowWrite::Record(*id, encode(&entry.key.record)));
            }
        }
        if std::mem::take(&mut self.demo.dirty) {
            writes.push(RowWrite::Demo(self.demo.day, self.demo.used));
        }
        (writes, ids)
    }

    /// Marks counters whose write failed, so that they are written again.
    pub fn mark_dirty(&mut self, ids: Vec<KeyId>) {
        self.demo.dirty = true;
        for id in ids {
            if let Some(entry) = self.keys.get_mut(&id)
                && !std::mem::replace(&mut entry.dirty, true)
            {
                self.dirty.push(id);
            }
        }
    }

    /// Loads the demo's counter from the file.
    pub fn load_demo(&mut self, (day, used): (u32, u32)) {
        self.demo = Demo { day, used, dirty: false };
    }
}

impl Demo {
    fn charge(&mut self, count: u32, now: i64, limits: &Limits) -> GroupCounts {
        let today = day_of(now);
        if today > self.day {
            (self.day, self.used) = (today, 0);
        } else if self.day > today.saturating_add(1) {
            // Counted under a clock that was wrong, as in `KeyRecord::correct_future`.
            tracing::warn!(key = "demo", "{CORRECTED_FUTURE}");
            (self.day, self.dirty) = (today, true);
        }
        let allowed = count.min(limits.demo.saturating_sub(self.used));
        self.used += allowed;
        self.dirty |= allowed > 0;
        GroupCounts::demo(now, limits.demo, self.used, allowed, count - allowed)
    }
}

fn pause_writes(id: KeyId, record: &KeyRecord, now: i64, limits: &Limits) -> [RowWrite; 2] {
    let kind = quota_client::wire::EventKind::Paused;
    let event = Event { at: now, kind, reason: pause_reason(u32::from(limits.burst)) };
    [RowWrite::Record(id, encode(record)), RowWrite::Event(id, event.to_line())]
}
