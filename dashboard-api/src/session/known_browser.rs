//! The known-browser cookie: proves that a browser has signed in to an account before, for 90 days.
//!
//! Its sign-in attempts have their own throttle, so that nobody can lock an owner out by guessing passwords. It grants
//! nothing else: the password is still required.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use http::HeaderMap;
use ring::hmac;

use super::SessionKey;
use super::cookie::{cookie_value, set_cookie};

/// Name of the cookie with the Secure attribute.
const SECURE_NAME: &str = "__Host-ipl_known_browser";
/// Name of the cookie without the Secure attribute.
const INSECURE_NAME: &str = "ipl_known_browser";

const TTL: Duration = Duration::from_secs(90 * 86_400);

/// Version of the layout: version, expiry, browser ID, then the signature.
const VERSION: u8 = 1;
const ID_LEN: usize = 16;
const SIGNED_LEN: usize = 1 + 8 + ID_LEN;

/// Random ID of one cookie. The throttle counts its attempts separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrowserId(pub [u8; ID_LEN]);

/// Writes and reads known-browser cookies.
pub struct KnownBrowsers {
    key: hmac::Key,
    secure: bool,
}

impl KnownBrowsers {
    /// Signs with a key derived from `key`. `secure` sets the Secure attribute.
    pub fn new(key: &SessionKey, secure: bool) -> Self {
        Self { key: key.signing_key("known-browser cookie v1"), secure }
    }

    /// `Set-Cookie` value that marks the browser as known to the account with this login.
    pub fn set(&self, login: &str, now: u64) -> Result<String, getrandom::Error> {
        let mut id = [0; ID_LEN];
        getrandom::fill(&mut id)?;
        let expires = (now + TTL.as_secs()).to_be_bytes();
        let signed = [&[VERSION], expires.as_slice(), &id].concat();
        let tag = hmac::sign(&self.key, &self.message(&signed, login));
        let value = BASE64URL_NOPAD.encode(&[signed.as_slice(), tag.as_ref()].concat());
        Ok(set_cookie(self.name(), &value, TTL.as_secs(), self.secure))
    }

    /// Reads the cookie from a request's headers; `None` if it is absent, forged, expired or of another login.
    pub fn read(&self, headers: &HeaderMap, login: &str, now: u64) -> Option<BrowserId> {
        let bytes = BASE64URL_NOPAD.decode(cookie_value(headers, self.name())?.as_bytes()).ok()?;
        let (signed, tag) = bytes.split_at_checked(SIGNED_LEN)?;
        hmac::verify(&self.key, &self.message(signed, login), tag).ok()?;
        let (expires, id) = signed.strip_prefix(&[VERSION])?.split_at_checked(8)?;
        let expires = u64::from_be_bytes(expires.try_into().ok()?);
        (expires > now).then_some(BrowserId(id.try_into().ok()?))
    }

    fn name(&self) -> &'static str {
        if self.secure { SECURE_NAME } else { INSECURE_NAME }
    }

    /// What the signature covers. The login is signed but not stored in the cookie, so a copy of the cookie does not
    /// reveal it. The name is signed, so that a cookie from plain HTTP is not valid as a `__Host-` cookie.
    fn message(&self, signed: &[u8], login: &str) -> Vec<u8> {
        [self.name().as_bytes(), &[0], signed, normalized(login).as_bytes()].concat()
    }
}

/// Normalizes a login as quota-svc does, so that all spellings count as one.
pub fn normalized(login: &str) -> String {
    login.trim().to_lowercase()
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const DAY: u64 = 86_400;

    fn browsers(secure: bool) -> KnownBrowsers {
        KnownBrowsers::new(&SessionKey::from_bytes(vec![7; 32]).unwrap(), secure)
    }

    fn request(set_cookie: &str) -> HeaderMap {
        let pair = set_cookie.split(';').next().unwrap();
        HeaderMap::from_iter([(COOKIE, format!("theme=dark; {pair}").parse().unwrap())])
    }

    #[test]
    fn cookie_is_valid_for_its_login_for_90_days() {
        let set = browsers(true).set(" Ada ", NOW).unwrap();
        assert!(set.starts_with("__Host-ipl_known_browser="));
        assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=7776000; Secure"), "{set}");
        let headers = request(&set);
        let id = browsers(true).read(&headers, "ada", NOW).unwrap();
        assert_eq!(browsers(true).read(&headers, "ADA", NOW + 90 * DAY - 1), Some(id));
        assert_eq!(browsers(true).read(&headers, "ada", NOW + 90 * DAY), None);
        assert_eq!(browsers(true).read(&headers, "grace", NOW), None);
        let other = request(&browsers(true).set("ada", NOW).unwrap());
        assert_ne!(browsers(true).read(&other, "ada", NOW), Some(id), "each cookie has its own ID");
    }

    #[test]
    fn cookie_with_a_changed_bit_another_key_or_name_is_rejected() {
        let set = browsers(false).set("ada", NOW).unwrap();
        let value = set.split([';', '=']).nth(1).unwrap();
        let bytes = BASE64URL_NOPAD.decode(value.as_bytes()).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let cookie = format!("{INSECURE_NAME}={}", BASE64URL_NOPAD.encode(&changed));
            assert_eq!(browsers(false).read(&request(&cookie), "ada", NOW), None, "bit {bit}");
        }
        for wrong in ["", "x", "====", &value[1..], &value[..20]] {
            assert_eq!(browsers(false).read(&request(&format!("{INSECURE_NAME}={wrong}")), "ada", NOW), None);
        }
        let renamed = set.replace(INSECURE_NAME, SECURE_NAME);
        assert_eq!(browsers(true).read(&request(&renamed), "ada", NOW), None);
        let other = KnownBrowsers::new(&SessionKey::from_bytes(vec![8; 32]).unwrap(), false);
        assert_eq!(other.read(&request(&set), "ada", NOW), None);
    }
}
