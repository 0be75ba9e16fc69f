//! Charges: one script call per batch on a single server, and one per master in a Cluster.

use std::time::Instant;

use quota_api::{Scope, Verdict};
use redis::{ServerErrorKind, Value};

use super::RedisStore;
use super::call::{CHARGE, Call, CallError, is};
use super::redis_keys::RedisKey;
use super::topology::Part;
use crate::domain::record::CORRECTED_FUTURE;
use crate::domain::verdict::{ChargeGroup, GroupCounts, GroupOutcome, Subject};

/// The status of a group whose record can't be accessed: outcome 12.
const INACCESSIBLE: i64 = 12 * 4;

impl RedisStore {
    pub(super) async fn charge_groups(&self, groups: &[ChargeGroup]) -> Vec<GroupOutcome> {
        let mut outcomes = vec![GroupOutcome::Unavailable; groups.len()];
        if groups.is_empty() {
            return outcomes;
        }
        let deadline = Instant::now() + self.store_timeout;
        let record_of = |group: &ChargeGroup| match group.subject {
            Subject::Key(id) => self.redis_keys.record(id),
            Subject::Demo => self.redis_keys.demo(),
        };
        let records: Vec<RedisKey> = groups.iter().map(record_of).collect();
        let parts = self.charges.divide(&records);
        let elsewhere = self.charge_parts(&parts, &records, groups, &mut outcomes, deadline).await;
        // Sent again only if there is time for a reply: without it, the charges would be counted and fail.
        if !elsewhere.is_empty() && Instant::now() < deadline {
            // Boxed, because it is rare.
            Box::pin(self.charge_parts(&elsewhere, &records, groups, &mut outcomes, deadline)).await;
        }
        outcomes
    }

    /// Makes a call for each part and sets the outcomes. Returns the groups whose records are not on the server of their call,
    /// so that nothing was written for them. Alone, with its record declared, each is redirected to the right server.
    async fn charge_parts(
        &self,
        parts: &[Part],
        records: &[RedisKey],
        groups: &[ChargeGroup],
        outcomes: &mut [GroupOutcome],
        deadline: Instant,
    ) -> Vec<Part> {
        let calls: Vec<Call<'_>> = parts.iter().map(|part| self.charge_call(part, records, groups)).collect();
        let replies = self.charges.send_all(&calls, deadline).await;
        let mut elsewhere = Vec::new();
        let mut send_alone =
            |position| elsewhere.push(Part { positions: vec![position], spans_slots: false });
        for (part, reply) in parts.iter().zip(replies) {
            let reply = match reply {
                Ok(reply) => reply.value,
                // Their slot migrates, and some of the records have moved.
                Err(CallError::Failed(error)) if is(&error, ServerErrorKind::TryAgain) => {
                    part.positions.iter().copied().for_each(&mut send_alone);
                    continue;
                }
                // The background task of the connection has already logged a warning.
                Err(CallError::Down(_)) => continue,
                Err(error) => {
                    if let Some(occurrences) = self.charge_failures.allow() {
                        tracing::warn!(%error, occurrences, "charges failed");
                    }
                    continue;
                }
            };
            let own_groups = part.positions.iter().map(|position| &groups[*position]);
            let invalid = || vec![Some(GroupOutcome::Unavailable); part.positions.len()];
            let parsed = parse_reply(&reply, own_groups).unwrap_or_else(invalid);
            for (&position, outcome) in part.positions.iter().zip(parsed) {
                if outcome.is_none() && part.spans_slots {
                    send_alone(position);
                    continue;
                }
                outcomes[position] = outcome.unwrap_or(GroupOutcome::Unavailable);
                if outcomes[position] == GroupOutcome::Unavailable && self.invalid_records.allow().is_some() {
                    let key = name_of(groups[position].subject);
                    tracing::warn!(key, "can't read a stored key record; charges for this key fail");
                }
            }
        }
        elsewhere
    }

    fn charge_call<'a>(&self, part: &Part, records: &'a [RedisKey], groups: &[ChargeGroup]) -> Call<'a> {
        let limits = &self.limits;
        let own_records = part.positions.iter().map(|position| &records[*position]);
        let groups = || part.positions.iter().map(|position| &groups[*position]);
        let has_demo = groups().any(|group| group.subject == Subject::Demo);
        let demo_limit = if has_demo { limits.demo.to_string() } else { String::new() };
        let with_limits =
            |call: Call<'a>| call.arg(limits.daily).arg(limits.burst).arg(demo_limit).arg(self.now_arg());
        let call = if part.spans_slots {
            let call = with_limits(CHARGE.undeclared(&records[part.positions[0]])).arg(own_records.len());
            own_records.fold(call, |call, record| call.arg(record.as_str()))
        } else {
            with_limits(CHARGE.on(own_records))
        };
        let has_origins = groups().any(|group| group.origin.is_some());
        // Common case: every count is 1 and no request has an origin, so omit both.
        if !has_origins && groups().all(|group| group.count == 1) {
            return call;
        }
        let call = groups().fold(call, |call, group| call.arg(group.count));
        let hash =
            |group: &ChargeGroup| group.origin.map_or_else(Vec::new, |hash| hash.to_be_bytes().to_vec());
        groups().filter(|_| has_origins).fold(call, |call, group| call.arg(hash(group)))
    }
}

fn name_of(subject: Subject) -> String {
    match subject {
        Subject::Key(id) => id.to_string(),
        Subject::Demo => "demo".to_owned(),
    }
}

/// Parses the reply: first the time, then two numbers for each group (see `lua/charge.lua`). `None` if its length or the
/// time is invalid. A group with invalid numbers is unavailable; one whose record can't be accessed has no outcome.
fn parse_reply<'a>(
    reply: &Value,
    groups: impl IntoIterator<Item = &'a ChargeGroup>,
) -> Option<Vec<Option<GroupOutcome>>> {
    let Value::BulkString(bytes) = reply else { return None };
    let (numbers, []) = bytes.as_chunks::<8>() else { return None };
    let mut numbers = numbers.iter().map(|number| i64::from_le_bytes(*number));
    let now = numbers.next().filter(|now| *now >= 0)?;
    let outcome = |group| {
        let (status, counts) = (numbers.next()?, numbers.next()?);
        let parsed = || parse_group(group, now, status, counts).unwrap_or(GroupOutcome::Unavailable);
        Some((status != INACCESSIBLE).then(parsed))
    };
    let outcomes = groups.into_iter().map(outcome).collect::<Option<_>>()?;
    numbers.next().is_none().then_some(outcomes)
}

fn parse_group(group: &ChargeGroup, now: i64, status: i64, counts: i64) -> Option<GroupOutcome> {
    let number = |n: i64| u32::try_from(n).ok();
    let denied = |verdict| Some(GroupOutcome::Denied(verdict));
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
        1 => denied(Verdict::UnknownKey),
        2 => denied(Verdict::Inactive),
        3 => Some(GroupOutcome::Paused { now }),
        9 => denied(Verdict::Expired { at: number(counts)? }),
        10 => denied(Verdict::WrongOrigin),
        11 => denied(Verdict::Suspended),
        5 | 7 => counted(true),
        _ => None,
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
    const UNKNOWN_KEY: GroupOutcome = GroupOutcome::Denied(Verdict::UnknownKey);

    fn reply(numbers: &[i64]) -> Value {
        Value::BulkString(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    #[test]
    fn reply_with_invalid_length_type_or_time_is_not_parsed() {
        let complete = [1_000, 4, 0, 4, 0];
        let parsed = parse_reply(&reply(&complete), &[KEY, DEMO]);
        assert_eq!(parsed, Some(vec![Some(UNKNOWN_KEY); 2]));
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
            let is_unavailable = parsed[0] == Some(GroupOutcome::Unavailable);
            assert_eq!(is_unavailable, !is_valid, "{status} {counts}: {parsed:?}");
            assert_eq!(parsed[1], Some(UNKNOWN_KEY));
        }
    }

    #[test]
    fn group_whose_record_is_inaccessible_has_no_outcome() {
        let numbers = [1_000, INACCESSIBLE, 0, 16, 0];
        let parsed = parse_reply(&reply(&numbers), &[KEY, KEY]);
        assert_eq!(parsed, Some(vec![None, Some(GroupOutcome::Unavailable)]));
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
                let verdict = outcomes[0].unwrap().verdict(index, &Limits::default());
                prop_assert!(verdict.outcome() != Outcome::Allowed || i64::from(index) < allowed);
            }
        }
    }
}
