//! The session cookie: a ticket sealed with an AEAD, so that nobody reads or changes it on the way.

use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, header};
use ring::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};

use super::{LIFE, SessionKey, Ticket};

/// A cookie of this name is taken by browsers only with Secure, without Domain and with Path=/.
pub const SECURE_NAME: &str = "__Host-ipl_session";
/// Its name without Secure.
pub const INSECURE_NAME: &str = "ipl_session";

/// The layout of what is sealed; another one would count up.
const VERSION: u8 = 1;
/// Version, expiry and id come before the account.
const HEAD: usize = 1 + 8 + 32;

/// Writes and reads session cookies.
pub struct Cookies {
    cipher: LessSafeKey,
    secure: bool,
}

impl Cookies {
    /// Cookies of this key; `secure` ones go over HTTPS only.
    pub fn new(key: &SessionKey, secure: bool) -> Self {
        Self { cipher: key.cipher(), secure }
    }

    /// The cookie's name.
    pub fn name(&self) -> &'static str {
        match self.secure {
            true => SECURE_NAME,
            false => INSECURE_NAME,
        }
    }

    /// The Set-Cookie that gives the ticket to the browser.
    pub fn set(&self, ticket: &Ticket) -> Result<String, getrandom::Error> {
        Ok(self.header(&self.seal(ticket)?, LIFE.as_secs()))
    }

    /// The Set-Cookie that takes it away.
    pub fn clear(&self) -> String {
        self.header("", 0)
    }

    /// The ticket of a request, if it has one that we sealed and that has not expired.
    pub fn read(&self, headers: &HeaderMap, now: u64) -> Option<Ticket> {
        let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
        let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut ours = pairs.filter(|(name, _)| *name == self.name()).map(|(_, value)| value);
        let ticket = self.open(ours.next()?)?;
        (ticket.expires > now).then_some(ticket)
    }

    fn header(&self, value: &str, max_age: u64) -> String {
        let secure = if self.secure { "; Secure" } else { "" };
        format!("{}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}", self.name())
    }

    fn seal(&self, ticket: &Ticket) -> Result<String, getrandom::Error> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce)?;
        let mut sealed = [&[VERSION], ticket.expires.to_be_bytes().as_slice(), &ticket.id].concat();
        sealed.extend_from_slice(ticket.account.as_bytes());
        // A random nonce is unique enough: one key seals far fewer than 2^32 cookies in its life.
        let unique = Nonce::assume_unique_for_key(nonce);
        let done = self.cipher.seal_in_place_append_tag(unique, self.context(), &mut sealed);
        done.expect("a ticket is far shorter than the cipher's limit");
        Ok(BASE64URL_NOPAD.encode(&[nonce.as_slice(), &sealed].concat()))
    }

    fn open(&self, value: &str) -> Option<Ticket> {
        let bytes = BASE64URL_NOPAD.decode(value.as_bytes()).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let plain = self.cipher.open_in_place(nonce, self.context(), &mut sealed).ok()?;
        parse(plain)
    }

    /// A cookie sealed for plain HTTP is no good for HTTPS.
    fn context(&self) -> Aad<&'static str> {
        Aad::from(self.name())
    }
}

fn parse(plain: &[u8]) -> Option<Ticket> {
    let (head, account) = plain.split_at_checked(HEAD)?;
    let (expires, id) = head.strip_prefix(&[VERSION])?.split_at_checked(8)?;
    Some(Ticket {
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
    fn a_ticket_comes_back_until_it_expires() {
        let ticket = Ticket::new("0123abcd", NOW).unwrap();
        let set = cookies(true).set(&ticket).unwrap();
        assert!(set.starts_with("__Host-ipl_session="));
        assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure"), "{set}");
        let headers = request(&format!("theme=dark; {}; x", pair(&set)));
        assert_eq!(cookies(true).read(&headers, NOW), Some(ticket.clone()));
        assert_eq!(cookies(true).read(&headers, NOW + LIFE.as_secs() - 1), Some(ticket));
        assert_eq!(cookies(true).read(&headers, NOW + LIFE.as_secs()), None);
    }

    #[test]
    fn a_cookie_tells_nothing_and_differs_each_time() {
        let ticket = Ticket::new("0123abcd", NOW).unwrap();
        let (one, two) = (cookies(false).set(&ticket).unwrap(), cookies(false).set(&ticket).unwrap());
        assert_ne!(one, two);
        let bytes = BASE64URL_NOPAD.decode(pair(&one).split_once('=').unwrap().1.as_bytes()).unwrap();
        assert!(!bytes.windows(8).any(|part| part == b"0123abcd"));
        assert!(!format!("{ticket:?}").contains("0123abcd"));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let set = cookies(false).set(&Ticket::new("0123abcd", NOW).unwrap()).unwrap();
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
    fn a_cookie_of_another_key_or_kind_is_none() {
        let ticket = Ticket::new("0123abcd", NOW).unwrap();
        let insecure = cookies(false).set(&ticket).unwrap();
        let renamed = pair(&insecure).replace(INSECURE_NAME, SECURE_NAME);
        assert_eq!(cookies(true).read(&request(&renamed), NOW), None);
        let other = Cookies::new(&SessionKey::from_bytes(vec![8; 32]).unwrap(), false);
        assert_eq!(other.read(&request(pair(&insecure)), NOW), None);
    }

    #[test]
    fn clearing_ends_it_at_once() {
        assert_eq!(cookies(false).clear(), "ipl_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }
}
