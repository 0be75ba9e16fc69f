//! The response headers about limits: `X-RateLimit-*`, which the API's contract requires, and those of the IETF draft
//! (draft-ietf-httpapi-ratelimit-headers-11).

use base::names;
use http::{HeaderMap, HeaderName, HeaderValue};
use quota_client::wire::RateLimit;

use crate::metrics::Operation;

pub(super) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const REASON: HeaderName = HeaderName::from_static("x-ratelimit-reason");
pub(super) const KEY_REASON: HeaderName = HeaderName::from_static("x-key-reason");
const IETF_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const IETF_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Stands for a number that is set per response: replacing a value is cheaper than inserting one.
pub(super) const PLACEHOLDER: HeaderValue = HeaderValue::from_static("0");

/// The names that scripts of other origins may read. `ietf`: whether the draft's headers are sent.
pub(super) const fn exposed(ietf: bool) -> HeaderValue {
    HeaderValue::from_static(match ietf {
        false => {
            "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Reason, X-Key-Reason, Retry-After, X-Request-Id"
        }
        true => {
            "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Reason, X-Key-Reason, RateLimit, \
             RateLimit-Policy, Retry-After, X-Request-Id"
        }
    })
}

/// The headers whose values [`set`] and [`set_ietf`] replace.
pub(super) fn placeholders(ietf: bool) -> Vec<(HeaderName, HeaderValue)> {
    let names = [LIMIT, REMAINING, RESET, IETF_LIMIT, IETF_POLICY].into_iter().take(if ietf { 5 } else { 3 });
    names.map(|name| (name, PLACEHOLDER)).collect()
}

/// Replaces the placeholders of `X-RateLimit-*` in one pass over the map, because a lookup by name would hash each name.
pub(super) fn set(headers: &mut HeaderMap, rate_limit: &RateLimit) {
    for (name, value) in headers.iter_mut() {
        if *name == LIMIT {
            *value = rate_limit.limit.into();
        } else if *name == REMAINING {
            *value = rate_limit.remaining.into();
        } else if *name == RESET {
            *value = rate_limit.reset.into();
        }
    }
}

/// Replaces the placeholders of the draft's headers. `wait` is the time in seconds until the limit resets. `t` is never more
/// than the window, even if the clocks of this machine and of the store differ.
pub(super) fn set_ietf(headers: &mut HeaderMap, reason: Reason, rate_limit: &RateLimit, wait: u64) {
    let (policy, window) = reason.policy();
    let RateLimit { limit, remaining, .. } = rate_limit;
    let value = |text| HeaderValue::try_from(text).expect("names and numbers are valid in a header");
    for (name, header) in headers.iter_mut() {
        if *name == IETF_LIMIT {
            *header = value(format!("\"{policy}\";r={remaining};t={}", wait.min(window)));
        } else if *name == IETF_POLICY {
            *header = value(format!("\"{policy}\";q={limit};w={window}"));
        }
    }
}

/// Why a request gets 429: the value of `X-RateLimit-Reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// This request exceeded the burst limit and paused the key.
    Burst,
    /// The key was paused before this request.
    Paused,
    /// The key's daily quota is used up.
    Daily,
    /// The demo's daily quota is used up.
    Demo,
}

names!(Reason: Burst => "burst", Paused => "paused", Daily => "daily", Demo => "demo");

impl Reason {
    /// The reason if the daily quota is used up.
    pub(super) const fn daily(operation: Operation) -> Self {
        match operation {
            Operation::Lookup => Self::Daily,
            Operation::Demo => Self::Demo,
        }
    }

    /// The limit as the draft describes it: its name, and the length of its window in seconds.
    const fn policy(self) -> (&'static str, u64) {
        match self {
            Self::Burst | Self::Paused => ("burst", 60),
            Self::Daily | Self::Demo => (self.as_str(), 86_400),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    const RATE_LIMIT: RateLimit = RateLimit { limit: 300, remaining: 7, reset: 1_000 };

    fn headers(ietf: bool, reason: Reason, wait: u64) -> Vec<(String, String)> {
        let mut headers: HeaderMap = placeholders(ietf).into_iter().collect();
        set(&mut headers, &RATE_LIMIT);
        set_ietf(&mut headers, reason, &RATE_LIMIT, wait);
        let text = |value: &HeaderValue| value.to_str().expect("ASCII").to_owned();
        let mut headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        headers.sort();
        headers
    }

    fn pairs<const N: usize>(headers: [(&str, &str); N]) -> Vec<(String, String)> {
        headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn headers_of_the_draft_are_an_addition() {
        let contract =
            [("x-ratelimit-limit", "300"), ("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", "1000")];
        let ietf = [("ratelimit", "\"burst\";r=7;t=59"), ("ratelimit-policy", "\"burst\";q=300;w=60")];
        assert_eq!(headers(false, Reason::Burst, 59), pairs(contract));
        assert_eq!(headers(true, Reason::Burst, 59), [pairs(ietf), pairs(contract)].concat());
    }

    #[test]
    fn policies_have_their_names_and_windows() {
        for (reason, limit, description) in [
            (Reason::Daily, "\"daily\";r=7;t=86400", "\"daily\";q=300;w=86400"),
            (Reason::Demo, "\"demo\";r=7;t=86400", "\"demo\";q=300;w=86400"),
            (Reason::Burst, "\"burst\";r=7;t=60", "\"burst\";q=300;w=60"),
        ] {
            let sent = headers(true, reason, u64::MAX);
            assert_eq!(sent[..2], pairs([("ratelimit", limit), ("ratelimit-policy", description)]));
        }
    }

    #[test]
    fn every_header_that_is_sent_is_exposed() {
        for ietf in [false, true] {
            let exposed = exposed(ietf);
            let exposed = exposed.to_str().expect("ASCII").to_lowercase();
            let mut exposed: Vec<_> = exposed.split(", ").collect();
            let sent = placeholders(ietf).into_iter().map(|(name, _)| name.to_string());
            let others = [&REASON, &KEY_REASON, &header::RETRY_AFTER, &http_server::X_REQUEST_ID]
                .map(HeaderName::to_string);
            let mut sent: Vec<_> = sent.chain(others).collect();
            sent.sort();
            exposed.sort_unstable();
            assert_eq!(exposed, sent, "{ietf}");
        }
    }
}
