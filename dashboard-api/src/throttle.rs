//! Slows down who guesses passwords or makes accounts in bulk, by login and by client address.
//!
//! Neither is kept: only a keyed hash of it, with a key that lives as long as the process.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ring::hmac;

/// The most hashes remembered: some megabytes. A crowd beyond that makes the half closest to being forgiven go.
const MAX_ENTRIES: usize = 65_536;

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// A password is given for an account.
    SignIn,
    /// An account is made.
    SignUp,
}

/// So many at once, then one each so often.
#[derive(Debug, Clone, Copy)]
struct Pace {
    burst: u32,
    every: Duration,
}

impl Attempt {
    fn by_login(self) -> Pace {
        Pace { burst: 10, every: Duration::from_secs(30) }
    }

    /// Many people may share an address.
    fn by_address(self) -> Pace {
        match self {
            Self::SignIn => Pace { burst: 60, every: Duration::from_secs(5) },
            Self::SignUp => Pace { burst: 20, every: Duration::from_secs(60) },
        }
    }
}

/// Too many: try again after so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many attempts")]
pub struct Throttled {
    /// How long to wait.
    pub retry_after: Duration,
}

type Digest = [u8; 16];

/// Remembers attempts.
pub struct Throttle {
    key: hmac::Key,
    /// When each one's attempts will all be forgiven.
    forgiven: Mutex<HashMap<Digest, Instant>>,
}

impl Throttle {
    /// Nothing remembered, with a new key.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), forgiven: Mutex::default() })
    }

    /// Counts an attempt, or refuses it; a refused one is not counted.
    pub fn attempt(
        &self,
        attempt: Attempt,
        login: &str,
        address: IpAddr,
        now: Instant,
    ) -> Result<(), Throttled> {
        let login = (self.login_digest(attempt, login), attempt.by_login());
        let address = (self.address_digest(attempt, address), attempt.by_address());
        let mut forgiven = self.forgiven.lock().unwrap_or_else(PoisonError::into_inner);
        let checked = [login, address]
            .map(|(digest, pace)| next(forgiven.get(&digest), pace, now).map(|at| (digest, at)));
        let [login, address] = checked;
        for (digest, at) in [login?, address?] {
            make_room(&mut forgiven, now);
            forgiven.insert(digest, at);
        }
        Ok(())
    }

    /// The attempt was right: the login starts anew. The address does not, or whoever has one account could try
    /// others without end.
    pub fn succeeded(&self, attempt: Attempt, login: &str) {
        let digest = self.login_digest(attempt, login);
        self.forgiven.lock().unwrap_or_else(PoisonError::into_inner).remove(&digest);
    }

    fn login_digest(&self, attempt: Attempt, login: &str) -> Digest {
        // As quota-svc compares logins.
        self.digest(attempt, b"login", login.trim().to_lowercase().as_bytes())
    }

    fn address_digest(&self, attempt: Attempt, address: IpAddr) -> Digest {
        match address {
            IpAddr::V4(address) => self.digest(attempt, b"v4", &address.octets()),
            // A household has a whole /64.
            IpAddr::V6(address) => self.digest(attempt, b"v6", &network(address)),
        }
    }

    fn digest(&self, attempt: Attempt, kind: &[u8], value: &[u8]) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&[attempt as u8]);
        context.update(kind);
        context.update(&[0]);
        context.update(value);
        let tag = context.sign();
        tag.as_ref()[..16].try_into().expect("a tag has 32 bytes")
    }
}

fn network(address: Ipv6Addr) -> [u8; 8] {
    address.octets()[..8].try_into().expect("an address has 16 bytes")
}

/// When all attempts will be forgiven with one more counted (the generic cell rate algorithm).
fn next(forgiven: Option<&Instant>, pace: Pace, now: Instant) -> Result<Instant, Throttled> {
    let then = forgiven.copied().unwrap_or(now).max(now) + pace.every;
    let allowed = now + pace.every * pace.burst;
    match then > allowed {
        true => Err(Throttled { retry_after: then - allowed }),
        false => Ok(then),
    }
}

fn make_room(forgiven: &mut HashMap<Digest, Instant>, now: Instant) {
    if forgiven.len() < MAX_ENTRIES {
        return;
    }
    forgiven.retain(|_, at| *at > now);
    if forgiven.len() >= MAX_ENTRIES {
        let mut times: Vec<_> = forgiven.values().copied().collect();
        let (_, middle, _) = times.select_nth_unstable(MAX_ENTRIES / 2);
        let middle = *middle;
        forgiven.retain(|_, at| *at > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn attempts(throttle: &Throttle, login: &str, count: usize, now: Instant) -> usize {
        (0..count).filter(|_| throttle.attempt(Attempt::SignIn, login, HOME, now).is_ok()).count()
    }

    #[test]
    fn ten_guesses_for_a_login_then_one_each_half_minute() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        assert_eq!(attempts(&throttle, "ada", 20, now), 10);
        let refused = throttle.attempt(Attempt::SignIn, " ADA ", HOME, now).unwrap_err();
        assert_eq!(refused.retry_after, Duration::from_secs(30));
        assert_eq!(attempts(&throttle, "ada", 20, now + Duration::from_secs(30)), 1);
        assert_eq!(attempts(&throttle, "grace", 1, now), 1, "others go on");
        assert_eq!(attempts(&throttle, "ada", 20, now + Duration::from_secs(900)), 10);
    }

    #[test]
    fn an_address_is_slowed_down_over_all_logins() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        let allowed = (0..200).filter(|i| attempts(&throttle, &format!("login{i}"), 1, now) == 1).count();
        assert_eq!(allowed, 60);
        let other = "192.0.2.2".parse().unwrap();
        assert!(throttle.attempt(Attempt::SignIn, "ada", other, now).is_ok());
        assert!(throttle.attempt(Attempt::SignUp, "ada", HOME, now).is_ok(), "sign-up counts apart");
    }

    #[test]
    fn a_household_is_one_address() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        let neighbour = |i: u32| IpAddr::V6(Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(i)));
        let allowed = (0..200)
            .filter(|i| throttle.attempt(Attempt::SignIn, &format!("l{i}"), neighbour(*i), now).is_ok());
        assert_eq!(allowed.count(), 60);
    }

    #[test]
    fn the_right_password_clears_the_login_only() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        for _ in 0..6 {
            assert_eq!(attempts(&throttle, "ada", 10, now), 10);
            throttle.succeeded(Attempt::SignIn, "Ada");
        }
        assert_eq!(attempts(&throttle, "ada", 10, now), 0, "sixty from one address");
    }

    #[test]
    fn a_crowd_does_not_grow_the_memory_and_frees_the_nearly_forgiven_first() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        assert_eq!(attempts(&throttle, "ada", 20, now), 10);
        for i in 0..(2 * MAX_ENTRIES as u32) {
            let address = IpAddr::from(i.to_be_bytes());
            let _ = throttle.attempt(Attempt::SignIn, &i.to_string(), address, now);
        }
        assert!(throttle.forgiven.lock().unwrap().len() <= MAX_ENTRIES);
        assert_eq!(attempts(&throttle, "ada", 1, now), 0, "the guesser is still known");
    }
}
