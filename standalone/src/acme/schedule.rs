//! When to order a certificate: at two thirds of its lifetime, and after failures with a growing delay, which is stored so
//! that a restart does not shorten it. CAs allow few failures per hour.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// What a restart must not forget.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// ACME directory of the CA that issued the stored certificate.
    pub issued_by: Option<String>,
    /// The failed attempts since then.
    pub failures: Option<Failures>,
}

/// The failed attempts to get a certificate for a set of host names from a CA.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Failures {
    directory: String,
    hosts: Vec<String>,
    temporary: u32,
    rejected: u32,
    /// Unix time of the next attempt, in seconds.
    retry_at: u64,
    /// Why the last attempt failed.
    pub reason: String,
}

/// How soon to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The CA could not be reached, or could not handle a request now. Not counted by the CA.
    Temporary,
    /// The CA rejected the order or could not validate a host name.
    Rejected,
    /// The CA says that there were too many requests.
    RateLimited,
}

const TEMPORARY_MIN: Duration = Duration::from_secs(5);
const TEMPORARY_MAX: Duration = Duration::from_secs(10 * 60);
/// With these delays, at most 5 attempts fall into the first 15 minutes. Let's Encrypt allows 5 failed validations per
/// host name per hour; one is refilled every 12 minutes.
const REJECTED_MIN: Duration = Duration::from_secs(60);
const RATE_LIMITED_MIN: Duration = Duration::from_secs(60 * 60);
const MAX: Duration = Duration::from_secs(6 * 60 * 60);

impl Failures {
    pub fn new(directory: &str, hosts: &[String]) -> Self {
        let (directory, hosts) = (directory.to_owned(), hosts.to_owned());
        Self { directory, hosts, temporary: 0, rejected: 0, retry_at: 0, reason: String::new() }
    }

    pub fn is_for(&self, directory: &str, hosts: &[String]) -> bool {
        self.directory == directory && self.hosts == hosts
    }

    pub fn attempts(&self) -> u32 {
        self.temporary.saturating_add(self.rejected)
    }

    pub fn retry_at(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.retry_at)).unwrap_or(UNIX_EPOCH)
    }

    /// Counts a failed attempt and sets the time of the next one.
    pub fn add(mut self, kind: FailureKind, reason: String, now: SystemTime) -> Self {
        let delay = match kind {
            FailureKind::Temporary => {
                self.temporary = self.temporary.saturating_add(1);
                backoff(TEMPORARY_MIN, TEMPORARY_MAX, self.temporary)
            }
            FailureKind::Rejected | FailureKind::RateLimited => {
                self.rejected = self.rejected.saturating_add(1);
                backoff(REJECTED_MIN, MAX, self.rejected)
            }
        };
        let delay = if kind == FailureKind::RateLimited { delay.max(RATE_LIMITED_MIN) } else { delay };
        let retry_at = now + delay + jitter(delay);
        // Rounded up: a delay is never shortened.
        self.retry_at = retry_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() + 1;
        self.reason = reason;
        self
    }
}

/// `min` after the first failure, doubled after each further one.
fn backoff(min: Duration, max: Duration, failures: u32) -> Duration {
    min.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(max)
}

/// Up to a quarter of the delay, so that machines that failed together do not retry together.
fn jitter(delay: Duration) -> Duration {
    // Without randomness, the delay has no jitter.
    let random = getrandom::u32().unwrap_or_default();
    delay.mul_f64(f64::from(random) / f64::from(u32::MAX) / 4.0)
}

/// When to renew a certificate.
pub fn renewal_time(validity: &Range<SystemTime>) -> SystemTime {
    let lifetime = validity.end.duration_since(validity.start).unwrap_or_default();
    validity.start + lifetime / 3 * 2
}

/// When to order a certificate. `validity` is that of the current one.
pub fn next_attempt(
    validity: Option<Range<SystemTime>>,
    failures: Option<&Failures>,
    now: SystemTime,
) -> SystemTime {
    let due = validity.map_or(now, |validity| renewal_time(&validity));
    match failures {
        // The limit matters only if the clock was set back.
        Some(failures) => due.max(failures.retry_at().min(now + MAX + MAX / 4)),
        None => due,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = UNIX_EPOCH;

    fn seconds(time: SystemTime) -> u64 {
        time.duration_since(NOW).unwrap().as_secs()
    }

    fn failed(kinds: &[FailureKind]) -> Failures {
        let first = Failures::new("https://ca.example", &["a.example".to_owned()]);
        kinds.iter().fold(first, |failures, kind| failures.add(*kind, "reason".to_owned(), NOW))
    }

    #[test]
    fn delay_doubles_from_a_minute_to_six_hours_with_jitter() {
        let mut kinds = Vec::new();
        for minutes in [1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360] {
            kinds.push(FailureKind::Rejected);
            let delay = seconds(failed(&kinds).retry_at());
            assert!((minutes * 60..=minutes * 75 + 1).contains(&delay), "{minutes} min: {delay} s");
        }
        let delays: std::collections::BTreeSet<_> =
            (0..20).map(|_| seconds(failed(&kinds).retry_at())).collect();
        assert!(delays.len() > 1, "no jitter: {delays:?}");
    }

    #[test]
    fn unreachable_ca_is_retried_sooner_and_does_not_lengthen_the_delay_of_rejected_orders() {
        use FailureKind::{RateLimited, Rejected, Temporary};
        for (kinds, range) in [
            (&[Temporary][..], 5..=8),
            (&[Temporary, Temporary], 10..=14),
            (&[Temporary; 20], 600..=751),
            (&[Temporary, Temporary, Temporary, Rejected], 60..=76),
            (&[Rejected, Temporary], 5..=8),
            (&[Rejected, Temporary, Rejected], 120..=151),
            (&[RateLimited], 3600..=4501),
        ] {
            let delay = seconds(failed(kinds).retry_at());
            assert!(range.contains(&delay), "{kinds:?}: {delay} s");
        }
    }

    #[test]
    fn certificate_is_renewed_at_two_thirds_of_its_lifetime() {
        let day = Duration::from_secs(86_400);
        let validity = NOW + day..NOW + 91 * day;
        assert_eq!(next_attempt(Some(validity.clone()), None, NOW), NOW + 61 * day);
        assert_eq!(next_attempt(None, None, NOW), NOW);
        let failures = failed(&[FailureKind::Rejected]);
        assert_eq!(next_attempt(None, Some(&failures), NOW), failures.retry_at());
        let later = NOW + 62 * day;
        assert!(next_attempt(Some(validity), Some(&failures), later) < later, "due and no delay left");
    }

    #[test]
    fn clock_that_was_set_back_does_not_stop_attempts() {
        let failures = failed(&[FailureKind::Rejected]).add(
            FailureKind::Rejected,
            String::new(),
            NOW + Duration::from_secs(400 * 86_400),
        );
        assert!(seconds(next_attempt(None, Some(&failures), NOW)) <= 27_000);
    }

    #[test]
    fn failures_of_other_hosts_or_another_ca_are_irrelevant() {
        let failures = failed(&[]);
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(failures.is_for("https://ca.example", &hosts(&["a.example"])));
        assert!(!failures.is_for("https://other.example", &hosts(&["a.example"])));
        assert!(!failures.is_for("https://ca.example", &hosts(&["a.example", "b.example"])));
    }
}
