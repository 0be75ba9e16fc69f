//! Limits guesses at passwords and password links, mass sign-ups, and mail.
//!
//! Nobody may lock an owner out, so no limit that a stranger can use up applies to a browser that has signed in before
//! or to a signed-in owner. Logins and addresses are not stored, only a keyed hash of each. The key is random and never
//! leaves the process.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ring::hmac;

use crate::session::{BrowserId, normalized};

/// Maximum number of entries, which use a few megabytes. When it is reached, [`evict`] makes room.
const MAX_ENTRIES: usize = 65_536;

/// An attempt to use a password or a link, to create an account, or to send something. Each kind is counted separately.
#[derive(Debug, Clone, Copy)]
pub enum Attempt<'a> {
    /// A sign-in with this login from a browser that has not signed in to this account before.
    SignIn(&'a str, IpAddr),
    /// A sign-in from a browser that has the known-browser cookie of this login.
    KnownBrowser(BrowserId, &'a str),
    /// The password that confirms a change, in the session with this SHA-256.
    Confirmation(&'a str),
    SignUp(IpAddr),
    /// A test event to the webhook of this account.
    TestEvent(&'a str),
    /// The use of a password link, or of a link that verifies a mail address.
    PasswordLink(IpAddr),
    /// A question about the quota of the key with this ID.
    Quota(&'a str, IpAddr),
    /// A request for mail by a visitor or an owner.
    MailRequest(IpAddr),
    /// A message to this mail address.
    Mail(Purpose, &'a str),
}

/// What mail is sent for. Each purpose has its own limits, so that none can be used to prevent another.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    Notice,
    Security,
    Verification,
    PasswordReset,
}

/// Allows `burst` attempts without delay, then one per `interval`.
#[derive(Debug, Clone, Copy)]
struct AttemptRate {
    burst: u32,
    interval: Duration,
}

const fn rate(burst: u32, interval_seconds: u64) -> AttemptRate {
    AttemptRate { burst, interval: Duration::from_secs(interval_seconds) }
}

/// Guesses at one password by one client.
const PER_CLIENT: AttemptRate = rate(10, 30);
/// Guesses at one password by all clients together. Far larger, because a stranger can use it up.
const PER_LOGIN: AttemptRate = rate(1_000, 10);
/// Guesses by one address at any login, or at any password link. Many people may share an address; the interval is far longer than a hash takes,
/// so that one address can't occupy the hashing queue.
const PER_ADDRESS: AttemptRate = rate(600, 1);
const SIGN_UPS_PER_ADDRESS: AttemptRate = rate(20, 60);
const TEST_EVENTS_PER_ACCOUNT: AttemptRate = rate(1, 60);
/// Questions about one key's quota by one address.
const QUOTA_PER_CLIENT: AttemptRate = rate(60, 1);
/// 20 per hour.
const MAIL_REQUESTS_PER_ADDRESS: AttemptRate = rate(20, 180);
/// 10 per hour.
const MAIL_PER_RECIPIENT: AttemptRate = rate(10, 360);
/// 1,200 per hour.
const MAIL_IN_TOTAL: AttemptRate = rate(1_200, 3);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many attempts. Try again in {} seconds", self.retry_seconds())]
pub struct Throttled {
    pub retry_after: Duration,
}

impl Throttled {
    /// Rounded up.
    pub fn retry_seconds(&self) -> u64 {
        self.retry_after.as_secs() + 1
    }
}

type Digest = [u8; 16];

/// Counts attempts, with the generic cell rate algorithm (GCRA).
pub struct Throttle {
    key: hmac::Key,
    /// GCRA's theoretical arrival time per counter: from then on the full burst is available again.
    arrival_times: Mutex<HashMap<Digest, Instant>>,
}

impl Throttle {
    /// Starts without counted attempts, with a random key.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), arrival_times: Mutex::default() })
    }

    /// Counts an attempt against each of its limits, or rejects it. Rejected attempts are not counted.
    pub fn attempt(&self, attempt: Attempt<'_>, now: Instant) -> Result<(), Throttled> {
        let limits = self.limits(attempt);
        let mut arrival_times = self.arrival_times.lock().unwrap_or_else(PoisonError::into_inner);
        let checked = limits
            .iter()
            .map(|(digest, rate)| Ok((*digest, next(arrival_times.get(digest), *rate, now)?)))
            .collect::<Result<Vec<_>, Throttled>>()?;
        for (digest, at) in checked {
            evict(&mut arrival_times, now);
            arrival_times.insert(digest, at);
        }
        Ok(())
    }

    /// Resets the client's count after a correct password. The other limits keep their counts: otherwise the owner of
    /// one account could guess the passwords of others without limit.
    pub fn reset(&self, attempt: Attempt<'_>) {
        if let Some((digest, _)) = self.limits(attempt).first() {
            self.arrival_times.lock().unwrap_or_else(PoisonError::into_inner).remove(digest);
        }
    }

    /// The counters of an attempt and their limits. The first is the one that a correct password resets.
    fn limits(&self, attempt: Attempt<'_>) -> Vec<(Digest, AttemptRate)> {
        let limit = |kind, parts: &[&[u8]], rate| (self.digest(kind, parts), rate);
        match attempt {
            Attempt::SignIn(login, address) => {
                let (login, address) = (normalized(login), network(address));
                vec![
                    limit("login and address", &[login.as_bytes(), &address], PER_CLIENT),
                    limit("login", &[login.as_bytes()], PER_LOGIN),
                    limit("address", &[&address], PER_ADDRESS),
                ]
            }
            // The second limit is for a former owner, who can have collected many cookies.
            Attempt::KnownBrowser(browser, login) => vec![
                limit("known browser", &[&browser.0], PER_CLIENT),
                limit("login of known browsers", &[normalized(login).as_bytes()], PER_LOGIN),
            ],
            Attempt::Confirmation(session) => vec![limit("confirmation", &[session.as_bytes()], PER_CLIENT)],
            Attempt::TestEvent(account) => {
                vec![limit("test event", &[account.as_bytes()], TEST_EVENTS_PER_ACCOUNT)]
            }
            Attempt::SignUp(address) => vec![limit("sign-up", &[&network(address)], SIGN_UPS_PER_ADDRESS)],
            Attempt::PasswordLink(address) => vec![limit("password link", &[&network(address)], PER_ADDRESS)],
            Attempt::Quota(key, address) => {
                vec![limit("quota", &[key.as_bytes(), &network(address)], QUOTA_PER_CLIENT)]
            }
            Attempt::MailRequest(address) => {
                vec![limit("mail request", &[&network(address)], MAIL_REQUESTS_PER_ADDRESS)]
            }
            Attempt::Mail(purpose, recipient) => {
                let (purpose, recipient) = (format!("{purpose:?}"), recipient.to_lowercase());
                vec![
                    limit("recipient", &[purpose.as_bytes(), recipient.as_bytes()], MAIL_PER_RECIPIENT),
                    limit("all mail", &[purpose.as_bytes()], MAIL_IN_TOTAL),
                ]
            }
        }
    }

    /// Hashes a counter's name. Each part is preceded by its length, so that different parts never hash alike.
    fn digest(&self, kind: &str, parts: &[&[u8]]) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        for part in std::iter::once(&kind.as_bytes()).chain(parts) {
            context.update(&part.len().to_be_bytes());
            context.update(part);
        }
        let tag = context.sign();
        tag.as_ref()[..16].try_into().expect("an HMAC-SHA256 tag has 32 bytes")
    }
}

/// The part of an address that is counted: of an IPv6 address the first 64 bits, because one subscriber usually has a
/// whole /64.
fn network(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets()[..8].to_vec(),
    }
}

/// Counts one attempt. Returns the new theoretical arrival time of GCRA, or an error if the rate is exceeded.
fn next(arrival_time: Option<&Instant>, rate: AttemptRate, now: Instant) -> Result<Instant, Throttled> {
    let next = arrival_time.copied().unwrap_or(now).max(now) + rate.interval;
    let latest = now + rate.interval * rate.burst;
    if next > latest { Err(Throttled { retry_after: next - latest }) } else { Ok(next) }
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
    use std::net::Ipv6Addr;

    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::from((0xc000_0200 + n).to_be_bytes())
    }

    fn sign_in(login: &str, n: u32) -> Attempt<'_> {
        Attempt::SignIn(login, address(n))
    }

    /// Makes `count` attempts and returns how many were allowed.
    fn attempts(throttle: &Throttle, attempt: Attempt<'_>, count: usize, now: Instant) -> usize {
        (0..count).filter(|_| throttle.attempt(attempt, now).is_ok()).count()
    }

    #[test]
    fn client_gets_ten_attempts_per_login_then_one_per_30_seconds() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 20, now), 10);
        let throttled = throttle.attempt(sign_in(" ADA ", 1), now).unwrap_err();
        assert_eq!(throttled.retry_after, Duration::from_secs(30));
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 20, now + Duration::from_secs(30)), 1);
        assert_eq!(attempts(&throttle, sign_in("grace", 1), 1, now), 1, "other logins are not affected");
        assert_eq!(attempts(&throttle, sign_in("ada", 2), 1, now), 1, "other addresses are not affected");
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 20, now + Duration::from_secs(900)), 10);
    }

    #[test]
    fn login_limit_spans_all_addresses() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        let allowed = (0..2_000).filter(|n| throttle.attempt(sign_in("ada", *n), now).is_ok()).count();
        assert_eq!(allowed, 1_000);
        assert_eq!(attempts(&throttle, sign_in("grace", 1), 1, now), 1);
    }

    #[test]
    fn address_limit_spans_all_logins() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        let allowed =
            (0..2_000).filter(|n| throttle.attempt(sign_in(&format!("login{n}"), 1), now).is_ok()).count();
        assert_eq!(allowed, 600);
        assert_eq!(attempts(&throttle, sign_in("ada", 2), 1, now), 1);
        let sign_up = Attempt::SignUp(address(1));
        assert_eq!(attempts(&throttle, sign_up, 30, now), 20, "sign-ups are counted separately");
    }

    #[test]
    fn known_browser_and_confirmation_are_not_affected_by_guesses_of_others() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        for n in 0..2_000 {
            let _ = throttle.attempt(sign_in("ada", n), now);
            let _ = throttle.attempt(sign_in(&format!("login{n}"), 1), now);
        }
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 1, now), 0);
        let browser = |n: u8| Attempt::KnownBrowser(BrowserId([n; 16]), "ada");
        assert_eq!(attempts(&throttle, browser(1), 20, now), 10);
        assert_eq!(attempts(&throttle, browser(2), 20, now), 10, "each cookie has its own count");
        assert_eq!(attempts(&throttle, Attempt::Confirmation("a"), 20, now), 10);
        let of_all_cookies: usize = (3..=255).map(|n| attempts(&throttle, browser(n), 20, now)).sum();
        assert_eq!(of_all_cookies, 980, "all cookies of a login share a limit of 1,000");
    }

    #[test]
    fn known_browser_attempts_do_not_count_against_the_other_limits() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        let browser = Attempt::KnownBrowser(BrowserId([1; 16]), "ada");
        assert_eq!(attempts(&throttle, browser, 20, now), 10);
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 20, now), 10);
    }

    #[test]
    fn ipv6_addresses_in_one_slash_64_share_a_limit() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        let neighbor = |i: u32| IpAddr::V6(Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(i)));
        let allowed = (0..200).filter(|i| {
            let attempt = Attempt::SignIn("ada", neighbor(*i));
            throttle.attempt(attempt, now).is_ok()
        });
        assert_eq!(allowed.count(), 10);
    }

    #[test]
    fn correct_password_resets_the_client_only() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        for _ in 0..60 {
            assert_eq!(attempts(&throttle, sign_in("ada", 1), 10, now), 10);
            throttle.reset(sign_in("Ada", 1));
        }
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 10, now), 0, "the address has made 600 attempts");
    }

    #[test]
    fn mail_is_limited_per_recipient_and_in_total_for_each_purpose() {
        fn mail(purpose: Purpose, recipient: &str) -> Attempt<'_> {
            Attempt::Mail(purpose, recipient)
        }
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        assert_eq!(attempts(&throttle, mail(Purpose::PasswordReset, "ada@a.example"), 20, now), 10);
        assert_eq!(attempts(&throttle, mail(Purpose::PasswordReset, "Ada@A.example"), 1, now), 0);
        assert_eq!(attempts(&throttle, mail(Purpose::Security, "ada@a.example"), 20, now), 10);
        let recipients = (0..2_000).map(|n| format!("{n}@a.example"));
        let sent = recipients.filter(|to| throttle.attempt(mail(Purpose::PasswordReset, to), now).is_ok());
        assert_eq!(sent.count(), 1_190, "1,200 in total");
        assert_eq!(attempts(&throttle, mail(Purpose::Security, "grace@a.example"), 1, now), 1);
        let later = now + Duration::from_secs(3_600);
        assert_eq!(attempts(&throttle, mail(Purpose::PasswordReset, "ada@a.example"), 20, later), 10);
        let request = Attempt::MailRequest(address(1));
        assert_eq!(attempts(&throttle, request, 30, now), 20);
    }

    #[test]
    fn full_map_evicts_earliest_arrival_times_first() {
        let (throttle, now) = (Throttle::new().unwrap(), Instant::now());
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 20, now), 10);
        for i in 0..(MAX_ENTRIES as u32) {
            let address = IpAddr::from(i.to_be_bytes());
            let _ = throttle.attempt(Attempt::SignIn(&i.to_string(), address), now);
        }
        assert!(throttle.arrival_times.lock().unwrap().len() <= MAX_ENTRIES);
        assert_eq!(
            attempts(&throttle, sign_in("ada", 1), 1, now),
            0,
            "the throttled client must not be evicted"
        );
    }
}
