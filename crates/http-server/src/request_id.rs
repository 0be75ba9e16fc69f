//! The ID of a request: in the header `X-Request-Id` of its response, in the log lines about it and in its span.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use http::{HeaderName, HeaderValue};

/// The header with the ID.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum characters of an ID that a proxy sends.
const MAX_LENGTH: usize = 64;

/// Characters of a generated ID, with 5 bits each. Among a billion IDs, two are equal with a probability of 1 in 2 million.
const GENERATED_LENGTH: usize = 16;
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// 1 to 64 characters, each a letter, a digit, `.`, `_` or `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// Creates an ID from keyed hashes of a counter. They are as unique as random numbers, and unlike the counter they do
    /// not tell clients how many requests there are.
    pub fn generate() -> Self {
        static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Relaxed);
        let halves = KEYS.each_ref().map(|key| key.hash_one(number));
        let digit = |index: usize| {
            let half = halves[index / (GENERATED_LENGTH / 2)];
            DIGITS[((half >> (5 * (index % (GENERATED_LENGTH / 2)))) & 0x1f) as usize]
        };
        let digits: [u8; GENERATED_LENGTH] = std::array::from_fn(digit);
        // Every digit is valid in a header.
        Self(HeaderValue::from_bytes(&digits).unwrap_or(HeaderValue::from_static("-")))
    }

    /// The ID in the only `X-Request-Id` of a request. `None` if it is not valid. Callers must check that the peer is a
    /// trusted proxy: a client could choose any ID.
    pub fn received(value: &HeaderValue) -> Option<Self> {
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let is_valid = (1..=MAX_LENGTH).contains(&value.len()) && value.as_bytes().iter().all(is_allowed);
        is_valid.then(|| Self(value.clone()))
    }

    /// The value of the header.
    pub fn to_header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// The ID as text.
    pub fn as_str(&self) -> &str {
        // All characters are ASCII.
        self.0.to_str().unwrap_or_default()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn received(value: &[u8]) -> Option<RequestId> {
        RequestId::received(&HeaderValue::from_bytes(value).expect("a header value"))
    }

    #[test]
    fn generated_ids_are_valid_and_differ() {
        let ids: HashSet<String> = (0..10_000).map(|_| RequestId::generate().to_string()).collect();
        assert_eq!(ids.len(), 10_000);
        for id in &ids {
            assert_eq!(id.len(), GENERATED_LENGTH);
            assert_eq!(received(id.as_bytes()).expect("a valid ID").as_str(), id);
        }
        let first: HashSet<char> = ids.iter().filter_map(|id| id.chars().next()).collect();
        assert_eq!(first.len(), DIGITS.len(), "every digit varies");
    }

    #[test]
    fn generated_id_is_the_same_as_header_and_text() {
        let id = RequestId::generate();
        assert_eq!(id.to_header(), id.as_str());
    }

    #[test]
    fn short_id_of_safe_characters_is_received() {
        let longest = [b'x'; 64];
        for valid in [&b"a"[..], b"AZaz09._-", b"0af7651916cd43dd8448eb211c80319c", &longest] {
            assert_eq!(received(valid).expect("a valid ID").as_str().as_bytes(), valid);
        }
        let too_long = [b'x'; 65];
        for invalid in [&b""[..], b"a b", b"a\"", b"a=b", b"a\tb", b"a/b", b"a:b", b"\xc3\xa9", &too_long] {
            assert_eq!(received(invalid), None, "{invalid:?}");
        }
    }
}
