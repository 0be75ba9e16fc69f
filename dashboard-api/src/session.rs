//! Sessions and the cookies of a browser.
//!
//! The session cookie has the session's ID. quota-svc stores the SHA-256 of the ID with the account until the session expires or
//! is revoked. The known-browser cookie proves that a browser has signed in to an account before. Its sign-in attempts have
//! their own throttle, so that nobody can lock an owner out by guessing passwords. It grants nothing else: the password is
//! still required.

mod key;

use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use http::{HeaderMap, header};
pub use key::{Sealer, SessionKey};
use sha2::{Digest, Sha256};

pub const SESSION_TTL_SECONDS: u32 = 12 * 3600;
const KNOWN_BROWSER_TTL_SECONDS: u32 = 90 * 86_400;

/// A signed-in browser. Without `Debug`, so that its ID never gets into a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    /// The account's ID.
    pub account: String,
    /// Random and secret.
    id: String,
}

impl Session {
    /// Generates a session of this account.
    pub fn new(account: &str) -> Result<Self, getrandom::Error> {
        Ok(Self { account: account.to_owned(), id: random_token()? })
    }

    /// SHA-256 of the ID. Only this is stored, so a copy of the store is not enough to forge a cookie.
    pub fn id_sha256(&self) -> String {
        HEXLOWER.encode(&Sha256::digest(&self.id))
    }
}

/// Writes and reads the cookies of browsers.
pub struct Cookies {
    session: Cookie,
    known_browser: Cookie,
}

impl Cookies {
    /// Encrypts with keys derived from this one. `secure` sets the Secure attribute: browsers then send the cookies over HTTPS
    /// only.
    pub fn new(key: &SessionKey, secure: bool) -> Self {
        Self {
            session: Cookie::new(key, "ipl_session", SESSION_TTL_SECONDS, secure),
            known_browser: Cookie::new(key, "ipl_known_browser", KNOWN_BROWSER_TTL_SECONDS, secure),
        }
    }

    /// `Set-Cookie` values after a sign-in. The session cookie is last: client libraries that keep one value per header name keep
    /// the last one.
    pub fn set(&self, session: &Session, login: &str, now: u64) -> Result<[String; 2], getrandom::Error> {
        let known_browser = self.known_browser.set(&random_token()?, &normalized(login), now)?;
        Ok([known_browser, self.session.set(&format!("{} {}", session.id, session.account), "", now)?])
    }

    /// `Set-Cookie` value that removes the session cookie.
    pub fn clear_session(&self) -> String {
        self.session.header("", 0)
    }

    /// The session of a request; `None` if the cookie is absent, forged or expired.
    pub fn session(&self, headers: &HeaderMap, now: u64) -> Option<Session> {
        let content = self.session.read(headers, "", now)?;
        let (id, account) = content.split_once(' ')?;
        Some(Session { account: account.to_owned(), id: id.to_owned() })
    }

    /// The random ID of a known browser; `None` if the cookie is absent, forged, expired or of another login.
    pub fn known_browser(&self, headers: &HeaderMap, login: &str, now: u64) -> Option<String> {
        self.known_browser.read(headers, &normalized(login), now)
    }
}

/// A cookie that clients can neither read nor change.
struct Cookie {
    name: String,
    ttl_seconds: u32,
    secure: bool,
    sealer: Sealer,
}

impl Cookie {
    fn new(key: &SessionKey, name: &str, ttl_seconds: u32, secure: bool) -> Self {
        // Browsers accept this prefix only with Secure, with Path=/ and without Domain.
        let name = if secure { format!("__Host-{name}") } else { name.to_owned() };
        // Each name has its own key, so that a cookie from plain HTTP is not valid with the prefix.
        Self { sealer: key.sealer(&format!("cookie {name} v1")), name, ttl_seconds, secure }
    }

    /// The cookie is valid with this context only, which is not part of it.
    fn set(&self, content: &str, context: &str, now: u64) -> Result<String, getrandom::Error> {
        let expires = now + u64::from(self.ttl_seconds);
        Ok(self.header(&self.sealer.seal(content, context, expires)?, self.ttl_seconds))
    }

    /// Scripts can't read the cookie, and other sites can't make the browser send it.
    fn header(&self, value: &str, max_age: u32) -> String {
        let (name, secure) = (&self.name, if self.secure { "; Secure" } else { "" });
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}")
    }

    /// Reads the first cookie with this name.
    fn read(&self, headers: &HeaderMap, context: &str, now: u64) -> Option<String> {
        let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let (_, value) = pairs.find(|(name, _)| *name == self.name)?;
        self.sealer.open(value, context, now)
    }
}

/// 256 random bits in Base64.
pub fn random_token() -> Result<String, getrandom::Error> {
    let mut random = [0; 32];
    getrandom::fill(&mut random)?;
    Ok(BASE64URL_NOPAD.encode(&random))
}

/// Normalizes a login as quota-svc does, so that all spellings count as one.
pub fn normalized(login: &str) -> String {
    login.trim().to_lowercase()
}

/// Unix time in seconds.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Unix time in milliseconds.
pub fn now_ms() -> i64 {
    i64::try_from(unix_now() * 1000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const DAY: u64 = 86_400;

    fn cookies(secure: bool) -> Cookies {
        Cookies::new(&SessionKey::from_bytes(vec![7; 32]).unwrap(), secure)
    }

    fn request(set_cookie: &str) -> HeaderMap {
        let pair = set_cookie.split(';').next().unwrap();
        HeaderMap::from_iter([(header::COOKIE, format!("theme=dark; {pair}; x").parse().unwrap())])
    }

    fn session() -> Session {
        Session::new("0123abcd").unwrap()
    }

    fn value(set_cookie: &str) -> &str {
        set_cookie.split([';', '=']).nth(1).unwrap()
    }

    #[test]
    fn session_is_readable_until_it_expires() {
        let session = session();
        let [_, set] = cookies(true).set(&session, "ada", NOW).unwrap();
        assert!(set.starts_with("__Host-ipl_session="));
        assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure"), "{set}");
        let end = NOW + u64::from(SESSION_TTL_SECONDS);
        for now in [0, NOW, end - 1] {
            assert!(cookies(true).session(&request(&set), now).is_some_and(|read| read == session), "{now}");
        }
        assert!(cookies(true).session(&request(&set), end).is_none());
    }

    #[test]
    fn known_browser_cookie_is_valid_for_its_login_for_90_days() {
        let [set, _] = cookies(true).set(&session(), " Ada ", NOW).unwrap();
        assert!(set.starts_with("__Host-ipl_known_browser="));
        assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=7776000; Secure"), "{set}");
        let read = |set: &str, login: &str, now: u64| cookies(true).known_browser(&request(set), login, now);
        let id = read(&set, "ada", NOW).unwrap();
        assert_eq!(read(&set, "ADA", NOW + 90 * DAY - 1), Some(id.clone()));
        assert_eq!(read(&set, "ada", NOW + 90 * DAY), None);
        assert_eq!(read(&set, "grace", NOW), None);
        let [other, _] = cookies(true).set(&session(), "ada", NOW).unwrap();
        assert_ne!(read(&other, "ada", NOW), Some(id), "each cookie has its own ID");
    }

    #[test]
    fn cookie_is_encrypted_and_differs_each_time() {
        let session = session();
        let set = || cookies(false).set(&session, "ada", NOW).unwrap();
        for (one, two) in set().into_iter().zip(set()) {
            assert_ne!(one, two);
            let bytes = BASE64URL_NOPAD.decode(value(&one).as_bytes()).unwrap();
            assert!(!bytes.windows(8).any(|part| part == b"0123abcd"));
        }
    }

    /// Whether one of the cookies is accepted.
    fn is_accepted(cookies: &Cookies, set_cookie: &str) -> bool {
        let headers = request(set_cookie);
        cookies.session(&headers, NOW).is_some() || cookies.known_browser(&headers, "ada", NOW).is_some()
    }

    #[test]
    fn cookie_with_a_changed_bit_is_rejected() {
        for set in cookies(false).set(&session(), "ada", NOW).unwrap() {
            let (name, value) = (set.split('=').next().unwrap(), value(&set));
            assert!(is_accepted(&cookies(false), &set), "{name}");
            let bytes = BASE64URL_NOPAD.decode(value.as_bytes()).unwrap();
            for bit in 0..bytes.len() * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let cookie = format!("{name}={}", BASE64URL_NOPAD.encode(&changed));
                assert!(!is_accepted(&cookies(false), &cookie), "{name}, bit {bit}");
            }
            for wrong in ["", "x", "====", &value[1..], &value[..20]] {
                assert!(!is_accepted(&cookies(false), &format!("{name}={wrong}")), "{name}={wrong}");
            }
        }
    }

    #[test]
    fn cookie_with_another_key_or_name_is_rejected() {
        let other = Cookies::new(&SessionKey::from_bytes(vec![8; 32]).unwrap(), false);
        let [known_browser, session] = cookies(false).set(&session(), "ada", NOW).unwrap();
        for set in [&known_browser, &session] {
            assert!(!is_accepted(&cookies(true), &format!("__Host-{set}")), "{set}");
            assert!(!is_accepted(&other, set), "{set}");
        }
        let swapped = format!("ipl_known_browser={}", value(&session));
        assert!(!is_accepted(&cookies(false), &swapped));
    }

    #[test]
    fn cleared_cookie_expires_immediately() {
        let cleared = cookies(false).clear_session();
        assert_eq!(cleared, "ipl_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }
}
