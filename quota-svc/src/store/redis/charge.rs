//! Charging: one script call for a batch, or in a Cluster one for each entry, all at once.

use futures_util::future::join_all;
use redis::Value;

use super::RedisStore;
use super::names::Name;
use super::script::{CHARGE, Call};
use super::topology::CallError;
use crate::domain::record::scope_from_byte;
use crate::domain::verdict::{Entry, Judged, Subject, Tally};

impl RedisStore {
    pub(super) async fn charge_batch(&self, entries: &[Entry]) -> Vec<Judged> {
        if entries.is_empty() {
            Vec::new()
        } else if self.charges.is_cluster() {
            let calls = entries.iter().map(|entry| self.charge_together(std::slice::from_ref(entry)));
            join_all(calls).await.into_iter().flatten().collect()
        } else {
            self.charge_together(entries).await
        }
    }

    /// One call for all entries; their names must live in one place.
    async fn charge_together(&self, entries: &[Entry]) -> Vec<Judged> {
        let names: Vec<Name> = entries.iter().map(|entry| self.name_of(entry.subject)).collect();
        let call = self.charge_call(&names, entries);
        let judged = match self.charges.run(&names[0], &call).await {
            Ok(answer) => read_answer(&answer.value, entries),
            Err(error) => {
                self.log_failure(&error);
                return vec![Judged::Unavailable; entries.len()];
            }
        };
        let judged = judged.unwrap_or_else(|| vec![Judged::Unavailable; entries.len()]);
        let unreadable = entries.iter().zip(&judged).find(|(_, judged)| **judged == Judged::Unavailable);
        if let Some((entry, _)) = unreadable {
            self.log_unreadable(entry.subject);
        }
        judged
    }

    fn log_failure(&self, error: &CallError) {
        match error {
            // Said once by the link that went down.
            CallError::Down(_) => tracing::debug!(%error, "charges can't be judged"),
            other => match self.failures.ring() {
                Some(calls) => tracing::warn!(error = %other, calls, "charges can't be judged"),
                None => tracing::debug!(error = %other, "charges can't be judged"),
            },
        }
    }

    fn log_unreadable(&self, subject: Subject) {
        if self.unreadable.ring().is_some() {
            let key = match subject {
                Subject::Key(id) => id.to_string(),
                Subject::Demo => "demo".to_owned(),
            };
            tracing::warn!(
                key,
                "what is stored for a key can't be read by this version; its charges are refused"
            );
        }
    }

    fn name_of(&self, subject: Subject) -> Name {
        match subject {
            Subject::Key(id) => self.names.record(id),
            Subject::Demo => self.names.demo(),
        }
    }

    fn charge_call(&self, names: &[Name], entries: &[Entry]) -> Call {
        let limits = &self.limits;
        let call = CHARGE.on(names.iter()).arg(limits.daily).arg(limits.burst).arg(limits.demo);
        let call = call.arg(self.now_arg());
        // As nearly always: what need not be sent need not be read there.
        if entries.iter().all(|entry| entry.count == 1) {
            return call;
        }
        entries.iter().fold(call, |call, entry| call.arg(entry.count))
    }
}

/// The time, then two integers for each entry (lua/charge.lua); `None` if it is anything else.
fn read_answer(answer: &Value, entries: &[Entry]) -> Option<Vec<Judged>> {
    let Value::Array(numbers) = answer else { return None };
    let mut numbers = numbers.iter().map(|value| match value {
        Value::Int(number) => Some(*number),
        _ => None,
    });
    let now = numbers.next()??;
    let mut next = || numbers.next().flatten();
    entries.iter().map(|entry| read_entry(entry, now, next()?, next()?)).collect()
}

fn read_entry(entry: &Entry, now: i64, verdict: i64, counts: i64) -> Option<Judged> {
    let number = |n: i64| u32::try_from(n).ok();
    let (limit, code) = (verdict / 32, verdict % 32);
    let tally = |paused| {
        let scope = match entry.subject {
            Subject::Demo => None,
            Subject::Key(_) => Some(scope_from_byte(u8::try_from(code % 4).ok()?)?),
        };
        let (allowed, refused) = (number(counts / 1024 % 1024)?, number(counts % 1024)?);
        let used = number(counts / 1024 / 1024)?;
        Some(Tally { now, scope, limit: number(limit)?, used, allowed, refused, paused })
    };
    match code / 4 {
        0 => tally(false).map(Judged::Tally),
        1 => Some(Judged::Unknown),
        2 => Some(Judged::Inactive),
        3 => Some(Judged::Paused { now }),
        5 => tally(true).map(Judged::Tally),
        _ => Some(Judged::Unavailable),
    }
}
