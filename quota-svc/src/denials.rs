//! Refusals that need not be asked for again, for less than two seconds and never past a change made here.
//!
//! Only refusals that charge nothing are kept: a paused key, an unknown key, the exhausted demo. A used-up day must
//! still count towards the burst, and a permission is never remembered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;

use crate::domain::time::{day_of, midnight_after};
use crate::domain::verdict::{Judged, Subject, Tally};

/// How long a refusal is kept: a resume made elsewhere is promised to be seen within 2 s, its way included.
const LIFE: Duration = Duration::from_millis(1_800);

/// The refusals kept at the same time; about 10 MB.
const CAPACITY: usize = 100_000;

/// Refusals by subject.
pub struct Denials {
    kept: Cache<Subject, Denial>,
    /// Counts the changes made here: what was judged before one must not be kept after it.
    changes: AtomicU64,
}

#[derive(Clone, Copy)]
struct Denial {
    judged: Judged,
    since: Instant,
    until: Instant,
}

/// The number of changes when a charge set out.
#[derive(Debug, Clone, Copy)]
pub struct SetOut(u64);

impl Denials {
    /// None so far.
    pub fn new() -> Self {
        Self { kept: Cache::new(CAPACITY), changes: AtomicU64::new(0) }
    }

    /// To be called before the store is asked.
    pub fn set_out(&self) -> SetOut {
        SetOut(self.changes.load(Ordering::Acquire))
    }

    /// The refusal that is still known, as it would be given at `now`.
    pub fn find(&self, subject: &Subject, now: Instant) -> Option<Judged> {
        let denial = self.kept.get(subject).filter(|denial| now < denial.until)?;
        let later = i64::try_from(now.duration_since(denial.since).as_millis()).unwrap_or(0);
        Some(match denial.judged {
            Judged::Paused { now } => Judged::Paused { now: now + later },
            Judged::Tally(tally) => Judged::Tally(Tally { now: tally.now + later, ..tally }),
            other => other,
        })
    }

    /// Keeps what was judged, if it is a refusal of that kind and nothing was changed since `set_out`.
    pub fn keep(&self, subject: Subject, judged: &Judged, set_out: SetOut, now: Instant) {
        let Some((judged, life)) = refusal(subject, judged) else { return };
        if self.changes.load(Ordering::Acquire) == set_out.0 {
            self.kept.insert(subject, Denial { judged, since: now, until: now + life });
            // A change may have come between the check and the insertion.
            if self.changes.load(Ordering::Acquire) != set_out.0 {
                self.kept.remove(&subject);
            }
        }
    }

    /// Forgets a subject that was changed through this process.
    pub fn forget(&self, subject: &Subject) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.kept.remove(subject);
    }
}

impl Default for Denials {
    fn default() -> Self {
        Self::new()
    }
}

/// What to answer from now on, and for how long.
fn refusal(subject: Subject, judged: &Judged) -> Option<(Judged, Duration)> {
    match judged {
        Judged::Unknown | Judged::Paused { .. } => Some((*judged, LIFE)),
        Judged::Tally(tally) if tally.paused => Some((Judged::Paused { now: tally.now }, LIFE)),
        Judged::Tally(tally) if subject == Subject::Demo && tally.is_exhausted() => {
            let midnight = i64::try_from(midnight_after(day_of(tally.now)) * 1000).unwrap_or(i64::MAX);
            let left = Duration::from_millis(u64::try_from(midnight - tally.now).unwrap_or(0));
            let exhausted = Tally { allowed: 0, refused: u32::MAX, ..*tally };
            Some((Judged::Tally(exhausted), LIFE.min(left)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::KeyId;

    const KEY: Subject = Subject::Key(KeyId([7; 16]));

    fn tally(allowed: u32, refused: u32, paused: bool) -> Judged {
        Judged::Tally(Tally { now: 1_000, scope: None, limit: 5, used: 5, allowed, refused, paused })
    }

    #[test]
    fn permissions_and_used_up_days_are_never_kept() {
        let denials = Denials::new();
        let now = Instant::now();
        for judged in [tally(1, 0, false), tally(0, 1, false), Judged::Inactive, Judged::Unavailable] {
            denials.keep(KEY, &judged, denials.set_out(), now);
            assert_eq!(denials.find(&KEY, now), None, "{judged:?}");
        }
    }

    #[test]
    fn a_pause_is_kept_for_its_life_and_its_time_goes_on() {
        let denials = Denials::new();
        let now = Instant::now();
        denials.keep(KEY, &tally(3, 0, true), denials.set_out(), now);
        let later = now + Duration::from_millis(1_500);
        assert_eq!(denials.find(&KEY, later), Some(Judged::Paused { now: 2_500 }));
        assert_eq!(denials.find(&KEY, now + LIFE), None);
    }

    #[test]
    fn a_change_forgets_and_what_set_out_before_it_is_not_kept() {
        let denials = Denials::new();
        let now = Instant::now();
        let before = denials.set_out();
        denials.forget(&KEY);
        denials.keep(KEY, &Judged::Unknown, before, now);
        assert_eq!(denials.find(&KEY, now), None);
        denials.keep(KEY, &Judged::Unknown, denials.set_out(), now);
        assert_eq!(denials.find(&KEY, now), Some(Judged::Unknown));
        denials.forget(&KEY);
        assert_eq!(denials.find(&KEY, now), None);
    }

    #[test]
    fn the_exhausted_demo_is_not_kept_past_its_midnight() {
        let denials = Denials::new();
        let now = Instant::now();
        let exhausted = Judged::Tally(Tally::demo(86_399_500, 5, 5, 1, 0));
        denials.keep(Subject::Demo, &exhausted, denials.set_out(), now);
        let Some(Judged::Tally(kept)) = denials.find(&Subject::Demo, now) else { panic!("kept") };
        assert_eq!((kept.allowed, kept.refused), (0, u32::MAX));
        assert_eq!(denials.find(&Subject::Demo, now + Duration::from_millis(500)), None);
    }
}
