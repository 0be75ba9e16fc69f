//! Limits password guesses and mass sign-ups, per login and per client address.
//!
//! Logins and addresses are not stored, only a keyed hash of each. The key is random and never leaves the process.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ring::hmac;

/// Maximum number of entries, which use a few megabytes. When it is reached, [`evict`] makes room.
const MAX_ENTRIES: usize = 65_536;

/// Kind of attempt. Each kind is counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    SignIn,
    SignUp,
}

/// Allows `burst` attempts without delay, then one per `interval`.
#[derive(Debug, Clone, Copy)]
struct AttemptRate {
    burst: u32,
    interval: Duration,
}

impl Attempt {
    fn by_login(self) -> AttemptRate {
        AttemptRate { burst: 10, interval: Duration::from_secs(30) }
    }

    /// The burst is larger than per login, because many people may share an address.
    fn by_address(self) -> AttemptRate {
        match self {
            Self::SignIn => AttemptRate { burst: 60, interval: Duration::from_secs(5) },
            Self::SignUp => AttemptRate { burst: 20, interval: Duration::from_secs(60) },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many attempts")]
pub struct Throttled {
    pub retry_after: Duration,
}

type Digest = [u8; 16];

/// Counts attempts, with the generic cell rate algorithm (GCRA).
pub struct Throttle {
    key: hmac::Key,
    /// GCRA's theoretical arrival time per login and per address: from then on the full burst is available again.
    arrival_times: Mutex<HashMap<Digest, Instant>>,
}

impl Throttle {
    /// Starts without counted attempts, with a random key.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), arrival_times: Mutex::default() })
    }

    /// Counts an attempt for its login and its address, or rejects it. Rejected attempts are not counted.
    pub fn attempt(
        &self,
        attempt: Attempt,
        login: &str,
        address: IpAddr,
        now: Instant,
    ) -> Result<(), Throttled> {
        let login = (self.login_digest(attempt, login), attempt.by_login());
        let address = (self.address_digest(attempt, address), attempt.by_address());
        let mut arrival_times = self.arrival_times.lock().unwrap_or_else(PoisonError::into_inner);
        let checked = [login, address]
            .map(|(digest, rate)| next(arrival_times.get(&digest), rate, now).map(|at| (digest, at)));
        let [login, address] = checked;
        for (digest, at) in [login?, address?] {
            evict(&mut arrival_times, now);
            arrival_times.insert(digest, at);
        }
        Ok(())
    }

    /// Resets the login's count after a correct password. The address keeps its count: otherwise the owner of one
    /// account could guess the passwords of others without limit.
    pub fn reset_login(&self, attempt: Attempt, login: &str) {
        let digest = self.login_digest(attempt, login);
        self.arrival_times.lock().unwrap_or_else(PoisonError::into_inner).remove(&digest);
    }

    fn login_digest(&self, attempt: Attempt, login: &str) -> Digest {
        // Normalized as in quota-svc, so that every spelling of a login shares one count.
        self.digest(attempt, b"login", login.trim().to_lowercase().as_bytes())
    }

    fn address_digest(&self, attempt: Attempt, address: IpAddr) -> Digest {
        match address {
            IpAddr::V4(address) => self.digest(attempt, b"v4", &address.octets()),
            // One subscriber usually has a whole /64.
            IpAddr::V6(address) => self.digest(attempt, b"v6", &prefix_64(address)),
        }
    }

    fn digest(&self, attempt: Attempt, kind: &[u8], value: &[u8]) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&[attempt as u8]);
        context.update(kind);
        context.update(&[0]);
        context.update(value);
        let tag = context.sign();
        tag.as_ref()[..16].try_into().expect("an HMAC-SHA256 tag has 32 bytes")
    }
}

fn prefix_64(address: Ipv6Addr) -> [u8; 8] {
    address.octets()[..8].try_into().expect("an IPv6 address has 16 bytes")
}

/// Counts one attempt. Returns the new theoretical arrival time of GCRA, or an error if the rate is exceeded.
fn next(arrival_time: Option<&Instant>, rate: AttemptRate, now: Instant) -> Result<Instant, Throttled> {
    let next = arrival_time.copied().unwrap_or(now).max(now) + rate.interval;
    let latest = now + rate.interval * rate.burst;
    match next > latest {
        true => Err(Throttled { retry_after: next - latest }),
        false => Ok(next),
    }
}

/// If the map is full, drops the entries for which the full burst is available again. If that is not enough, also drops
/// the half with the earliest arrival times.
fn evict(arrival_times: &mut HashMap<Digest, Instant>, now: Instant) {
    if arrival_times.len() < MAX_ENTRIES {
        return;
    }
    arrival_times.retain(|_, at| *at > now);
    if arrival_times.len() >= MAX_ENTRIES {
        let mut times: Vec<_> = arrival_times.values().copied().collect();
        let (_, median, _) = times.select_nth_unstable(MAX_ENTRIES / 2);
        let median = *median;
        arrival_times.retain(|_, at| *at > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// Makes `count` attempts and returns how many were allowed.
    fn attempts(throttle: &Throttle, login: &str, count: usize, now: Instant) -> usize {
        (0..count).filter(|_| throttle.attempt(Attempt::SignIn, login, ADDRESS, now).is_ok()).count()
    }

    #[test]
    fn login_gets_ten_attempts_then_one_per_30_seconds() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        assert_eq!(attempts(&throttle, "ada", 20, now), 10);
        let throttled = throttle.attempt(Attempt::SignIn, " ADA ", ADDRESS, now).unwrap_err();
        assert_eq!(throttled.retry_after, Duration::from_secs(30));
        assert_eq!(attempts(&throttle, "ada", 20, now + Duration::from_secs(30)), 1);
        assert_eq!(attempts(&throttle, "grace", 1, now), 1, "other logins are not affected");
        assert_eq!(attempts(&throttle, "ada", 20, now + Duration::from_secs(900)), 10);
    }

    #[test]
    fn address_limit_spans_all_logins() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        let allowed = (0..200).filter(|i| attempts(&throttle, &format!("login{i}"), 1, now) == 1).count();
        assert_eq!(allowed, 60);
        let other = "192.0.2.2".parse().unwrap();
        assert!(throttle.attempt(Attempt::SignIn, "ada", other, now).is_ok());
        assert!(
            throttle.attempt(Attempt::SignUp, "ada", ADDRESS, now).is_ok(),
            "sign-ups are counted separately"
        );
    }

    #[test]
    fn ipv6_addresses_in_one_slash_64_share_a_limit() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        let neighbor = |i: u32| IpAddr::V6(Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(i)));
        let allowed = (0..200)
            .filter(|i| throttle.attempt(Attempt::SignIn, &format!("l{i}"), neighbor(*i), now).is_ok());
        assert_eq!(allowed.count(), 60);
    }

    #[test]
    fn correct_password_resets_the_login_only() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        for _ in 0..6 {
            assert_eq!(attempts(&throttle, "ada", 10, now), 10);
            throttle.reset_login(Attempt::SignIn, "Ada");
        }
        assert_eq!(attempts(&throttle, "ada", 10, now), 0, "the limit of 60 per address is reached");
    }

    #[test]
    fn full_map_evicts_earliest_arrival_times_first() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        assert_eq!(attempts(&throttle, "ada", 20, now), 10);
        for i in 0..(2 * MAX_ENTRIES as u32) {
            let address = IpAddr::from(i.to_be_bytes());
            let _ = throttle.attempt(Attempt::SignIn, &i.to_string(), address, now);
        }
        assert!(throttle.arrival_times.lock().unwrap().len() <= MAX_ENTRIES);
        assert_eq!(attempts(&throttle, "ada", 1, now), 0, "the throttled login must not be evicted");
    }
}
