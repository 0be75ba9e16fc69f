//! What a restart must not forget, and when to order a certificate: at two thirds of its lifetime, and after failures with a
//! growing delay. CAs allow few failures per hour.

use std::fs::{self, DirBuilder};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use base::atomic_file;
use serde::{Deserialize, Serialize};

const FILE: &str = "state.json";

/// The content of `state.json`.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// ACME directory of the CA.
    pub directory: String,
    /// Key ID of the external account binding.
    pub eab_kid: Option<String>,
    /// The account's URL and private key, in the format of instant-acme.
    pub account: Option<serde_json::Value>,
    /// The account's contact.
    pub email: String,
    /// Whether the stored certificate is from this CA.
    pub issued: bool,
    /// The host names of the certificate, sorted.
    pub hosts: Vec<String>,
    /// The failed attempts since the last certificate.
    pub failures: Option<Failures>,
}

#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    pub temporary: u32,
    pub rejected: u32,
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

impl State {
    /// Reads the file in `dir`. One that is missing or damaged is replaced later. Another CA needs a new account and a new
    /// certificate; other host names make earlier failures irrelevant.
    pub fn load(dir: &Path, directory: &str, eab_kid: Option<&str>, hosts: Vec<String>) -> Self {
        let path = dir.join(FILE);
        let parse = |content: Vec<u8>| {
            let parsed = serde_json::from_slice::<Self>(&content);
            let damaged =
                |error: &_| tracing::warn!(file = %path.display(), %error, "file is damaged; ignored");
            parsed.inspect_err(damaged).ok()
        };
        let is_same_ca = |state: &Self| state.directory == directory && state.eab_kid.as_deref() == eab_kid;
        let mut state = fs::read(&path).ok().and_then(parse).filter(is_same_ca).unwrap_or_default();
        if state.hosts != hosts {
            state.failures = None;
        }
        Self { directory: directory.to_owned(), eab_kid: eab_kid.map(str::to_owned), hosts, ..state }
    }

    pub fn save(&self, dir: &Path) -> anyhow::Result<()> {
        write(dir, FILE, &serde_json::to_vec_pretty(self)?)
    }
}

/// Writes a file in `dir`, both readable only by the user who runs ip-lookup.
pub fn write(dir: &Path, file: &str, content: &[u8]) -> anyhow::Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    let written = created.and_then(|()| atomic_file::replace(&dir.join(file), content));
    written.context("can't write to the data directory")
}

impl Failures {
    pub fn retry_at(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.retry_at)).unwrap_or(UNIX_EPOCH)
    }

    /// Counts a failed attempt and sets the time of the next one.
    pub fn add(mut self, kind: FailureKind, reason: String, now: SystemTime) -> Self {
        let (count, min, max) = match kind {
            FailureKind::Temporary => (&mut self.temporary, TEMPORARY_MIN, TEMPORARY_MAX),
            FailureKind::Rejected | FailureKind::RateLimited => (&mut self.rejected, REJECTED_MIN, MAX),
        };
        let doublings = (*count).min(20);
        *count = count.saturating_add(1);
        let delay = min.saturating_mul(1 << doublings).min(max);
        let delay = if kind == FailureKind::RateLimited { delay.max(RATE_LIMITED_MIN) } else { delay };
        // Up to a quarter of the delay, so that machines that failed together do not retry together. None without randomness.
        let jitter =
            delay.mul_f64(f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX) / 4.0);
        let retry_at = (now + delay + jitter).duration_since(UNIX_EPOCH).unwrap_or_default();
        // Rounded up: a delay is never shortened.
        self.retry_at = retry_at.as_secs() + 1;
        self.reason = reason;
        self
    }
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
    // The limit matters only if the clock was set back.
    failures.map_or(due, |failures| due.max(failures.retry_at().min(now + MAX + MAX / 4)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NOW: SystemTime = UNIX_EPOCH;

    fn seconds(time: SystemTime) -> u64 {
        time.duration_since(NOW).unwrap().as_secs()
    }

    fn failed(kinds: &[FailureKind]) -> Failures {
        kinds.iter().fold(Failures::default(), |failures, kind| failures.add(*kind, "reason".to_owned(), NOW))
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
        let dir = tempfile::tempdir().unwrap();
        let load = |directory, eab_kid, hosts: &[&str]| {
            State::load(dir.path(), directory, eab_kid, hosts.iter().map(|name| (*name).to_owned()).collect())
        };
        let mut state = load("https://ca.example", None, &["a.example"]);
        (state.issued, state.failures) = (true, Some(failed(&[FailureKind::Rejected])));
        state.save(dir.path()).unwrap();
        assert_eq!(load("https://ca.example", None, &["a.example"]), state);
        let other = load("https://ca.example", None, &["a.example", "b.example"]);
        assert_eq!((other.issued, other.failures), (true, None));
        for other in [
            load("https://other.example", None, &["a.example"]),
            load("https://ca.example", Some("1"), &["a.example"]),
        ] {
            assert_eq!((other.issued, other.failures), (false, None));
        }
    }

    #[test]
    fn files_are_private_and_damaged_ones_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let acme = dir.path().join("acme");
        let load = || State::load(&acme, "https://ca.example", None, vec!["a.example".to_owned()]);
        let missing = load();
        assert!(!missing.issued && missing.account.is_none());
        assert!(!acme.exists(), "reading creates nothing");
        let state = State { issued: true, ..load() };
        state.save(&acme).unwrap();
        write(&acme, "certificate.pem", b"certificate").unwrap();
        assert_eq!(load(), state);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&acme), 0o700);
        assert_eq!((mode(&acme.join("certificate.pem")), mode(&acme.join("state.json"))), (0o600, 0o600));
        fs::write(acme.join("state.json"), "{").unwrap();
        assert_eq!(load(), missing);
    }
}
