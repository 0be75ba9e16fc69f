//! The state in memory. Charges change it directly; a commit changes it when its rows are on disk.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use quota_api::{KeyState, Limits, NoticeKind, Outcome, Verdict};

use super::store_file::{OpenError, RowWrite, StoreFile, kind, named_row, parse_row, row};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::loaded::{Loaded, Target, Version, row as row_names};
use crate::domain::notice::{Announcement, MAX_ANNOUNCEMENTS};
use crate::domain::record::{CORRECTED_FUTURE, CodecError, KeyRecord, account_of, decode, encode};
use crate::domain::rejection::Rejection;
use crate::domain::time::day_of;
use crate::domain::verdict::{ChargeGroup, GroupCounts, GroupOutcome, Subject};
use crate::store::{AccountIds, Result, StoreError};

/// A record that can't be decoded is kept as it is.
type StoredRecord = Result<KeyRecord, Vec<u8>>;

#[derive(Default)]
pub struct State {
    /// Ordered, so that a page of a listing need not sort all of them.
    pub accounts: BTreeMap<AccountId, StoredAccount>,
    pub records: HashMap<KeyId, StoredRecord>,
    demo: Demo,
    /// Keys whose records have changed since they were saved.
    dirty: HashSet<KeyId>,
    /// Keys whose records the next commit saves: those that were paused, and those that the last one failed to save.
    urgent: Vec<KeyId>,
    /// Those on disk, oldest first.
    pub announcements: BTreeSet<Announcement>,
    /// Those that the next commit saves, with the records of their keys.
    new_announcements: Vec<Announcement>,
    /// Announcements that were dropped since this was read.
    pub dropped_announcements: u64,
    /// When a notice of an account is due, ms.
    pub due_accounts: BTreeMap<AccountId, i64>,
    /// When the owner of a key is next told that it expires, ms.
    pub expiring_keys: BTreeMap<KeyId, i64>,
    /// That of the last commit. The file has no versions: after a restart, all accounts have the same one.
    pub last_version: u64,
}

/// It has at least one row.
#[derive(Default)]
pub struct StoredAccount {
    pub version: Version,
    pub rows: BTreeMap<String, Vec<u8>>,
}

/// What charges have changed and a commit is about to save.
pub struct Unsaved {
    keys: Vec<KeyId>,
    demo: bool,
    announcements: Vec<Announcement>,
    /// Announcements that become too many.
    dropped: Vec<Announcement>,
    pub rows: Vec<RowWrite>,
}

/// The demo's counter.
#[derive(Default)]
struct Demo {
    day: u32,
    used: u32,
    dirty: bool,
}

impl State {
    pub fn load(file: &StoreFile) -> Result<Self, OpenError> {
        let mut state = Self::default();
        file.load(|key, value| state.put(key, Some(value)))?;
        Ok(state)
    }

    /// Takes over a row that is on disk; `None` if it was deleted.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        let Some((kind, id, name)) = parse_row(key) else {
            tracing::error!(?key, "the key of a row in the store file can't be read; the row is ignored");
            return;
        };
        let (account, key) = (AccountId(id), KeyId(id));
        // A time that can't be read is due at once.
        let time = || value.map(|bytes| bytes.try_into().map_or(0, i64::from_le_bytes));
        match (kind, value) {
            (kind::ACCOUNT, _) => {
                let rows = &mut self.accounts.entry(account).or_default().rows;
                set(rows, name.to_owned(), value.map(<[u8]>::to_owned));
                if rows.is_empty() {
                    self.accounts.remove(&account);
                }
            }
            (kind::RECORD, Some(bytes)) => drop(self.records.insert(key, decode_record(key, bytes))),
            (kind::RECORD, None) => drop(self.records.remove(&key)),
            (kind::NOTICE_DUE, _) => set(&mut self.due_accounts, account, time()),
            (kind::EXPIRY_NOTICE, _) => set(&mut self.expiring_keys, key, time()),
            (kind::ANNOUNCEMENT, _) => match (Announcement::parse(name), value) {
                (Some(announcement), Some(_)) => drop(self.announcements.insert(announcement)),
                (Some(announcement), None) => drop(self.announcements.remove(&announcement)),
                (None, _) => tracing::error!(name, "an announcement can't be read; it is ignored"),
            },
            (kind::DEMO, Some(bytes)) => self.demo = Demo::from_bytes(bytes),
            // Events stay on disk.
            _ => {}
        }
    }

    pub fn account(&self, target: Target, others: &[KeyId], now: i64) -> Result<Option<Loaded>> {
        let id = match target {
            Target::Account(id) => id,
            Target::Key(key) => {
                let Some(record) = self.records.get(&key).map(encode_record) else { return Ok(None) };
                let reason = || CodecError::Short(record.len()).to_string();
                account_of(&record).ok_or_else(|| Rejection::UnreadableKey { id: key, reason: reason() })?
            }
        };
        let stored = self.accounts.get(&id);
        let rows = stored.map_or_else(BTreeMap::new, |stored| stored.rows.clone());
        let keys = rows.keys().filter_map(|name| row_names::key_of(name)).chain(others.iter().copied());
        let records = keys.filter_map(|key| Some((key, encode_record(self.records.get(&key)?)))).collect();
        Ok(Some(Loaded { id, version: stored.map(|stored| stored.version), rows, records, now }))
    }

    /// A page of accounts, ordered by ID. The cursor is the last ID of the previous page.
    pub fn accounts(&self, cursor: Option<&str>, limit: usize) -> Result<AccountIds> {
        let after = match cursor.map(AccountId::from_hex).transpose() {
            Ok(last) => last.map_or(Bound::Unbounded, Bound::Excluded),
            Err(_) => return Err(StoreError::InvalidCursor),
        };
        let mut rest = self.accounts.range((after, Bound::Unbounded)).map(|(id, _)| *id);
        let ids: Vec<AccountId> = rest.by_ref().take(limit.max(1)).collect();
        let next = ids.last().filter(|_| rest.next().is_some()).map(AccountId::to_string);
        Ok(AccountIds { ids, total: self.accounts.len() as u64, next })
    }

    /// Charges a group. Its changes stay in memory until they are saved.
    pub fn charge(&mut self, group: &ChargeGroup, now: i64, limits: &Limits) -> GroupOutcome {
        match group.subject {
            Subject::Demo => GroupOutcome::Counted(self.demo.charge(group.count, now, limits)),
            Subject::Key(id) => self.charge_key(id, group, now, limits),
        }
    }

    fn charge_key(&mut self, id: KeyId, group: &ChargeGroup, now: i64, limits: &Limits) -> GroupOutcome {
        let record = match self.records.get_mut(&id) {
            Some(Ok(record)) => record,
            Some(Err(_)) => return GroupOutcome::Unavailable,
            None => return GroupOutcome::Denied(Verdict::UnknownKey),
        };
        if let Some(denial) = record.denial(now, group.origin) {
            return GroupOutcome::Denied(denial);
        }
        if record.state == KeyState::Active && record.is_ahead_of(now) {
            tracing::warn!(key = %id, "{CORRECTED_FUTURE}");
        }
        let (mut allowed, mut over_daily, mut burst_exceeded) = (0, 0, false);
        for _ in 0..group.count {
            match record.charge(now, limits) {
                Outcome::Allowed => allowed += 1,
                Outcome::DailyExceeded => over_daily += 1,
                Outcome::Paused if allowed + over_daily == 0 => return GroupOutcome::Paused { now },
                outcome => {
                    burst_exceeded = outcome == Outcome::BurstExceeded;
                    break;
                }
            }
        }
        let (limit, used) = (record.limit(limits), record.used);
        let paused = burst_exceeded.then_some((NoticeKind::KeyPaused, limits.burst.into(), 0));
        let reached = if allowed > 0 { record.reach_level(limits) } else { None };
        let announcements: Vec<_> =
            paused.into_iter().chain(reached.map(|kind| (kind, limit, used))).collect();
        if announcements.is_empty() {
            self.dirty.insert(id);
        } else {
            self.urgent.push(id);
        }
        let announcement = |(kind, limit, used)| Announcement { at: now, key: id, kind, limit, used };
        self.new_announcements.extend(announcements.into_iter().map(announcement));
        GroupOutcome::Counted(GroupCounts {
            now,
            scope: Some(record.scope),
            limit,
            used,
            allowed,
            over_daily,
            burst_exceeded,
        })
    }

    pub fn demo_used(&self, now: i64) -> u32 {
        if self.demo.day == day_of(now) { self.demo.used } else { 0 }
    }

    /// How long the notice or announcement that is due longest has waited.
    pub fn overdue_ms(&self, now: i64) -> i64 {
        let announced = self.announcements.first().map(|first| first.at);
        let due = self.due_accounts.values().copied().chain(announced).min();
        due.map_or(0, |at| now.saturating_sub(at).max(0))
    }

    /// Takes what must be saved: what is urgent, or everything if `flush` is set. Keys that have been deleted since are
    /// left out.
    pub fn take_unsaved(&mut self, flush: bool) -> Unsaved {
        let mut keys = std::mem::take(&mut self.urgent);
        if flush {
            keys.extend(self.dirty.drain());
        }
        let demo = flush && std::mem::take(&mut self.demo.dirty);
        let records = keys.iter().filter_map(|id| Some((row(kind::RECORD, id.0), self.records.get(id)?)));
        let records = records.map(|(key, record)| (key, encode_record(record)));
        let demo_row = demo.then(|| (row(kind::DEMO, [0; 16]), self.demo.to_bytes()));
        let announcements = std::mem::take(&mut self.new_announcements);
        let announced = announcements.iter().map(|each| (announcement_row(each), Vec::new()));
        let rows = records.chain(demo_row).chain(announced);
        let mut rows: Vec<_> = rows.map(|(key, value)| RowWrite::Put(key, Some(value))).collect();
        let excess = (self.announcements.len() + announcements.len()).saturating_sub(MAX_ANNOUNCEMENTS);
        let dropped: Vec<_> = self.announcements.iter().take(excess).copied().collect();
        rows.extend(dropped.iter().map(|each| RowWrite::Put(announcement_row(each), None)));
        Unsaved { keys, demo, announcements, dropped, rows }
    }

    /// Shows the announcements that are on disk now.
    pub fn saved(&mut self, unsaved: Unsaved) {
        for announcement in &unsaved.dropped {
            self.announcements.remove(announcement);
        }
        self.dropped_announcements += unsaved.dropped.len() as u64;
        self.announcements.extend(unsaved.announcements);
    }

    /// Puts back what could not be saved, so that the next commit saves it.
    pub fn put_back(&mut self, unsaved: Unsaved) {
        self.demo.dirty |= unsaved.demo;
        self.urgent.extend(unsaved.keys);
        self.new_announcements.extend(unsaved.announcements);
    }
}

pub fn announcement_row(announcement: &Announcement) -> Vec<u8> {
    named_row(kind::ANNOUNCEMENT, announcement.key.0, &announcement.to_string())
}

fn decode_record(id: KeyId, bytes: &[u8]) -> StoredRecord {
    decode(bytes).map_err(|error| {
        tracing::error!(key = %id, %error, "can't read the record of a key; its charges fail");
        bytes.to_owned()
    })
}

fn encode_record(record: &StoredRecord) -> Vec<u8> {
    record.as_ref().map_or_else(Vec::clone, encode)
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

/// Up to `limit` of the IDs that are due at `now`.
pub fn due<Id: Copy>(times: &BTreeMap<Id, i64>, now: i64, limit: usize) -> Vec<Id> {
    times.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).take(limit).collect()
}

impl Demo {
    fn to_bytes(&self) -> Vec<u8> {
        [self.day.to_le_bytes(), self.used.to_le_bytes()].concat()
    }

    /// Starts over if the bytes are damaged.
    fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at| bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map(u32::from_le_bytes);
        let (day, used) = number(0).zip(number(4)).unwrap_or_default();
        Self { day, used, dirty: false }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_announcement_goes_when_there_are_too_many() {
        let nth = |n: usize| {
            let (at, key) = (n as i64, KeyId([7; 16]));
            Announcement { at, key, kind: NoticeKind::KeyPaused, limit: 10, used: 0 }
        };
        let announcements = (0..MAX_ANNOUNCEMENTS).map(nth).collect();
        let mut state = State { announcements, ..State::default() };
        state.new_announcements.push(nth(MAX_ANNOUNCEMENTS));
        let unsaved = state.take_unsaved(false);
        assert_eq!(unsaved.rows.len(), 2);
        state.put_back(unsaved);
        assert_eq!(state.announcements.first(), Some(&nth(0)), "it was not saved");
        let unsaved = state.take_unsaved(false);
        state.saved(unsaved);
        assert_eq!((state.announcements.first(), state.dropped_announcements), (Some(&nth(1)), 1));
        assert_eq!(state.announcements.last(), Some(&nth(MAX_ANNOUNCEMENTS)));
    }
}
