//! The state in memory. Charges change it directly; a commit changes it when its rows are on disk.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem::take;
use std::ops::{Bound, Range};
use std::time::{Duration, Instant};

use quota_api::{KeyState, Limits, NoticeKind, Outcome, Rejection, Verdict};
use serde::{Deserialize, Serialize};

use super::store_file::{RowWrite, kind, parse_row, row};
use crate::domain::account::to_json;
use crate::domain::change::{Change, RecordChange};
use crate::domain::id::{AccountId, KeyId};
use crate::domain::notice::{Announcement, MAX_ANNOUNCEMENTS};
use crate::domain::record::{
    CORRECTED_FUTURE, CodecError, HEAD_BYTES, KeyRecord, account_of, decode, encode, encode_head,
};
use crate::domain::time::day_of;
use crate::domain::value::{Loaded, Target, Version, row as row_names};
use crate::domain::verdict::{ChargeGroup, GroupCounts, GroupOutcome, Subject};
use crate::domain::window::BurstWindow;
use crate::store::{AccountIds, Result, StoreError, VERSION, draw_version};

/// Where a record's head has its state, and the time of its last change.
const STATE: usize = 2;
const STATE_SINCE: Range<usize> = 8..16;

/// After this time, a commit counts as failed: the disk hangs. Its requests are not confirmed, and charges fail until
/// the commit ends.
pub const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A record that can't be decoded is kept as it is.
type StoredRecord = Result<KeyRecord, Vec<u8>>;

/// The rows of an account, with its version.
type Rows = BTreeMap<String, Vec<u8>>;

#[derive(Default)]
pub struct State {
    /// Ordered, so that a page of a listing need not sort all of them.
    accounts: BTreeMap<AccountId, Rows>,
    records: HashMap<KeyId, StoredRecord>,
    demo: Demo,
    /// Keys whose records have changed since they were saved.
    dirty: HashSet<KeyId>,
    /// Those on disk, oldest first.
    pub announcements: BTreeSet<Announcement>,
    /// Those that the next commit saves, with the records of their keys.
    new_announcements: Vec<Announcement>,
    /// Announcements that were dropped since this was read.
    pub dropped_announcements: u64,
    /// Times of [`kind::NOTICE_DUE`] and [`kind::EXPIRY_NOTICE`].
    times: BTreeMap<(u8, [u8; 16]), i64>,
    /// Why the file can't be used: the last commit or a read has failed, or the thread has ended. The next commit reopens the
    /// file, because redb fails every call after an I/O error.
    pub failure: Option<String>,
    /// When the current commit began.
    pub commit_start: Option<Instant>,
}

/// The demo's counter.
#[derive(Default, Serialize, Deserialize)]
struct Demo {
    day: u32,
    used: u32,
    #[serde(skip)]
    dirty: bool,
}

impl State {
    /// Takes over a row that is on disk; `None` if it was deleted.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        let Some((kind, id, name)) = parse_row(key) else {
            tracing::error!(?key, "the key of a row in the store file can't be read; the row is ignored");
            return;
        };
        let (account, key) = (AccountId(id), KeyId(id));
        match (kind, value) {
            (kind::ACCOUNT, _) => {
                let rows = self.accounts.entry(account).or_default();
                set(rows, name.to_owned(), value.map(<[u8]>::to_owned));
                if rows.is_empty() {
                    self.accounts.remove(&account);
                }
            }
            (kind::RECORD, Some(bytes)) => drop(self.records.insert(key, decode_record(key, bytes))),
            (kind::RECORD, None) => drop(self.records.remove(&key)),
            // A time that can't be read is due at once.
            (kind::NOTICE_DUE | kind::EXPIRY_NOTICE, _) => {
                let time = value.map(|bytes| bytes.try_into().map_or(0, i64::from_le_bytes));
                set(&mut self.times, (kind, id), time);
            }
            (kind::ANNOUNCEMENT, _) => match (Announcement::parse(name), value) {
                (Some(announcement), Some(_)) => drop(self.announcements.insert(announcement)),
                (Some(announcement), None) => drop(self.announcements.remove(&announcement)),
                (None, _) => tracing::error!(name, "an announcement can't be read; it is ignored"),
            },
            (kind::DEMO, Some(bytes)) => {
                // Starts over if it is damaged.
                self.demo = serde_json::from_slice(bytes).unwrap_or_default();
            }
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
                let unreadable = || Rejection::UnreadableKey { id: key.to_string(), reason: reason() };
                account_of(&record).ok_or_else(unreadable)?
            }
        };
        let mut rows = self.accounts.get(&id).cloned().unwrap_or_default();
        let version = version_of(&rows);
        rows.remove(VERSION);
        let keys = rows.keys().filter_map(|name| row_names::key_of(name)).chain(others.iter().copied());
        let records = keys.filter_map(|key| Some((key, encode_record(self.records.get(&key)?)))).collect();
        Ok(Some(Loaded { id, version, rows, records, now }))
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
        let Subject::Key(id) = group.subject else {
            return GroupOutcome::Counted(self.demo.charge(group.count, now, limits));
        };
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
        let (scope, limit, used) = (Some(record.scope), record.limit(limits), record.used);
        let paused = burst_exceeded.then_some((NoticeKind::KeyPaused, limits.burst.into(), 0));
        let reached = if allowed > 0 { record.reach_level(limits) } else { None };
        let announced = paused.into_iter().chain(reached.map(|kind| (kind, limit, used)));
        let announcement = |(kind, limit, used)| Announcement { at: now, key: id, kind, limit, used };
        self.new_announcements.extend(announced.map(announcement));
        self.dirty.insert(id);
        let counts = GroupCounts { now, scope, limit, used, allowed, over_daily, burst_exceeded };
        GroupOutcome::Counted(counts)
    }

    /// The times of a kind of rows, by ID.
    pub fn times(&self, kind: u8) -> impl Iterator<Item = ([u8; 16], i64)> {
        self.times.range((kind, [0; 16])..(kind + 1, [0; 16])).map(|((_, id), at)| (*id, *at))
    }

    /// Up to `limit` of the IDs whose time of this kind is due at `now`.
    pub fn due<Id>(&self, kind: u8, now: i64, limit: usize, id: fn([u8; 16]) -> Id) -> Vec<Id> {
        self.times(kind).filter(|(_, at)| *at <= now).take(limit).map(|(bytes, _)| id(bytes)).collect()
    }

    /// Why the file can't be written now; `None` if it can.
    pub fn failure(&self) -> Option<String> {
        let hangs = || self.commit_start.is_some_and(|start| start.elapsed() > COMMIT_TIMEOUT);
        self.failure.clone().or_else(|| {
            hangs().then(|| format!("a write to the store file takes longer than {COMMIT_TIMEOUT:?}"))
        })
    }

    /// How long the notice or announcement that is due longest has waited.
    pub fn overdue_ms(&self, now: i64) -> i64 {
        let announced = self.announcements.first().map(|first| first.at);
        let due = self.times(kind::NOTICE_DUE).map(|(_, at)| at).chain(announced).min();
        due.map_or(0, |at| now.saturating_sub(at).max(0))
    }

    /// Makes the changes of a batch that is on disk, and shows its announcements.
    pub fn apply(&mut self, batch: Batch) {
        let records = batch.records.iter().filter_map(|(id, change)| match self.records.get(id)? {
            Ok(record) if matches!(change, RecordChange::Changed { .. }) => {
                Some((*id, Ok(changed(record, change).ok()?)))
            }
            _ => None,
        });
        let records: Vec<_> = records.collect();
        for write in batch.changed {
            if let RowWrite::Put(key, value) = write {
                self.put(&key, value.as_deref());
            }
        }
        self.records.extend(records);
        self.dropped_announcements += batch.dropped_announcements;
    }

    /// Puts back what could not be saved, so that the next commit saves it.
    pub fn put_back(&mut self, batch: Batch) {
        self.demo.dirty |= batch.demo;
        self.dirty.extend(batch.keys);
        self.new_announcements.extend(batch.announcements);
    }
}

/// What one transaction writes: changes of accounts, and what charges have changed.
///
/// Changes are compared with the memory before the transaction and made in memory after it, and charges go on meanwhile.
/// These count as made before the changes. So a key that is paused meanwhile stays paused, unless the change sets another
/// state. The next transaction writes the record as it then is in memory.
#[derive(Default)]
pub struct Batch {
    accounts: HashSet<AccountId>,
    records: HashMap<KeyId, RecordChange>,
    /// Rows that the memory takes over once they are on disk.
    changed: Vec<RowWrite>,
    /// Records and the demo's counter as charges have left them in memory. Written before the changes.
    saved: Vec<RowWrite>,
    /// The keys of these records; whether the demo's counter is among them; and new announcements.
    keys: HashSet<KeyId>,
    demo: bool,
    announcements: Vec<Announcement>,
    dropped_announcements: u64,
}

impl Batch {
    pub fn rows(&self) -> impl Iterator<Item = &RowWrite> {
        self.saved.iter().chain(&self.changed)
    }

    /// Adds a change, unless another one has made its notices. Returns `false` if the account or one of the records is not as
    /// it was loaded, or if the batch changes it already.
    pub fn add(&mut self, state: &State, change: Change) -> Result<bool> {
        let (account, stored) = (change.account, state.accounts.get(&change.account));
        if change.made.is_some_and(|made| !state.announcements.contains(&made)) {
            return Ok(true);
        }
        if self.accounts.contains(&account) || stored.and_then(version_of) != change.expected {
            return Ok(false);
        }
        let mut rows = Vec::new();
        let mut put = |key, value| rows.push(RowWrite::Put(key, value));
        change.made.iter().for_each(|made| put(announcement_row(made), None));
        for (id, change) in &change.records {
            let value = match (change, state.records.get(id)) {
                _ if self.records.contains_key(id) => return Ok(false),
                (RecordChange::New(bytes), None) => Some(bytes.clone()),
                (RecordChange::Changed { expected, .. }, Some(Ok(record)))
                    if encode_head(record) == *expected =>
                {
                    Some(encode(&changed(record, change)?))
                }
                (RecordChange::Deleted, _) => {
                    put(row(kind::EVENTS, id.0, ""), None);
                    put(row(kind::EXPIRY_NOTICE, id.0, ""), None);
                    None
                }
                _ => return Ok(false),
            };
            put(row(kind::RECORD, id.0, ""), value);
        }
        let account_row = |name: &str| row(kind::ACCOUNT, account.0, name);
        let time = |at: Option<i64>| at.map(|at| at.to_le_bytes().to_vec());
        if change.exists {
            put(account_row(VERSION), Some(draw_version().to_vec()));
            change.rows.into_iter().for_each(|(name, value)| put(account_row(&name), value));
            change.notice_due.into_iter().for_each(|at| put(row(kind::NOTICE_DUE, account.0, ""), time(at)));
        } else {
            stored.iter().flat_map(|rows| rows.keys()).for_each(|name| put(account_row(name), None));
            put(row(kind::NOTICE_DUE, account.0, ""), None);
        }
        let expiry_notices = change.expiry_notices.into_iter();
        expiry_notices.for_each(|(id, at)| put(row(kind::EXPIRY_NOTICE, id.0, ""), time(at)));
        rows.extend(change.events.into_iter().map(|(id, line)| RowWrite::AddEvent(id, line)));
        self.accounts.insert(account);
        self.records.extend(change.records);
        self.changed.append(&mut rows);
        Ok(true)
    }

    /// Takes what charges have changed. Keys that have been deleted since are left out.
    pub fn add_unsaved(&mut self, state: &mut State) {
        self.keys = take(&mut state.dirty);
        self.demo = take(&mut state.demo.dirty);
        let records = self.keys.iter().filter_map(|id| Some((id, state.records.get(id)?)));
        let records = records.map(|(id, record)| (row(kind::RECORD, id.0, ""), encode_record(record)));
        let demo = self.demo.then(|| (row(kind::DEMO, [0; 16], ""), to_json(&state.demo).into_bytes()));
        self.saved.extend(records.chain(demo).map(|(key, value)| RowWrite::Put(key, Some(value))));
        self.announcements = take(&mut state.new_announcements);
        let excess = state.announcements.len() + self.announcements.len();
        let dropped = state.announcements.iter().take(excess.saturating_sub(MAX_ANNOUNCEMENTS));
        let added = self.announcements.iter().map(|each| RowWrite::Put(announcement_row(each), Some(vec![])));
        let dropped = dropped.map(|each| RowWrite::Put(announcement_row(each), None));
        self.changed.extend(added);
        let before = self.changed.len();
        self.changed.extend(dropped);
        self.dropped_announcements = (self.changed.len() - before) as u64;
    }
}

/// The record after a change of its head, window and origins.
fn changed(record: &KeyRecord, change: &RecordChange) -> Result<KeyRecord> {
    let mut after = record.clone();
    let RecordChange::Changed { expected, head, clears_window, origins } = change else { return Ok(after) };
    if *clears_window {
        after.window = BurstWindow::default();
    }
    if let Some(origins) = origins {
        after.origins.clone_from(origins);
    }
    let mut bytes = encode(&after);
    bytes[..HEAD_BYTES].copy_from_slice(head);
    let mut after = decode(&bytes).map_err(|error| StoreError::InvalidData(error.into()))?;
    if expected[STATE] == head[STATE] && expected[STATE_SINCE] == head[STATE_SINCE] {
        (after.state, after.state_since) = (record.state, record.state_since);
    }
    Ok(after)
}

fn announcement_row(announcement: &Announcement) -> Vec<u8> {
    row(kind::ANNOUNCEMENT, announcement.key.0, &announcement.to_string())
}

/// `None` if there is no such account.
fn version_of(rows: &Rows) -> Option<Version> {
    rows.get(VERSION)?.as_slice().try_into().ok()
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

impl Demo {
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
        let (limit, used, over_daily) = (limits.demo, self.used, count - allowed);
        GroupCounts { now, scope: None, limit, used, allowed, over_daily, burst_exceeded: false }
    }
}

#[cfg(test)]
mod tests {
    use quota_api::NoticeKind;

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
        let batch_of = |state: &mut State| {
            let mut batch = Batch::default();
            batch.add_unsaved(state);
            batch
        };
        let batch = batch_of(&mut state);
        assert_eq!(batch.rows().count(), 2);
        state.put_back(batch);
        assert_eq!(state.announcements.first(), Some(&nth(0)), "it was not saved");
        let batch = batch_of(&mut state);
        state.apply(batch);
        assert_eq!((state.announcements.first(), state.dropped_announcements), (Some(&nth(1)), 1));
        assert_eq!(state.announcements.last(), Some(&nth(MAX_ANNOUNCEMENTS)));
    }
}
