//! Everything in memory, and which rows each change wants written.

mod accounts;
mod keys;
mod stored;

use std::collections::HashMap;

pub use stored::StoredAccount;

use super::writer::Op;
use crate::domain::event::{Event, pause_reason};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::key::StoredKey;
use crate::domain::limits::Limits;
use crate::domain::record::{Judgement, Record, encode};
use crate::domain::time::day_of;
use crate::domain::verdict::{Entry, Judged, Subject, Tally};

/// Accounts, keys and counters.
#[derive(Default)]
pub struct State {
    accounts: HashMap<AccountId, StoredAccount>,
    keys: HashMap<KeyId, KeyEntry>,
    demo: Demo,
    /// Keys whose counters changed since the last flush.
    dirty: Vec<KeyId>,
}

struct KeyEntry {
    key: StoredKey,
    /// In `dirty` already.
    dirty: bool,
    /// Its record could not be read: it is refused and never rewritten.
    unreadable: bool,
}

#[derive(Default)]
struct Demo {
    day: u32,
    used: u32,
    dirty: bool,
}

impl State {
    /// Judges an entry's charges one by one.
    pub fn charge(&mut self, entry: &Entry, now: i64, limits: &Limits, ops: &mut Vec<Op>) -> Judged {
        match entry.subject {
            Subject::Demo => Judged::Tally(self.demo.charge(entry.count, now, limits)),
            Subject::Key(id) => self.charge_key(id, entry.count, now, limits, ops),
        }
    }

    fn charge_key(&mut self, id: KeyId, count: u32, now: i64, limits: &Limits, ops: &mut Vec<Op>) -> Judged {
        let Some(entry) = self.keys.get_mut(&id) else { return Judged::Unknown };
        if entry.unreadable {
            return Judged::Unavailable;
        }
        let record = &mut entry.key.record;
        let (mut allowed, mut refused, mut paused) = (0, 0, false);
        for _ in 0..count {
            match record.charge(now, limits) {
                Judgement::Allowed => allowed += 1,
                Judgement::DailyExceeded => refused += 1,
                Judgement::Inactive => return Judged::Inactive,
                Judgement::Paused if allowed + refused == 0 => return Judged::Paused { now },
                Judgement::Paused => break,
                Judgement::BurstExceeded => {
                    paused = true;
                    break;
                }
            }
        }
        if paused {
            ops.extend(pause_ops(id, record, now, limits));
        } else if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(id);
        }
        let limit = record.limit(limits);
        Judged::Tally(Tally {
            now,
            scope: Some(record.scope),
            limit,
            used: record.used,
            allowed,
            refused,
            paused,
        })
    }

    /// The rows of counters that changed, and whose they are.
    pub fn take_dirty(&mut self) -> (Vec<Op>, Vec<KeyId>) {
        let ids = std::mem::take(&mut self.dirty);
        let mut ops = Vec::with_capacity(ids.len() + 1);
        for id in &ids {
            if let Some(entry) = self.keys.get_mut(id) {
                entry.dirty = false;
                ops.push(Op::Record(*id, encode(&entry.key.record)));
            }
        }
        if std::mem::take(&mut self.demo.dirty) {
            ops.push(Op::Demo(self.demo.day, self.demo.used));
        }
        (ops, ids)
    }

    /// These could not be written: they are written again.
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

    /// The demo's counter as the file has it.
    pub fn load_demo(&mut self, (day, used): (u32, u32)) {
        self.demo = Demo { day, used, dirty: false };
    }
}

impl Demo {
    fn charge(&mut self, count: u32, now: i64, limits: &Limits) -> Tally {
        let today = day_of(now);
        if today > self.day {
            (self.day, self.used) = (today, 0);
        }
        let allowed = count.min(limits.demo.saturating_sub(self.used));
        self.used += allowed;
        self.dirty |= allowed > 0;
        Tally::demo(now, limits.demo, self.used, allowed, count - allowed)
    }
}

fn pause_ops(id: KeyId, record: &Record, now: i64, limits: &Limits) -> [Op; 2] {
    let kind = quota_client::wire::EventKind::Paused;
    let event = Event { at: now, kind, reason: pause_reason(u32::from(limits.burst)) };
    [Op::Record(id, encode(record)), Op::Event(id, event.to_line())]
}
