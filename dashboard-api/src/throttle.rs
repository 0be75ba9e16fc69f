//! Limits guesses at passwords and password links, mass sign-ups, and mail.
//!
//! Nobody may lock an owner out, so no limit that a stranger can use up applies to a browser that has signed in before
//! or to a signed-in owner. Logins and addresses are not stored, only a keyed hash of each. The key is random and never
//! leaves the process.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::session::normalized;

/// Maximum number of counters, which use a few megabytes. When it is reached, [`evict`] makes room.
const MAX_COUNTERS: usize = 65_536;

/// An attempt to use a password or a link, to create an account, or to send something. Each kind is counted separately.
#[derive(Debug, Clone, Copy)]
pub enum Attempt<'a> {
    /// A sign-in with this login from a browser that has not signed in to this account before.
    SignIn(&'a str, IpAddr),
    /// A sign-in from the known browser with this ID, and the login.
    KnownBrowser(&'a str, &'a str),
    /// The password that confirms a change, in the session with this SHA-256.
    Confirmation(&'a str),
    SignUp(IpAddr),
    /// A test event to the webhook of this account.
    TestEvent(&'a str),
    /// The use of a password link, or of a link that verifies a mail address.
    Link(IpAddr),
    /// A question about the quota of the key with this ID.
    Quota(&'a str, IpAddr),
    /// A request for a password link by mail.
    ForgotPassword(IpAddr),
    /// A message to the mail address that this account has entered, to verify it. Messages of other accounts to the address don't
    /// count: its holder may want to enter it, too.
    Verification(&'a str),
    /// A message to this verified mail address.
    Mail(Purpose, &'a str),
}

/// What mail is sent for. Each purpose has its own limits, so that none can be used to prevent another.
#[derive(Debug, Clone, Copy, Hash)]
pub enum Purpose {
    Notice,
    Security,
    PasswordReset,
}

/// How many attempts are allowed without delay, and seconds per further attempt.
type Rate = (u32, u64);

/// Guesses at one password by one client.
const PER_CLIENT: Rate = (10, 30);
/// Guesses at one password by all clients together. Far larger, because a stranger can use it up.
const PER_LOGIN: Rate = (1_000, 10);
/// Guesses by one address at any login, or at any link. Many people may share an address; the interval is far longer than a hash
/// takes, so that one address can't occupy the hashing queue.
const PER_ADDRESS: Rate = (600, 1);
/// 10 per hour.
const MAIL_PER_RECIPIENT: Rate = (10, 360);
/// 1,200 per hour.
const MAIL_IN_TOTAL: Rate = (1_200, 3);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many attempts. Try again in {retry_seconds} seconds")]
pub struct Throttled {
    pub retry_seconds: u64,
}

/// Counts attempts, with the generic cell rate algorithm (GCRA).
#[derive(Default)]
pub struct Throttle {
    hasher: RandomState,
    /// GCRA's theoretical arrival time per counter: from then on the full burst is available again.
    arrival_times: Mutex<HashMap<u64, Instant>>,
}

impl Throttle {
    /// Counts an attempt against each of its limits, or rejects it. Rejected attempts are not counted.
    pub fn allow(&self, attempt: Attempt<'_>) -> Result<(), Throttled> {
        self.allow_at(attempt, Instant::now())
    }

    fn allow_at(&self, attempt: Attempt<'_>, now: Instant) -> Result<(), Throttled> {
        let limits = self.limits(attempt);
        let mut arrival_times = self.arrival_times.lock().unwrap_or_else(PoisonError::into_inner);
        let checked = limits
            .iter()
            .map(|(counter, rate)| Ok((*counter, next(arrival_times.get(counter), *rate, now)?)))
            .collect::<Result<Vec<_>, Throttled>>()?;
        for (counter, at) in checked {
            evict(&mut arrival_times, now);
            arrival_times.insert(counter, at);
        }
        Ok(())
    }

    /// Resets the client's count after a correct password. The other limits keep their counts: otherwise the owner of
    /// one account could guess the passwords of others without limit.
    pub fn reset(&self, attempt: Attempt<'_>) {
        if let Some((counter, _)) = self.limits(attempt).first() {
            self.arrival_times.lock().unwrap_or_else(PoisonError::into_inner).remove(counter);
        }
    }

    /// The counters of an attempt, each with its limit. The first is the one that a correct password resets.
    fn limits(&self, attempt: Attempt<'_>) -> Vec<(u64, Rate)> {
        match attempt {
            Attempt::SignIn(login, address) => {
                let (login, network) = (normalized(login), network(address));
                vec![
                    self.limit(("login and address", &login, network), PER_CLIENT),
                    self.limit(("login", &login), PER_LOGIN),
                    self.limit(("address", network), PER_ADDRESS),
                ]
            }
            // The second limit is for a former owner, who can have collected many cookies.
            Attempt::KnownBrowser(browser, login) => vec![
                self.limit(("known browser", browser), PER_CLIENT),
                self.limit(("login of known browsers", normalized(login)), PER_LOGIN),
            ],
            Attempt::Confirmation(session) => vec![self.limit(("confirmation", session), PER_CLIENT)],
            Attempt::SignUp(address) => vec![self.limit(("sign-up", network(address)), (20, 60))],
            Attempt::TestEvent(account) => vec![self.limit(("test event", account), (1, 60))],
            Attempt::Link(address) => vec![self.limit(("link", network(address)), PER_ADDRESS)],
            Attempt::Quota(key, address) => vec![self.limit(("quota", key, network(address)), (60, 1))],
            // 20 per hour.
            Attempt::ForgotPassword(address) => vec![self.limit(("forgot", network(address)), (20, 180))],
            Attempt::Verification(account) => vec![
                self.limit(("verification", account), MAIL_PER_RECIPIENT),
                self.limit("all verifications", MAIL_IN_TOTAL),
            ],
            Attempt::Mail(purpose, recipient) => vec![
                self.limit((purpose, recipient.to_lowercase()), MAIL_PER_RECIPIENT),
                self.limit(("all mail", purpose), MAIL_IN_TOTAL),
            ],
        }
    }

    fn limit(&self, counter: impl Hash, rate: Rate) -> (u64, Rate) {
        (self.hasher.hash_one(counter), rate)
    }
}

/// The part of an address that is counted: of an IPv6 address the first 64 bits, because one subscriber usually has a
/// whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & u128::MAX << 64).into(),
    }
}

/// Counts one attempt. Returns the new theoretical arrival time of GCRA, or an error if the rate is exceeded.
fn next(arrival_time: Option<&Instant>, (burst, seconds): Rate, now: Instant) -> Result<Instant, Throttled> {
    let interval = Duration::from_secs(seconds);
    let next = arrival_time.copied().unwrap_or(now).max(now) + interval;
    let latest = now + interval * burst;
    // Rounded up.
    if next > latest { Err(Throttled { retry_seconds: (next - latest).as_secs() + 1 }) } else { Ok(next) }
}

/// If the map is full, drops the counters for which the full burst is available again. If that is not enough, also drops
/// the half with the earliest arrival times.
fn evict(arrival_times: &mut HashMap<u64, Instant>, now: Instant) {
    if arrival_times.len() < MAX_COUNTERS {
        return;
    }
    arrival_times.retain(|_, at| *at > now);
    if arrival_times.len() >= MAX_COUNTERS {
        let mut times: Vec<_> = arrival_times.values().copied().collect();
        let (_, median, _) = times.select_nth_unstable(MAX_COUNTERS / 2);
        let median = *median;
        arrival_times.retain(|_, at| *at > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::from((0xc000_0200 + n).to_be_bytes())
    }

    fn sign_in(login: &str, n: u32) -> Attempt<'_> {
        Attempt::SignIn(login, address(n))
    }

    /// Makes `count` attempts and returns how many were allowed.
    fn attempts(throttle: &Throttle, attempt: Attempt<'_>, count: usize, now: Instant) -> usize {
        (0..count).filter(|_| throttle.allow_at(attempt, now).is_ok()).count()
    }

    #[test]
    fn client_gets_ten_attempts_per_login_then_one_per_30_seconds() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 20, now), 10);
        let throttled = throttle.allow_at(sign_in(" ADA ", 1), now).unwrap_err();
        assert_eq!(throttled.retry_seconds, 31);
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 20, now + Duration::from_secs(30)), 1);
        assert_eq!(attempts(&throttle, sign_in("grace", 1), 1, now), 1, "other logins are not affected");
        assert_eq!(attempts(&throttle, sign_in("ada", 2), 1, now), 1, "other addresses are not affected");
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 20, now + Duration::from_secs(900)), 10);
    }

    #[test]
    fn login_limit_spans_all_addresses() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let allowed = (0..2_000).filter(|n| throttle.allow_at(sign_in("ada", *n), now).is_ok()).count();
        assert_eq!(allowed, 1_000);
        assert_eq!(attempts(&throttle, sign_in("grace", 1), 1, now), 1);
    }

    #[test]
    fn address_limit_spans_all_logins() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let allowed =
            (0..2_000).filter(|n| throttle.allow_at(sign_in(&format!("login{n}"), 1), now).is_ok()).count();
        assert_eq!(allowed, 600);
        assert_eq!(attempts(&throttle, sign_in("ada", 2), 1, now), 1);
        let sign_up = Attempt::SignUp(address(1));
        assert_eq!(attempts(&throttle, sign_up, 30, now), 20, "sign-ups are counted separately");
    }

    #[test]
    fn known_browser_and_confirmation_are_not_affected_by_guesses_of_others() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for n in 0..2_000 {
            let _ = throttle.allow_at(sign_in("ada", n), now);
            let _ = throttle.allow_at(sign_in(&format!("login{n}"), 1), now);
        }
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 1, now), 0);
        let ids: Vec<_> = (0..=255).map(|n: u32| n.to_string()).collect();
        let browser = |n: usize| Attempt::KnownBrowser(&ids[n], "ada");
        assert_eq!(attempts(&throttle, browser(1), 20, now), 10);
        assert_eq!(attempts(&throttle, browser(2), 20, now), 10, "each cookie has its own count");
        assert_eq!(attempts(&throttle, Attempt::Confirmation("a"), 20, now), 10);
        let of_all_cookies: usize = (3..=255).map(|n| attempts(&throttle, browser(n), 20, now)).sum();
        assert_eq!(of_all_cookies, 980, "all cookies of a login share a limit of 1,000");
    }

    #[test]
    fn known_browser_attempts_do_not_count_against_the_other_limits() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let browser = Attempt::KnownBrowser("1", "ada");
        assert_eq!(attempts(&throttle, browser, 20, now), 10);
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 20, now), 10);
    }

    #[test]
    fn ipv6_addresses_in_one_slash_64_share_a_limit() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let neighbor = |i: u32| IpAddr::V6(Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(i)));
        let allowed = (0..200).filter(|i| {
            let attempt = Attempt::SignIn("ada", neighbor(*i));
            throttle.allow_at(attempt, now).is_ok()
        });
        assert_eq!(allowed.count(), 10);
    }

    #[test]
    fn correct_password_resets_the_client_only() {
        let (throttle, now) = (Throttle::default(), Instant::now());
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
        let (throttle, now) = (Throttle::default(), Instant::now());
        assert_eq!(attempts(&throttle, mail(Purpose::PasswordReset, "ada@a.example"), 20, now), 10);
        assert_eq!(attempts(&throttle, mail(Purpose::PasswordReset, "Ada@A.example"), 1, now), 0);
        assert_eq!(attempts(&throttle, mail(Purpose::Security, "ada@a.example"), 20, now), 10);
        let recipients = (0..2_000).map(|n| format!("{n}@a.example"));
        let sent = recipients.filter(|to| throttle.allow_at(mail(Purpose::PasswordReset, to), now).is_ok());
        assert_eq!(sent.count(), 1_190, "1,200 in total");
        assert_eq!(attempts(&throttle, mail(Purpose::Security, "grace@a.example"), 1, now), 1);
        let later = now + Duration::from_secs(3_600);
        assert_eq!(attempts(&throttle, mail(Purpose::PasswordReset, "ada@a.example"), 20, later), 10);
        let request = Attempt::ForgotPassword(address(1));
        assert_eq!(attempts(&throttle, request, 30, now), 20);
    }

    #[test]
    fn full_map_evicts_earliest_arrival_times_first() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        assert_eq!(attempts(&throttle, sign_in("ada", 1), 20, now), 10);
        for i in 0..(MAX_COUNTERS as u32) {
            let address = IpAddr::from(i.to_be_bytes());
            let _ = throttle.allow_at(Attempt::SignIn(&i.to_string(), address), now);
        }
        assert!(throttle.arrival_times.lock().unwrap().len() <= MAX_COUNTERS);
        assert_eq!(
            attempts(&throttle, sign_in("ada", 1), 1, now),
            0,
            "the throttled client must not be evicted"
        );
    }
}
