//! The session cookie: a session encrypted and authenticated with an AEAD, so that clients can't read or change it.

use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, header};
use ring::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};

use super::{SESSION_TTL_SECONDS, Session, SessionKey};

/// Name of the cookie with the Secure attribute. Browsers accept the prefix `__Host-` only with Secure,
/// with Path=/ and without Domain.
pub const SECURE_NAME: &str = "__Host-ipl_session";
/// Name of the cookie without the Secure attribute.
pub const INSECURE_NAME: &str = "ipl_session";

/// Version of the plaintext's layout.
const VERSION: u8 = 1;
/// Bytes before the account: version, expiry, session ID.
const HEAD_LEN: usize = 1 + 8 + 32;

/// Writes and reads session cookies.
pub struct Cookies {
    cipher: LessSafeKey,
    secure: bool,
}

impl Cookies {
    /// Encrypts with this key. `secure` sets the Secure attribute: browsers then send the cookie over HTTPS only.
    pub fn new(key: &SessionKey, secure: bool) -> Self {
        Self { cipher: key.cipher(), secure }
    }

    pub fn name(&self) -> &'static str {
        if self.secure { SECURE_NAME } else { INSECURE_NAME }
    }

    /// `Set-Cookie` value that stores the session in the browser.
    pub fn set(&self, session: &Session) -> Result<String, getrandom::Error> {
        Ok(self.header(&self.seal(session)?, u64::from(SESSION_TTL_SECONDS)))
    }

    /// `Set-Cookie` value that removes the cookie.
    pub fn clear(&self) -> String {
        self.header("", 0)
    }

    /// Reads the session from a request's cookies; `None` if it is absent, forged or expired.
    pub fn read(&self, headers: &HeaderMap, now: u64) -> Option<Session> {
        let session = self.open(cookie_value(headers, self.name())?)?;
        (session.expires > now).then_some(session)
    }

    fn header(&self, value: &str, max_age: u64) -> String {
        set_cookie(self.name(), value, max_age, self.secure)
    }

    fn seal(&self, session: &Session) -> Result<String, getrandom::Error> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce)?;
        let mut sealed = [&[VERSION], session.expires.to_be_bytes().as_slice(), &session.id].concat();
        sealed.extend_from_slice(session.account.as_bytes());
        // Random nonces are safe here: one key seals far fewer than 2^32 cookies.
        let unique = Nonce::assume_unique_for_key(nonce);
        let result = self.cipher.seal_in_place_append_tag(unique, self.associated_data(), &mut sealed);
        result.expect("a session is far shorter than the cipher's limit");
        Ok(BASE64URL_NOPAD.encode(&[nonce.as_slice(), &sealed].concat()))
    }

    fn open(&self, value: &str) -> Option<Session> {
        let bytes = BASE64URL_NOPAD.decode(value.as_bytes()).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let plain = self.cipher.open_in_place(nonce, self.associated_data(), &mut sealed).ok()?;
        parse(plain)
    }

    /// Binds the ciphertext to the cookie's name, so that a cookie from plain HTTP is not valid as a `__Host-` cookie.
    fn associated_data(&self) -> Aad<&'static str> {
        Aad::from(self.name())
    }
}

/// Returns the value of the first cookie with this name.
pub(super) fn cookie_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// A `Set-Cookie` value that scripts can't read and that other sites can't make the browser send.
pub(super) fn set_cookie(name: &str, value: &str, max_age: u64, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}")
}

fn parse(plain: &[u8]) -> Option<Session> {
    let (head, account) = plain.split_at_checked(HEAD_LEN)?;
    let (expires, id) = head.strip_prefix(&[VERSION])?.split_at_checked(8)?;
    Some(Session {
        account: String::from_utf8(account.to_vec()).ok()?,
        id: id.try_into().ok()?,
        expires: u64::from_be_bytes(expires.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn cookies(secure: bool) -> Cookies {
        Cookies::new(&SessionKey::from_bytes(vec![7; 32]).unwrap(), secure)
    }

    fn request(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, cookie.parse().unwrap())])
    }

    fn pair(set_cookie: &str) -> &str {
        set_cookie.split(';').next().unwrap()
    }

    #[test]
    fn session_is_readable_until_it_expires() {
        let session = Session::new("0123abcd", NOW).unwrap();
        let set = cookies(true).set(&session).unwrap();
        assert!(set.starts_with("__Host-ipl_session="));
        assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure"), "{set}");
        let headers = request(&format!("theme=dark; {}; x", pair(&set)));
        assert_eq!(cookies(true).read(&headers, NOW), Some(session.clone()));
        assert_eq!(cookies(true).read(&headers, NOW + u64::from(SESSION_TTL_SECONDS) - 1), Some(session));
        assert_eq!(cookies(true).read(&headers, NOW + u64::from(SESSION_TTL_SECONDS)), None);
    }

    #[test]
    fn cookie_is_encrypted_and_differs_each_time() {
        let session = Session::new("0123abcd", NOW).unwrap();
        let (one, two) = (cookies(false).set(&session).unwrap(), cookies(false).set(&session).unwrap());
        assert_ne!(one, two);
        let bytes = BASE64URL_NOPAD.decode(pair(&one).split_once('=').unwrap().1.as_bytes()).unwrap();
        assert!(!bytes.windows(8).any(|part| part == b"0123abcd"));
        assert!(!format!("{session:?}").contains("0123abcd"));
    }

    #[test]
    fn cookie_with_a_changed_bit_is_rejected() {
        let set = cookies(false).set(&Session::new("0123abcd", NOW).unwrap()).unwrap();
        let value = pair(&set).split_once('=').unwrap().1;
        let bytes = BASE64URL_NOPAD.decode(value.as_bytes()).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let cookie = format!("ipl_session={}", BASE64URL_NOPAD.encode(&changed));
            assert_eq!(cookies(false).read(&request(&cookie), NOW), None, "bit {bit}");
        }
        for wrong in ["", "x", "====", &value[1..], &value[..20]] {
            assert_eq!(cookies(false).read(&request(&format!("ipl_session={wrong}")), NOW), None);
        }
    }

    #[test]
    fn cookie_with_another_key_or_name_is_rejected() {
        let session = Session::new("0123abcd", NOW).unwrap();
        let insecure = cookies(false).set(&session).unwrap();
        let renamed = pair(&insecure).replace(INSECURE_NAME, SECURE_NAME);
        assert_eq!(cookies(true).read(&request(&renamed), NOW), None);
        let other = Cookies::new(&SessionKey::from_bytes(vec![8; 32]).unwrap(), false);
        assert_eq!(other.read(&request(pair(&insecure)), NOW), None);
    }

    #[test]
    fn cleared_cookie_expires_immediately() {
        assert_eq!(cookies(false).clear(), "ipl_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }
}
