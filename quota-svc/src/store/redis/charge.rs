//! Charges: on a single server one script call per batch; in a Cluster one call per charge group, and one pipeline of
//! calls per master.

use std::slice;

use quota_api::Scope;
use redis::Value;

use super::RedisStore;
use super::call::{CHARGE, Call};
use super::redis_keys::RedisKey;
use super::topology::CallError;
use crate::domain::record::CORRECTED_FUTURE;
use crate::domain::verdict::{ChargeGroup, GroupCounts, GroupOutcome, Subject};

impl RedisStore {
    pub(super) async fn charge_batch(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        if groups.is_empty() {
            Vec::new()
        } else if self.charges.is_cluster() {
            self.charge_in_one_call_each(groups).await
        } else {
            self.charge_in_one_call(groups).await
        }
    }

    /// The Redis keys of all groups must be on the same server.
    async fn charge_in_one_call(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        let redis_keys: Vec<RedisKey> = groups.iter().map(|group| self.redis_key_of(group.subject)).collect();
        let call = self.charge_call(&redis_keys, groups);
        let reply = self.charges.send(&call, self.store_timeout).await;
        self.outcomes_of(reply.map(|reply| reply.value), groups)
    }

    /// Does not combine groups whose Redis keys have the same slot: with 16,384 slots, hardly any do.
    async fn charge_in_one_call_each(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        let redis_keys: Vec<RedisKey> = groups.iter().map(|group| self.redis_key_of(group.subject)).collect();
        let call_of =
            |(redis_key, group)| self.charge_call(slice::from_ref(redis_key), slice::from_ref(group));
        let calls: Vec<Call<'_>> = redis_keys.iter().zip(groups).map(call_of).collect();
        let replies = self.charges.send_all(&calls, self.store_timeout).await;
        let outcomes = replies.into_iter().zip(groups);
        outcomes.flat_map(|(reply, group)| self.outcomes_of(reply, slice::from_ref(group))).collect()
    }

    fn outcomes_of(&self, reply: Result<Value, CallError>, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        let outcomes = match reply {
            Ok(reply) => parse_reply(&reply, groups),
            Err(error) => {
                self.log_failure(&error);
                return vec![GroupOutcome::Unavailable; groups.len()];
            }
        };
        let outcomes = outcomes.unwrap_or_else(|| vec![GroupOutcome::Unavailable; groups.len()]);
        let invalid =
            groups.iter().zip(&outcomes).find(|(_, outcome)| **outcome == GroupOutcome::Unavailable);
        if let Some((group, _)) = invalid {
            self.log_invalid_record(group.subject);
        }
        outcomes
    }

    fn log_failure(&self, error: &CallError) {
        match error {
            // The connection's background task has already logged a warning.
            CallError::Down(_) => tracing::debug!(%error, "charges failed"),
            other => match self.charge_failures.allow() {
                Some(occurrences) => tracing::warn!(error = %other, occurrences, "charges failed"),
                None => tracing::debug!(error = %other, "charges failed"),
            },
        }
    }

    fn log_invalid_record(&self, subject: Subject) {
        if self.invalid_records.allow().is_some() {
            let key = name_of(subject);
            tracing::warn!(key, "can't read a stored key record; charges for this key fail");
        }
    }

    fn redis_key_of(&self, subject: Subject) -> RedisKey {
        match subject {
            Subject::Key(id) => self.redis_keys.record(id),
            Subject::Demo => self.redis_keys.demo(),
        }
    }

    fn charge_call<'a>(&self, redis_keys: &'a [RedisKey], groups: &[ChargeGroup]) -> Call<'a> {
        let limits = &self.limits;
        let has_demo = groups.iter().any(|group| group.subject == Subject::Demo);
        let demo_limit = if has_demo { limits.demo.to_string() } else { String::new() };
        let call = CHARGE.on(redis_keys).arg(limits.daily).arg(limits.burst).arg(demo_limit);
        let call = call.arg(self.now_arg());
        let has_origins = groups.iter().any(|group| group.origin.is_some());
        // Common case: every count is 1 and no request has an origin, so omit both.
        if !has_origins && groups.iter().all(|group| group.count == 1) {
            return call;
        }
        let call = groups.iter().fold(call, |call, group| call.arg(group.count));
        let hash = |group: &ChargeGroup| group.origin.map_or_else(String::new, |hash| format!("{hash:032x}"));
        groups.iter().filter(|_| has_origins).fold(call, |call, group| call.arg(hash(group)))
    }
}

fn name_of(subject: Subject) -> String {
    match subject {
        Subject::Key(id) => id.to_string(),
        Subject::Demo => "demo".to_owned(),
    }
}

/// Parses the reply: first the time, then two numbers for each group (see `lua/charge.lua`). `None` if its length or the
/// time is invalid. A group with invalid numbers is unavailable.
fn parse_reply(reply: &Value, groups: &[ChargeGroup]) -> Option<Vec<GroupOutcome>> {
    let Value::BulkString(bytes) = reply else { return None };
    let (numbers, []) = bytes.as_chunks::<8>() else { return None };
    let mut numbers = numbers.iter().map(|number| i64::from_le_bytes(*number));
    let now = numbers.next().filter(|now| *now >= 0)?;
    let outcome = |group| {
        let outcome = parse_group(group, now, numbers.next()?, numbers.next()?);
        Some(outcome.unwrap_or(GroupOutcome::Unavailable))
    };
    let outcomes = groups.iter().map(outcome).collect::<Option<_>>()?;
    numbers.next().is_none().then_some(outcomes)
}

fn parse_group(group: &ChargeGroup, now: i64, status: i64, counts: i64) -> Option<GroupOutcome> {
    let number = |n: i64| u32::try_from(n).ok();
    let (limit, code) = (status / 64, status % 64);
    let counted = |burst_exceeded| {
        let scope = match group.subject {
            Subject::Demo => None,
            Subject::Key(_) => Some(*Scope::ALL.get(usize::try_from(code % 4).ok()?)?),
        };
        let (allowed, over_daily) = (number(counts / 1024 % 1024)?, number(counts % 1024)?);
        let used = number(counts / 1024 / 1024).filter(|used| *used >= allowed)?;
        let limit = number(limit)?;
        let counts = GroupCounts { now, scope, limit, used, allowed, over_daily, burst_exceeded };
        Some(GroupOutcome::Counted(counts))
    };
    if matches!(code / 4, 6 | 7) {
        // The record was written under a wrong clock. It happens once per record, so this needs no throttle.
        tracing::warn!(key = name_of(group.subject), "{CORRECTED_FUTURE}");
    }
    match code / 4 {
        0 | 6 => counted(false),
        1 => Some(GroupOutcome::UnknownKey),
        2 => Some(GroupOutcome::Inactive),
        3 => Some(GroupOutcome::Paused { now, unannounced: None }),
        8 => Some(GroupOutcome::Paused { now, unannounced: Some(counts) }),
        9 => Some(GroupOutcome::Expired { at: number(counts)? }),
        10 => Some(GroupOutcome::WrongOrigin),
        11 => Some(GroupOutcome::Suspended),
        5 | 7 => counted(true),
        _ => Some(GroupOutcome::Unavailable),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use quota_api::{Limits, Outcome};

    use super::*;
    use crate::domain::id::KeyId;

    const KEY: ChargeGroup = ChargeGroup { subject: Subject::Key(KeyId([7; 16])), origin: None, count: 3 };
    const DEMO: ChargeGroup = ChargeGroup { subject: Subject::Demo, origin: None, count: 1 };

    fn reply(numbers: &[i64]) -> Value {
        Value::BulkString(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    #[test]
    fn reply_with_invalid_length_type_or_time_is_not_parsed() {
        let complete = [1_000, 4, 0, 4, 0];
        let parsed = parse_reply(&reply(&complete), &[KEY, DEMO]);
        assert_eq!(parsed, Some(vec![GroupOutcome::UnknownKey; 2]));
        let longer: Vec<u8> = [1_000_i64, 4, 0, 4, 0, 4, 0].into_iter().flat_map(i64::to_le_bytes).collect();
        for len in (0..=longer.len()).filter(|len| *len != 8 * complete.len()) {
            assert_eq!(parse_reply(&Value::BulkString(longer[..len].to_vec()), &[KEY, DEMO]), None, "{len}");
        }
        let integers = Value::Array(complete.map(Value::Int).to_vec());
        for other in [integers, Value::Nil, reply(&[-1, 4, 0, 4, 0])] {
            assert_eq!(parse_reply(&other, &[KEY, DEMO]), None);
        }
    }

    #[test]
    fn group_with_invalid_numbers_is_unavailable_and_the_next_is_not() {
        let (limit, scope, allowed) = (10 * 64, 1, 3 * 1024);
        let count = |used: i64| used * 1_048_576 + allowed;
        for (status, counts, is_valid) in [
            (limit + scope, count(3), true),
            (limit + scope, count(2), false),
            (limit + 3, count(3), false),
            (-1, count(3), false),
            (limit + scope, -1, false),
            (i64::MAX, count(3), false),
            (limit + scope, i64::MAX, false),
        ] {
            let parsed = parse_reply(&reply(&[1_000, status, counts, 4, 0]), &[KEY, DEMO]).unwrap();
            assert_eq!(parsed[0] != GroupOutcome::Unavailable, is_valid, "{status} {counts}: {parsed:?}");
            assert_eq!(parsed[1], GroupOutcome::UnknownKey);
        }
    }

    proptest! {
        #[test]
        fn verdicts_of_any_valid_counts_do_not_panic(
            now in 0..i64::MAX,
            limit in any::<u32>(),
            (outcome, scope) in (0..12i64, 0..3i64),
            (used, allowed, over_daily) in (any::<u32>(), 0..1024i64, 0..1024i64),
        ) {
            let status = i64::from(limit) * 64 + outcome * 4 + scope;
            let counts = i64::from(used) * 1_048_576 + allowed * 1024 + over_daily;
            let group = ChargeGroup { count: 1_023, ..KEY };
            let outcomes = parse_reply(&reply(&[now, status, counts]), &[group]).unwrap();
            for index in 0..group.count {
                let verdict = outcomes[0].verdict(index, &Limits::default());
                prop_assert!(verdict.outcome != Outcome::Allowed || i64::from(index) < allowed);
            }
        }
    }
}
